"""The power goes while a scrub is under way: after the next boot the same scrub goes on, and ends."""

from __future__ import annotations

import subprocess
from pathlib import Path

LAB = {"where": "host"}

HERE = Path(__file__).parent


def boot(disk: Path, phase: str) -> subprocess.CompletedProcess[str]:
    guest = [str(HERE / "run"), "--mem", "2G", "--timeout", "900", f"--disk={disk}"]
    command = [*guest, "--", "python3", "-u", "tests/lab/scrub_power.py", phase]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_scrub_outlasts_a_power_cut(tmp_path: Path):
    disk = tmp_path / "disk"
    with disk.open("wb") as file:
        file.truncate(512 << 20)
    done = boot(disk, "cut")
    assert "sysrq triggered crash" in done.stderr, done.stdout + done.stderr
    done = boot(disk, "after")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "it went on and ended" in done.stdout
