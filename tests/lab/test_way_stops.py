"""The host goes down in mid-run, and what a vault is reached by with it."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

LAB = {"where": "host"}

HERE = Path(__file__).parent

DISKS = ("source", "vault")

BOOTED = "seconds since it booted: "
"""As ``way_guest`` tells it."""

SOON = 60.0
"""Seconds that a shutdown may take whose way to the vault is there until the end."""

WITHOUT = 120.0
"""The same where it is gone: requests end at the device's timeout, 10 s, and systemd waits for what hangs."""


def boot(folder: Path) -> tuple[int, list[tuple[float, str]]]:
    """One guest to its end, also over a reboot of its own; its exit status, and what it said when."""
    disks = [f"--disk={folder / name}" for name in DISKS]
    guest = [str(HERE / "run"), "--mem", "2G", "--timeout", "1200", *disks, f"--share={folder / 'share'}"]
    command = [*guest, "--", "python3", "-u", "tests/lab/way_guest.py"]
    told: list[tuple[float, str]] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            told.append((time.monotonic(), line.rstrip()))
            print(f"{time.strftime('%H:%M:%S')} {line.rstrip()}", flush=True)
    told.append((time.monotonic(), "it is off"))
    return running.returncode, told


def took(told: list[tuple[float, str]], from_: str, to: str) -> float:
    """Seconds from one line to another."""
    times = {line: at for at, line in told}
    seconds = times[to] - times[from_]
    print(f"{from_}: {seconds:.1f} s")
    return seconds


def test_a_vault_is_exported_before_its_way_stops_and_without_it_the_host_goes_down(tmp_path: Path) -> None:
    (tmp_path / "share").mkdir()
    for name in DISKS:
        with (tmp_path / name).open("wb") as file:
            file.truncate(1 << 30)
    _, told = boot(tmp_path)
    lines = [line for _, line in told]
    (booted,) = [float(line.removeprefix(BOOTED)) for line in lines if line.startswith(BOOTED)]
    assert took(told, "reboot during a run with its way", "up after a run with its way") - booted < SOON
    assert took(told, "poweroff during a run without it", "it is off") < WITHOUT
    code, told = boot(tmp_path)
    assert "up after a run without it" in [line for _, line in told]
    assert code == 0
