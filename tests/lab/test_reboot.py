"""The host is shut down in the middle of something: refused where it would break it, and clean where it comes."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

LAB = {"where": "host"}

HERE = Path(__file__).parent

DISKS = ("source", "vault", "backing", "cache")

MOMENTS = ("receive and flush", "export and scrub", "")
"""What the host is at when it is shut down, one boot after the other."""

SOON = 90.0
"""Seconds a shutdown may take, here: with a unit that hangs it takes longer, for systemd waits so long for that."""


def boot(folder: Path, moment: str) -> tuple[str, float]:
    """One boot to its end; the result is what was said, and the seconds from the last of it until the power was off."""
    disks = [f"--disk={folder / name}" for name in DISKS]
    guest = [str(HERE / "run"), "--mem", "3G", "--timeout", "900", *disks, f"--share={folder / 'share'}"]
    command = [*guest, "--", "python3", "-u", "tests/lab/reboot_guest.py", moment]
    told, last = "", time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if not line.startswith("tests/lab/run:") and not line.startswith("  |"):
                last = time.monotonic()
            told += line
    took = time.monotonic() - last
    print(told, f"{took:.1f} s\n")
    assert moment or running.returncode == 0
    return told, took


def test_the_host_is_shut_down_again_and_again(tmp_path: Path):
    (tmp_path / "share").mkdir()
    for name in DISKS:
        with (tmp_path / name).open("wb") as file:
            # Not a whole number of bcache's stripes: of the end of such a device its log never ceases to complain. The
            # one behind the cache is served without its first MiB.
            file.truncate((1 << 30) + (1 << 20) + 8192)
    for moment in MOMENTS:
        told, took = boot(tmp_path, moment)
        assert not moment or f"going down during {moment}" in told.splitlines()
        assert not moment or took < SOON
