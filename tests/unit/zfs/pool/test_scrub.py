"""What zpool and zdb say of scrubs and errors, as OpenZFS 2.3.9 prints it."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from zvault.core.errors import Busy, NotFound, PoolSuspended, ToolFailed, ZvaultError
from zvault.core.integrity.damage import LoggedBlock, SnapshotObject
from zvault.core.integrity.pool_devices import TopVdev
from zvault.core.policy.scrub import PoolScan
from zvault.system.process.runner import ProcessResult
from zvault.zfs.pool.scrub import HELD, SCRUBBED, Scrubber, count_checksum_errors, list_top_vdevs, parse_scan
from zvault.zfs.repair.error_log import ErrorLog

FINISHED = {
    "function": "SCRUB",
    "state": "FINISHED",
    "start_time": 1795315996,
    "end_time": 1795316996,
    "to_examine": 2321408,
    "examined": 2284544,
    "skipped": 53760,
    "processed": 0,
    "errors": 1,
    "bytes_per_scan": 0,
    "pass_start": 1795315996,
    "scrub_pause": 0,
    "scrub_spent_paused": 0,
    "issued_bytes_per_scan": 2230784,
    "issued": 2230784,
}
NOW = 1795316096.0
LATER = 1795317000.0
"""When it has ended."""


def test_a_scrub_that_ended():
    assert parse_scan(FINISHED, NOW) == PoolScan(
        "finished", 1795315996.0, 1795316996.0, 2321408 - 53760, 2230784, errors=1
    )


def test_what_a_pool_lies_on():
    """The keys of ``zpool status -j -P -L`` of 2.3.9, without the numbers."""
    disk, log = {"class": "normal"}, {"class": "log"}
    document = {
        "vdevs": {
            "cold": {
                "vdev_type": "root",
                "vdevs": {
                    "/dev/nbd0": disk,
                    "mirror-1": {"class": "normal", "vdevs": {"/dev/nbd1": disk, "/dev/sdb1": disk}},
                    "indirect-2": {"class": "normal"},
                },
            }
        },
        "dedup": {"mirror-4": {"class": "dedup", "vdevs": {"/srv/a b": {"class": "dedup"}}}},
        "logs": {"/dev/sdd": log},
        "l2cache": {"/dev/sde": {"class": "l2cache"}},
        "spares": {"/dev/sdf": {"class": "spare", "state": "AVAIL"}},
    }
    assert list(list_top_vdevs("cold", document)) == [
        TopVdev("/dev/nbd0", "normal", ("/dev/nbd0",)),
        TopVdev("mirror-1", "normal", ("/dev/nbd1", "/dev/sdb1")),
        TopVdev("indirect-2", "normal", ()),
        TopVdev("mirror-4", "dedup", ("/srv/a b",)),
        TopVdev("/dev/sdd", "log", ("/dev/sdd",)),
        TopVdev("/dev/sde", "l2cache", ("/dev/sde",)),
        TopVdev("/dev/sdf", "spare", ("/dev/sdf",)),
    ]
    assert list(list_top_vdevs("cold", {})) == []


def test_what_it_repaired_and_what_the_devices_gave_wrong_is_counted():
    assert parse_scan(FINISHED | {"processed": 4096}, NOW).repaired == 4096
    disks = {"a": {"checksum_errors": 3}, "b": {"checksum_errors": "-"}}
    vdevs = {"cold": {"checksum_errors": 0, "vdevs": {"mirror-0": {"checksum_errors": 9, "vdevs": disks}}}}
    assert count_checksum_errors(vdevs) == 3
    assert count_checksum_errors({}) == 0


def test_one_that_goes_tells_its_rate_without_its_pauses():
    going = FINISHED | {"state": "SCANNING", "end_time": 0, "issued_bytes_per_scan": 4000}
    assert parse_scan(going, NOW).rate == 40.0
    assert parse_scan(going | {"scrub_spent_paused": 60}, NOW).rate == 100.0
    assert parse_scan(going, NOW).ended is None


def test_a_count_that_fell_below_zero_is_none():
    # As a stock Debian's OpenZFS 2.3.9 told it, after the server of the pool's device had been killed.
    fallen = FINISHED | {"issued": 18446744073709355008, "issued_bytes_per_scan": 18446744073709355008}
    assert parse_scan(fallen, NOW).done == 0
    assert parse_scan(fallen | {"state": "SCANNING"}, NOW).rate is None


def test_a_paused_one():
    paused = parse_scan(FINISHED | {"state": "SCANNING", "scrub_pause": 1795316000}, NOW)
    assert (paused.state, paused.open, paused.rate) == ("paused", True, None)


def test_a_resilver_is_not_a_scrub():
    assert parse_scan(FINISHED | {"function": "RESILVER"}, NOW).resilver


def test_no_scan_ever():
    assert parse_scan({}, NOW) == PoolScan()
    assert parse_scan({"state": "NONE"}, NOW) == PoolScan()


class Says:
    """A host whose tools print what the test says, by the last of their words; what was run is in ``ran``."""

    def __init__(self, answers: dict[str, tuple[int, str, str]]) -> None:
        self.answers = answers
        self.ran: list[list[str]] = []

    async def run(self, argv: Sequence[str], **_: object) -> ProcessResult:
        self.ran.append([*argv])
        code, out, err = next(
            (answer for words, answer in self.answers.items() if " ".join(argv).endswith(words)), (0, "", "")
        )
        return ProcessResult(tuple(argv), code, out, err, 0.0)


def status(**more: object) -> str:
    return json.dumps({"pools": {"cold": {"scan_stats": FINISHED, **more}}})


async def test_a_scrub_that_ended_is_the_last_one_whatever_was_noted_before():
    host = Says(
        {
            "status -j --json-int -P -L cold": (0, status(error_count=3), ""),
            f"{SCRUBBED},{HELD} cold": (0, f"{SCRUBBED}\t1795000000\n{HELD}\ton\n", ""),
        }
    )
    found = await Scrubber(host).health("cold", LATER)
    assert (found.last, found.errors, found.held) == (1795316996.0, 3, True)


async def test_what_was_noted_counts_once_another_has_begun():
    going = json.dumps({"pools": {"cold": {"scan_stats": FINISHED | {"state": "SCANNING"}}}})
    host = Says(
        {
            "--json-int -P -L cold": (0, going, ""),
            f"{SCRUBBED},{HELD} cold": (0, f"{SCRUBBED}\t1795000000\n{HELD}\t-\n", ""),
        }
    )
    found = await Scrubber(host).health("cold", NOW)
    assert (found.last, found.errors, found.held) == (1795000000.0, 0, False)


NEVER = pytest.mark.parametrize(
    "noted", ["9" * 5000, "9" * 19, str(int(NOW) + 1000)], ids=["digits", "year", "future"]
)
"""Dates of a scrub that is over which are none at NOW."""


@NEVER
async def test_an_end_that_cannot_be_says_nothing(noted: str):
    """Whoever had the pool wrote it: the next scrub would not come before then, and nobody can show such a date."""
    ended = json.dumps(
        {"pools": {"cold": {"scan_stats": FINISHED | {"start_time": noted, "end_time": noted}}}}
    )
    host = Says({"--json-int -P -L cold": (0, ended, "")})
    found = await Scrubber(host).health("cold", NOW)
    assert (found.last, found.scan.ended, found.scan.started) == (None, None, None)


async def test_the_clock_of_another_host_may_be_somewhat_ahead():
    ended = json.dumps({"pools": {"cold": {"scan_stats": FINISHED | {"end_time": int(NOW) + 100}}}})
    host = Says({"--json-int -P -L cold": (0, ended, "")})
    assert (await Scrubber(host).health("cold", NOW)).last == NOW


@NEVER
async def test_what_was_noted_with_a_date_that_cannot_be_says_nothing(noted: str):
    going = json.dumps({"pools": {"cold": {"scan_stats": FINISHED | {"state": "SCANNING"}}}})
    host = Says(
        {
            "--json-int -P -L cold": (0, going, ""),
            f"{SCRUBBED},{HELD} cold": (0, f"{SCRUBBED}\t{noted}\n", ""),
        }
    )
    assert (await Scrubber(host).health("cold", NOW)).last is None


async def test_a_pool_that_is_not_there():
    host = Says({"cold": (1, "", "cannot open 'cold': no such pool\n")})
    with pytest.raises(NotFound):
        await Scrubber(host).health("cold", NOW)


async def test_what_is_so_already_is_no_error():
    busy = Says(
        {"scrub cold": (1, "", "cannot scrub cold: currently scrubbing; use 'zpool scrub -s' to cancel\n")}
    )
    await Scrubber(busy).start("cold")
    none = Says({"cold": (1, "", "cannot cancel scrubbing cold: there is no active scrub\n")})
    await Scrubber(none).pause("cold")
    await Scrubber(none).stop("cold")
    assert [argv[1:] for argv in none.ran] == [["scrub", "-p", "cold"], ["scrub", "-s", "cold"]]
    with pytest.raises(ToolFailed):
        await Scrubber(Says({"cold": (1, "", "cannot scrub cold: permission denied\n")})).start("cold")
    with pytest.raises(PoolSuspended):
        await Scrubber(Says({"cold": (1, "", "pool I/O is currently suspended\n")})).start("cold")


OBJECT = """\
Dataset mos [META], ID 0, cr_txg 4, 171K, 71 objects

    Object  lvl   iblk   dblk  dsize  dnsize  lsize   %full  type
        {number}    1   128K    512      0     512    512  100.00  {kind}
\tdnode flags: USED_BYTES{space}
\tdnode maxblkid: 0
\tmicrozap: 512 bytes, 1 entries

\t\t{entry}{space}
"""


def dump(number: int, entry: str, kind: str = "persistent error log") -> str:
    return OBJECT.format(number=number, kind=kind, entry=entry, space=" ")


async def test_the_error_log_block_by_block():
    host = Says(
        {
            "-dddd cold 1": (0, dump(1, "errlog_last = 23", "object directory"), ""),
            "-dddd cold 23": (0, dump(23, "a = 27") + dump(23, "b = 28").partition("objects\n")[2], ""),
            "-dddd cold 27 28": (
                0,
                dump(27, "2:0:0:1b = 0") + dump(28, "0:ffffffffffffffff:0:0 = 0").partition("objects\n")[2],
                "",
            ),
        }
    )
    log = ErrorLog(host, "cold", ["/dev/nbd0p1"])
    assert await log.entries({10: "cold/a", 11: "cold/b@s1"}) == [
        LoggedBlock("cold/a", 2, 0, 0, 27),
        LoggedBlock("cold/b", 0, -1, 0, 0, "s1"),
    ]
    assert host.ran[0][:4] == ["zdb", "-e", "-p", "/dev/nbd0p1"]


HEAD = "    Object  lvl   iblk   dblk  dsize  dnsize  lsize   %full  type\n"
FILE = "         {}    2   128K   {}   980K     512     1M  100.00  ZFS plain file\n\tdnode maxblkid: {}\n"
BLOCKS = """\tpath\t/my dir/f
\tuid     0
Indirect blocks:
               0 L1  0:2b3000:1000 20000L/1000P F=8 B=18/18 cksum=0:1:2:3
               0  L0 0:1b3000:20000 20000L/20000P F=1 B=18/18 cksum=0:1:2:3
           e0000  L0 0:293000:20000 20000L/20000P F=1 B=22/22 cksum=0:1:2:3

"""


async def test_objects_as_a_snapshot_has_them_but_those_that_are_too_long():
    host = Says(
        {
            "-dddd cold/a@s1 2:3 4:5 9:10": (
                0,
                HEAD
                + FILE.format(2, "128K", 7)
                + HEAD
                + FILE.format(3, "128K", 7)
                + FILE.format(4, "1M", 10**6),
                "",
            ),
            "-ddddd cold/a@s1 2": (0, HEAD + FILE.format(2, "128K", 7) + BLOCKS, ""),
        }
    )
    found = await ErrorLog(host, "cold", ["/d"]).objects("cold/a@s1", {0, 2, 4, 9})
    assert found == {2: SnapshotObject("/my dir/f", {0: 18, 7: 22}), 9: SnapshotObject()}


async def test_an_error_log_that_cannot_be_read_is_not_an_empty_one():
    host = Says({"cold 1": (1, "", "zdb: can't open 'cold': Input/output error\n")})
    assert await ErrorLog(host, "cold", ["/d"]).entries({}) is None


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("cannot scrub cold: currently scrubbing; use 'zpool scrub -s' to cancel", Busy),
        ("cannot scrub cold: currently resilvering", Busy),
        ("cannot scrub cold: I/O error", ToolFailed),
    ],
)
async def test_a_whole_scrub_is_not_waited_for_where_another_runs(said: str, error: type[ZvaultError]):
    with pytest.raises(error):
        await Scrubber(Says({"scrub -w cold": (1, "", f"{said}\n")})).run_whole("cold", 1.0)
