"""``zpool status`` as OpenZFS 2.1.11 printed it in the lab, and in the forms of 2.2.

Those of 2.2 are of its source (zpool_main.c) and of what people who have it show of their pools; numbers are made up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.errors import NotFound, ToolFailed
from zvault.core.integrity.pool_devices import TopVdev
from zvault.core.policy.scrub import PoolScan
from zvault.system.process.runner import ProcessResult
from zvault.zfs.pool.scrub import Scrubber
from zvault.zfs.pool.status_text import parse_listed_errors, parse_pool_status

HEAD = (
    "  pool: cold\n"
    " state: ONLINE\n"
    "status: Mismatch between pool hostid and system hostid on imported pool.\n"
    "\tThis pool was previously imported into a system with a different hostid,\n"
    "action: Export this pool on all systems on which it is imported.\n"
    "   see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-EY\n"
)
TABLE = (
    "config:\n\n"
    "\tNAME        STATE     READ WRITE CKSUM\n"
    "\tcold        ONLINE       0     0     7\n"
    "\t  mirror-0  ONLINE       0     0     9\n"
    "\t    nbd0    ONLINE       0     0   252\n"
    "\t    nbd1    ONLINE       0     0     1\n"
    "\tlogs\n"
    "\t  nbd2      UNAVAIL      0     0     0  cannot open\n\n"
)
WELL = "errors: No known data errors\n"
END = 1795467545.0
"""Mon Nov 23 20:59:05 2026, in UTC."""


def status(scan: str, errors: str = WELL) -> str:
    return HEAD + scan + TABLE + errors


def scan_of(text: str) -> PoolScan:
    return parse_pool_status(status(text)).scan


def test_none_yet():
    assert scan_of("") == scan_of("  scan: none requested\n") == PoolScan()


def test_one_that_ended():
    line = "  scan: scrub repaired 512B in 00:16:40 with 125 errors on Mon Nov 23 20:59:05 2026\n"
    ended = PoolScan("finished", END - 1000, END, errors=125, repaired=512)
    assert scan_of(line) == ended
    longer = scan_of(line.replace("00:16:40", "2 days 00:16:40"))
    assert longer.started == END - 1000 - 2 * 86400
    assert scan_of(line.replace("scrub repaired", "resilvered")) == replace(ended, resilver=True)


def test_one_that_goes():
    going = scan_of(
        "  scan: scrub in progress since Mon Nov 23 20:59:05 2026\n"
        "\t1.50G scanned at 10M/s, 512M issued at 5M/s, 65.3G total\n"
        "\t0B repaired, 0.77% done, 03:40:00 to go\n"
    )
    assert going == PoolScan(
        "scanning", started=END, total=int(65.3 * 2**30), done=512 << 20, rate=5.0 * 2**20
    )
    of_2_2 = scan_of(
        "  scan: scrub in progress since Mon Nov 23 20:59:05 2026\n"
        "\t1.50G / 65.3G scanned at 10M/s, 512M / 65.3G issued at 5M/s\n"
        "\t4K repaired, 0.77% done, 03:40:00 to go\n"
    )
    assert of_2_2 == replace(going, repaired=4096)


def test_one_that_just_began_has_no_rate():
    text = (
        "  scan: scrub in progress since Mon Nov 23 20:59:05 2026\n"
        "\t0B scanned at 0B/s, 0B issued at 0B/s, 65.3M total\n"
        "\t0B repaired, 0.00% done, no estimated completion time\n"
    )
    assert (scan_of(text).rate, scan_of(text).left) == (None, None)


def test_2_2_tells_what_is_skipped_and_no_rate_before_there_is_one():
    began = scan_of(
        "  scan: scrub in progress since Mon Nov 23 20:59:05 2026\n"
        "\t3.50G / 75.5G scanned at 8.25K/s, 0B / 75.5G issued\n"
        "\t0B repaired, 0.00% done, no estimated completion time\n"
    )
    assert began == PoolScan("scanning", started=END, total=int(75.5 * 2**30))
    resilver = scan_of(
        "  scan: resilver in progress since Mon Nov 23 20:59:05 2026\n"
        "\t12.5T / 18.0T scanned at 11.0G/s, 179G / 17.5T issued at 153M/s\n"
        "\t25.5G resilvered, 1.00% done, 1 days 09:48:34 to go\n"
        "remove: Removal of vdev 2 copied 1.95G in 0h0m, completed on Mon Nov 23 20:04:04 2026\n"
        "\t248K memory used for removed device mappings\n"
    )
    assert (resilver.resilver, resilver.total, resilver.done) == (True, int(17.5 * 2**40), 179 << 30)
    paused = scan_of(
        "  scan: scrub paused since Mon Nov 23 21:59:09 2026\n"
        "\tscrub started on Mon Nov 23 20:59:05 2026\n"
        "\t3.25T / 11.0T scanned, 2.75T / 11.0T issued\n"
        "\t0B repaired, 25.00% done\n"
    )
    assert paused == PoolScan("paused", started=END, total=11 << 40, done=int(2.75 * 2**40))


SCRUBBED = "  scan: scrub repaired 0B in 00:16:40 with 0 errors on Mon Nov 23 20:59:05 2026\n"


def test_a_sequential_resilver_hides_no_scrub():
    """Each is told by itself, the scrub first: print_scan_status in zpool_main.c."""
    scrubbed = PoolScan("finished", END - 1000, END)
    ended = "  scan: resilvered (mirror-0) 1.25G in 00:00:10 with 0 errors on Mon Nov 23 21:59:05 2026\n"
    canceled = "  scan: resilver (draid1:4d:6c:1s-0) canceled on Mon Nov 23 21:59:05 2026\n"
    goes = (
        "  scan: resilver (mirror-0) in progress since Mon Nov 23 21:59:05 2026\n"
        "\t1.50G / 65.0G scanned at 100M/s, 1.25G / 65.0G issued at 90.0M/s\n"
        "\t1.25G resilvered, 2.31% done, 00:11:40 to go\n"
    )
    assert scan_of(SCRUBBED + ended) == scan_of(SCRUBBED + canceled) == scrubbed
    assert (scan_of(SCRUBBED + goes).state, scan_of(SCRUBBED + goes).resilver) == ("scanning", True)
    assert (scan_of(ended).state, scan_of(ended).resilver) == ("finished", True)


def test_an_error_scrub_of_2_2_is_no_scrub():
    """It has a line of its own, and takes the place of the scrub's if it is newer."""
    for line in (
        " scrub: scrubbed 3 error blocks in 0 days 00:00:01 on Mon Nov 23 20:59:05 2026\n",
        " scrub: error scrub in progress since Mon Nov 23 20:59:05 2026\n"
        "\t50.00% done, issued I/O for 1 error blocks\n",
        " scrub: error scrub canceled on Mon Nov 23 20:59:05 2026\n",
    ):
        assert scan_of(line) == PoolScan()


def test_what_a_checkpoint_keeps_from_a_scrub_changes_nothing():
    warning = "    scan warning: skipped blocks that are only referenced by the checkpoint.\n"
    more = "checkpoint: created Mon Nov 23 20:59:05 2026, consumes 1.25M\n"
    assert scan_of(SCRUBBED + warning + more) == scan_of(SCRUBBED)


def test_a_paused_one_tells_when_it_was_started():
    paused = scan_of(
        "  scan: scrub paused since Mon Nov 23 21:59:09 2026\n"
        "\tscrub started on Mon Nov 23 20:59:05 2026\n"
        "\t0B scanned, 0B issued, 65.3M total\n"
        "\t0B repaired, 0.00% done\n"
    )
    assert paused == PoolScan("paused", started=END, total=int(65.3 * 2**20))


def test_one_that_was_canceled():
    assert scan_of("  scan: scrub canceled on Mon Nov 23 20:59:05 2026\n") == PoolScan("canceled", ended=END)


def test_errors_and_wrong_bytes_are_counted():
    told = parse_pool_status(status("", "errors: 125 data errors, use '-v' for a list\n"))
    assert (told.errors, told.checksums) == (125, 253)
    listed = status(
        "",
        "errors: Permanent errors have been detected in the following files:\n\n"
        "        cold/a@s:/my file: odd\n        cold/a:<0x0>\n\n",
    )
    assert parse_listed_errors(listed) == ["cold/a@s:/my file: odd", "cold/a:<0x0>"]
    assert parse_listed_errors(status("")) == []


def test_what_a_pool_lies_on():
    table = (
        "config:\n\n"
        "\tNAME                                STATE     READ WRITE CKSUM\n"
        "\tcold                                DEGRADED     0     0     0\n"
        "\t  /var/lib/vault disk.img           ONLINE       0     0     3\n"
        "\t  mirror-1                          DEGRADED     0     0     0\n"
        "\t    /dev/nbd1                       ONLINE       0     0     0\n"
        "\t    /dev/sdb1                       UNAVAIL      0     0     0  cannot open\n"
        "\tspecial\n"
        "\t  /dev/nbd2                         ONLINE       0     0     0\n"
        "\tcache\n"
        "\t  /dev/sdc                          ONLINE       0     0     0\n"
        "\tspares\n"
        "\t  /dev/sdd                          AVAIL\n\n"
    )
    told = parse_pool_status(HEAD + table + WELL)
    assert told.checksums == 3, "also of a path with a space in it"
    assert told.vdevs == (
        TopVdev("/var/lib/vault disk.img", "normal", ("/var/lib/vault disk.img",)),
        TopVdev("mirror-1", "normal", ("/dev/nbd1", "/dev/sdb1")),
        TopVdev("/dev/nbd2", "special", ("/dev/nbd2",)),
        TopVdev("/dev/sdc", "cache", ("/dev/sdc",)),
        TopVdev("/dev/sdd", "spares", ("/dev/sdd",)),
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        HEAD,
        status("  scan: polished until Mon Nov 23 20:59:05 2026\n"),
        status("  scan: scrub in progress since Mon Nov 23 20:59:05 2026\n"),
        status("", "errors: List of errors unavailable: pool I/O is currently suspended\n"),
        status("").replace("CKSUM", "SUM"),
    ],
)
def test_what_it_does_not_know_is_no_health(text: str):
    with pytest.raises(ValueError, match="zpool status"):
        parse_pool_status(text)


@given(st.text(max_size=300) | st.sampled_from(status("  scan: x\n").splitlines()).map(str))
def test_whatever_comes_it_is_understood_or_refused(text: str):
    for whole in (text, HEAD + text, status(f"  scan: {text}\n"), status("", f"errors: {text}\n")):
        try:
            parse_pool_status(whole)
            parse_listed_errors(whole)
        except ValueError:
            continue


class Old:
    """OpenZFS 2.1 as a host: it has no JSON and no user properties of pools."""

    def __init__(self, code: int = 0, text: str = "", said: str = "") -> None:
        self.code, self.text, self.said = code, text, said

    def result(self, argv: Sequence[str], code: int, out: str, said: str) -> ProcessResult:
        return ProcessResult(tuple(argv), code, out, said, 0.0)

    async def run(self, argv: Sequence[str], **_: object) -> ProcessResult:
        if "-j" in argv:
            return self.result(argv, 2, "", "invalid option 'j'\nusage:\n")
        if "get" in argv:
            return self.result(argv, 2, "", "bad property list: invalid property 'org.zvault:scrubbed'")
        assert argv[:3] == ["env", "TZ=UTC", "LC_ALL=C"]
        return self.result(argv, self.code, self.text, self.said)


async def test_a_host_without_json_tells_its_health():
    line = "  scan: scrub repaired 0B in 00:00:01 with 0 errors on Mon Nov 23 20:59:05 2026\n"
    health = await Scrubber(Old(text=status(line))).health("cold", END)  # type: ignore[arg-type]
    assert (health.scan.state, health.last, health.errors, health.checksums) == ("finished", END, 0, 253)


async def test_a_pool_that_is_not_there_and_words_it_does_not_know():
    with pytest.raises(NotFound):
        await Scrubber(Old(1, said="cannot open 'cold': no such pool")).health("cold", 0)  # type: ignore[arg-type]
    with pytest.raises(ToolFailed):
        await Scrubber(Old(text="nothing")).health("cold", 0)  # type: ignore[arg-type]
