"""The kernel's files of bcache: ``/sys/block/BACKING/bcache`` and ``/sys/fs/bcache/SET``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from zvault.core.errors import DeadlineExceeded, DeviceGone, ToolFailed, ToolMissing
from zvault.devices.layer import FoundLayer
from zvault.system.process.runner import ProcessRunner

BCACHE_SYS_BLOCK = Path("/sys/block")
SETS = Path("/sys/fs/bcache")

ATTACHED = ("clean", "dirty")
"""Values of ``state`` with a cache; without one it is "no cache"."""

BCACHE_WRITE_DEADLINE = 20.0
REGISTER_DEADLINE = 600.0
"""Seconds to register or attach a device: the kernel first replays the journal and walks the cache's whole index, and
may wait for a free bucket. In the lab a cache of 300 MiB took 30 s after many stops and starts."""
APPEAR_DEADLINE = 30.0
BCACHE_POLL = 0.1


def is_loaded() -> bool:
    """True if the kernel has bcache, and it is loaded."""
    return SETS.exists()


def find_control_folder(backing: str) -> Path:
    """The control files of a device, while it is registered."""
    return BCACHE_SYS_BLOCK / backing / "bcache"


def is_registered(backing: str) -> bool:
    """True if the kernel has a device as one of bcache's."""
    return find_control_folder(backing).exists()


def find_bcache_device(backing: str) -> str | None:
    """The bcache device's name, once it runs."""
    link = find_control_folder(backing) / "dev"
    return link.readlink().name if link.is_symlink() else None


def find_cache_set(backing: str) -> str | None:
    """The cache set that a device is attached to."""
    link = find_control_folder(backing) / "cache"
    return link.readlink().name if link.is_symlink() else None


def find_stopped_layer(backing: str, name: str | None) -> FoundLayer:
    """The state once the control files are gone: they vanish at the stop, the device when its last user closes it."""
    if name is None:
        return FoundLayer()
    there = (BCACHE_SYS_BLOCK / name / "slaves" / backing).exists()
    return FoundLayer("gone", f"{name} is gone", f"/dev/{name}" if there else None, present=there)


def read_bcache_file(path: Path) -> str | None:
    """One file; None if there is none."""
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return None


async def write_bcache_file(
    runner: ProcessRunner, path: Path, value: str, *, deadline: float = BCACHE_WRITE_DEADLINE
) -> None:
    """Write one file, in a child process, because it may wait for a device. Raises ToolFailed with the kernel's log."""
    argv = ["tee", "--", str(path)]
    result = await runner.run(argv, stdin=f"{value}\n".encode(), deadline=deadline, check=False)
    if result.returncode == 0:
        return
    log = await runner.run(["dmesg", "--notime"], deadline=10, check=False)
    words = [line for line in log.stdout.splitlines() if line.startswith("bcache: ")]
    why = f"{result.complaint()}; last line in the kernel's log: {words[-1] if words else 'none'}"
    raise ToolFailed(f"bcache refused {value!r} in {path}", why, "see the kernel's log")


async def settle_udev(runner: ProcessRunner, deadline: float) -> None:
    """Wait until udev has done what it has queued, so that it registers nothing afterwards (udevadm(8)).

    On a busy host it may go on longer than ``deadline`` seconds; a host may also have no udev.
    """
    argv = ["udevadm", "settle", f"--timeout={deadline:g}"]
    with suppress(ToolMissing, DeadlineExceeded):
        await runner.run(argv, deadline=deadline + 5, check=False)


async def wait_for_kernel(true: Callable[[], bool], what: str, what_next: str) -> None:
    """Wait for the kernel. Raises DeviceGone with ``what`` if it takes too long."""
    give_up = time.monotonic() + APPEAR_DEADLINE
    while not true():
        if time.monotonic() >= give_up:
            raise DeviceGone(what, f"the kernel did not do it within {APPEAR_DEADLINE:g} s", what_next)
        await asyncio.sleep(BCACHE_POLL)
