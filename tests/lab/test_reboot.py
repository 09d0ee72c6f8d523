"""The host is shut down in the middle of something: it is never refused, and comes clean."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

LAB = {"where": "host"}

HERE = Path(__file__).parent

DISKS = ("source", "vault", "backing", "cache")

BOOTED = "seconds since it booted: "
"""As ``reboot_guest`` tells it."""

SOON = 90.0
"""Seconds a shutdown may take, here: with a unit that hangs it takes longer, for systemd waits so long for that."""


def boot(folder: Path) -> tuple[int, list[tuple[float, str]]]:
    """One guest to its end, also over a reboot of its own; its exit status, and what it said when."""
    disks = [f"--disk={folder / name}" for name in DISKS]
    guest = [str(HERE / "run"), "--mem", "3G", "--timeout", "1800", *disks, f"--share={folder / 'share'}"]
    command = [*guest, "--", "python3", "-u", "tests/lab/reboot_guest.py"]
    told: list[tuple[float, str]] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if not line.startswith("tests/lab/run:") and not line.startswith("  |"):
                told.append((time.monotonic(), line.rstrip()))
    told.append((time.monotonic(), "it is off"))
    print("\n".join(line for _, line in told))
    return running.returncode, told


def took(told: list[tuple[float, str]], from_: str, to: str) -> float:
    """Seconds from one line to another."""
    times = {line: at for at, line in told}
    seconds = times[to] - times[from_]
    print(f"{from_}: {seconds:.1f} s")
    return seconds


def booting(told: list[tuple[float, str]]) -> float:
    """Seconds that the guest took from its reboot until it said that it is up, which are none of the shutdown's."""
    (line,) = [line for _, line in told if line.startswith(BOOTED)]
    return float(line.removeprefix(BOOTED))


def test_the_host_is_rebooted_and_powered_off(tmp_path: Path) -> None:
    (tmp_path / "share").mkdir()
    for name in DISKS:
        with (tmp_path / name).open("wb") as file:
            # Not a whole number of bcache's stripes: of the end of such a device its log never ceases to complain. The
            # one behind the cache is served without its first MiB.
            file.truncate((1 << 30) + (1 << 20) + 8192)
    _, told = boot(tmp_path)
    rebooted = took(told, "reboot during receive and flush", "up after receive and flush")
    assert rebooted - booting(told) < SOON
    assert took(told, "poweroff during export and scrub", "it is off") < SOON
    code, told = boot(tmp_path)
    assert "up after export and scrub" in [line for _, line in told]
    assert code == 0
