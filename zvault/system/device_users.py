"""Who on this host has a block device open, as /proc shows them.

Only who may look into every process sees all of them, and zvaultd's unit may not (it has no CAP_SYS_PTRACE). So this
file is also the program that looks, in a unit of its own: it imports the standard library only.
"""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zvault.system.process.runner import ToolRunner

PROC = Path("/proc")
BLOCK = Path("/sys/class/block")

DEADLINE = 20.0
"""Seconds to look: a unit is started for it, and each process's open files are read."""

NAMED = 3
"""Users named in one message."""


def list_device_users(name: str, proc: Path = PROC, block: Path = BLOCK) -> list[str]:
    """List what has the block device ``name`` (as "rbd0") open, in words; what the kernel itself has open is not seen.

    A device is known by its number: its node may have been renamed or removed since.
    """
    try:
        number = (block / name / "dev").read_text().strip()
        found = [f"{one.name} lies on it" for one in sorted((block / name / "holders").glob("*"))]
    except OSError:
        return []
    for folder in sorted(proc.glob("[0-9]*"), key=lambda one: int(one.name)):
        with suppress(OSError):  # it may end meanwhile
            if any(_is_device(link, number) for link in folder.glob("fd/*")):
                comm = (folder / "comm").read_text(errors="replace").strip()
                found.append(f"{comm} (process {folder.name}, user {_user(folder.stat().st_uid)})")
    return found


def list_device_layers(name: str, block: Path = BLOCK) -> list[str]:
    """List the devices of this host that lie on ``name`` (as "nbd0"): those of dm by the name that their maker gave."""
    found = []
    for one in sorted((block / name / "holders").glob("*")):
        try:
            found.append((one / "dm" / "name").read_text().strip())
        except OSError:
            found.append(one.name)
    return found


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _is_device(link: Path, number: str) -> bool:
    """Only what lies in /dev is asked for its number: the file system of another file may not answer."""
    with suppress(OSError):
        if str(link.readlink()).startswith("/dev/"):
            device = link.stat().st_rdev
            return f"{os.major(device)}:{os.minor(device)}" == number
    return False


def device_users_argv(name: str) -> list[str]:
    """The program that prints what ``list_device_users`` finds, a line each, in a unit that may look into every
    process.
    """
    head = ["systemd-run", "--quiet", "--wait", "--pipe", "--collect", "--slice=zvault.slice"]
    return [*head, f"--description=who has {name} open", "--", sys.executable, "-I", "-S", __file__, name]


async def find_device_users(name: str, runner: ToolRunner) -> list[str]:
    """The same, of every process; of those that zvaultd may look into where no unit can be started."""
    from zvault.core.errors import ZvaultError

    with suppress(ZvaultError):
        result = await runner.run(device_users_argv(name), deadline=DEADLINE, check=False)
        if result.returncode == 0:
            return result.stdout.splitlines()
    return list_device_users(name)


def name_users(users: Sequence[str]) -> str:
    """Users in one line; empty where there are none."""
    more = f", and {len(users) - NAMED} more" if len(users) > NAMED else ""
    return ", ".join(users[:NAMED]) + more


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]
    sys.stdout.writelines(f"{line}\n" for line in list_device_users(sys.argv[1]))
