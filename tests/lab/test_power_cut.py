"""The power goes while a run does this or that: what was flushed is there after the next boot, the rest is not.

Both pools lie on disks of ``crash_disk.py``, which keep what was not flushed in the guest's memory, and write some of
that early, out of order. The cut is a kernel panic at a boundary that ``crash_at.py`` knows, or some time after it:
nothing more is written by anybody, and all memory is lost, the disks' caches too. After it ``crash_power.py`` looks
for what was there before, has zvault put right what was cut off, and runs into the next cut.

This says nothing of disks that lie about a flush, or that tear a block.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LAB = {"where": "host"}

HERE = Path(__file__).parent

BIG = "during zfs receive .*big"

LINES = (
    (
        ("during snapshot", 0.02),
        (BIG, 7.0),
        ("during destroy tank", 0.03),
        ("before bookmark tank", 0.0),
        ("during zpool export", 0.05),
    ),
    (
        ("during zfs receive .*tank/new", 0.05),
        ("during release tank", 0.03),
        ("during destroy cold", 0.03),
        (BIG, 1.2),
        ("during destroy_bookmarks tank", 0.03),
    ),
)
"""Two hosts: where a run is when the power goes, and how many seconds later it does."""

RESUMED = "an interrupted receive"
"""Told where what had arrived before the power went is not sent again."""

OTHER_MOMENTS = (8.0, 6.0, 9.0, 5.0)
"""Seconds after which the big one is cut off too, if it was not there yet, or over, on this machine: it takes ten."""

CUTS = 5 if os.environ.get("ZVAULT_ALL") else 3
"""So many for each host: a boot takes half a minute."""


def boot(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    disks = [f"--disk={folder / name}" for name in ("source", "vault")]
    guest = [str(HERE / "run"), "--mem", "2G", "--timeout", "1800", *disks, f"--share={folder / 'share'}"]
    command = [*guest, "--", "python3", "-u", "tests/lab/crash_power.py", *argv]
    return subprocess.run(command, capture_output=True, text=True)


def new_host(folder: Path) -> Path:
    """One host with its two disks."""
    (folder / "share").mkdir(parents=True)
    for name in ("source", "vault"):
        with (folder / name).open("wb") as file:
            file.truncate(1 << 30)
    return folder


def cut_again_and_again(folder: Path, cuts: Sequence[tuple[str, float]]) -> str:
    """A host's power is cut at each of these, and it recovers; the result is all that was said."""
    told = ""
    for point, after in cuts:
        done = boot(folder, point, str(after))
        told += done.stdout
        assert "the power goes" in done.stdout, told + done.stderr
        assert "sysrq triggered crash" in done.stderr, told + done.stderr
    done = boot(folder)
    assert done.returncode == 0, told + done.stdout + done.stderr
    return told + done.stdout


def test_the_power_goes(tmp_path: Path):
    hosts = [new_host(tmp_path / str(number)) for number in range(len(LINES))]
    with ThreadPoolExecutor() as pool:
        told = list(pool.map(cut_again_and_again, hosts, [cuts[:CUTS] for cuts in LINES]))
    for after in OTHER_MOMENTS:
        if RESUMED not in "".join(told):
            told.append(cut_again_and_again(hosts[0], [(BIG, after)]))
    for one in told:
        print(one)
    assert RESUMED in "".join(told)
