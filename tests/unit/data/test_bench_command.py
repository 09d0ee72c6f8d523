"""What 'make bench' runs in the guest: what was asked for, and no more."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
GIVEN = ("MIB", "FILES", "SHORT", "DATASETS", "TRANSFERS", "THREADS", "EXTRA")


def list_guest_settings(*settings: str) -> list[str]:
    """The variables that the guest would get, as 'make' prints its commands."""
    own = {name: value for name, value in os.environ.items() if name not in GIVEN}
    argv = ["make", "-n", "bench", "NAME=restore_files", *settings]
    done = subprocess.run(argv, cwd=ROOT, env=own, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (command,) = (line for line in done.stdout.splitlines() if "tests/bench/restore_files.py" in line)
    return re.findall(r"--env (\S+)", command)


def test_the_makefiles_own_variables_do_not_reach_the_guest() -> None:
    assert list_guest_settings() == []


def test_each_setting_reaches_the_guest() -> None:
    assert list_guest_settings(*(f"{name}=7" for name in GIVEN)) == [f"{name}=7" for name in GIVEN]
