"""``zpool status`` as OpenZFS 2.1.11 printed it in the lab, and as the source of 2.2 has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.errors import NotFound, ToolFailed
from zvault.core.policy.scrub import Scan
from zvault.system.process.runner import Result
from zvault.zfs.pool.scrub import Scrubber
from zvault.zfs.pool.status_text import listed_errors, parse_text

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


def scan_of(text: str) -> Scan:
    return parse_text(status(text)).scan


def test_none_yet():
    assert scan_of("") == scan_of("  scan: none requested\n") == Scan()


def test_one_that_ended():
    line = "  scan: scrub repaired 512B in 00:16:40 with 125 errors on Mon Nov 23 20:59:05 2026\n"
    ended = Scan("finished", END - 1000, END, errors=125, repaired=512)
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
    assert going == Scan("scanning", started=END, total=int(65.3 * 2**30), done=512 << 20, rate=5.0 * 2**20)
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


def test_a_paused_one_tells_when_it_was_started():
    paused = scan_of(
        "  scan: scrub paused since Mon Nov 23 21:59:09 2026\n"
        "\tscrub started on Mon Nov 23 20:59:05 2026\n"
        "\t0B scanned, 0B issued, 65.3M total\n"
        "\t0B repaired, 0.00% done\n"
    )
    assert paused == Scan("paused", started=END, total=int(65.3 * 2**20))


def test_one_that_was_canceled():
    assert scan_of("  scan: scrub canceled on Mon Nov 23 20:59:05 2026\n") == Scan("canceled", ended=END)


def test_errors_and_wrong_bytes_are_counted():
    told = parse_text(status("", "errors: 125 data errors, use '-v' for a list\n"))
    assert (told.errors, told.checksums) == (125, 253)
    listed = status(
        "",
        "errors: Permanent errors have been detected in the following files:\n\n"
        "        cold/a@s:/my file: odd\n        cold/a:<0x0>\n\n",
    )
    assert listed_errors(listed) == ["cold/a@s:/my file: odd", "cold/a:<0x0>"]
    assert listed_errors(status("")) == []


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
        parse_text(text)


@given(st.text(max_size=300) | st.sampled_from(status("  scan: x\n").splitlines()).map(str))
def test_whatever_comes_it_is_understood_or_refused(text: str):
    for whole in (text, HEAD + text, status(f"  scan: {text}\n"), status("", f"errors: {text}\n")):
        try:
            parse_text(whole)
            listed_errors(whole)
        except ValueError:
            continue


class Old:
    """OpenZFS 2.1 as a host: it has no JSON and no user properties of pools."""

    def __init__(self, code: int = 0, text: str = "", said: str = "") -> None:
        self.code, self.text, self.said = code, text, said

    def result(self, argv: Sequence[str], code: int, out: str, said: str) -> Result:
        return Result(tuple(argv), code, out, said, 0.0)

    async def run(self, argv: Sequence[str], **_: object) -> Result:
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
