"""A scratch dataset, in which a receive is tried out: made, filled, received from, and always destroyed again.

Its source compresses to next to nothing, so that making and reading it costs the device nothing. Sent uncompressed and
received with ``compression=off`` it is written out in full: what is timed is a real stream and a real receive.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from zvault.core.errors import ToolFailed
from zvault.system.process.runner import Runner

NAME = "zvault-scratch"
MARK = "org.zvault:scratch"
DRILL, LOOK = "zvault-drill-", "zvault-look-"
SCRATCH_NAMES = (NAME, DRILL, LOOK)
"""What the last part of a scratch dataset's name begins with."""

DEADLINE = 120.0
PATIENCE = 60.0
"""Seconds for a receive that was killed to release its dataset."""


def scratch_of(pool: str) -> str:
    """The scratch dataset's name."""
    return f"{pool}/{NAME}"


def send_argv(pool: str) -> list[str]:
    """``zfs send`` of the source, uncompressed."""
    return ["zfs", "send", f"{scratch_of(pool)}/source@stream"]


def receive_argv(pool: str) -> list[str]:
    """``zfs receive`` that writes every byte, and is not resumable: what was stopped is gone."""
    off = [word for key in ("compression", "dedup") for word in ("-o", f"{key}=off")]
    return ["zfs", "receive", "-u", *off, f"{scratch_of(pool)}/copy"]


async def make(pool: str, mountpoint: Path, runner: Runner) -> Path:
    """Make the scratch dataset with an empty source; the file to be filled in it. Raises ToolFailed."""
    root = scratch_of(pool)
    await _zfs(runner, "create", "-u", "-o", "mountpoint=none", "-o", f"{MARK}={pool}", root)
    properties = {
        "mountpoint": str(mountpoint),
        "canmount": "on",
        "compression": "zstd",
        "recordsize": "128K",
    }
    options = [word for key, value in properties.items() for word in ("-o", f"{key}={value}")]
    await _zfs(runner, "create", *options, f"{root}/source")
    return mountpoint / "stream"


async def freeze(pool: str, runner: Runner) -> None:
    """Take the snapshot that is sent, once the file is there."""
    await _zfs(runner, "snapshot", f"{scratch_of(pool)}/source@stream")


async def drop_copy(pool: str, runner: Runner) -> None:
    """Destroy what was received; it need not be there."""
    await _destroy(f"{scratch_of(pool)}/copy", runner)


async def sweep(pool: str, runner: Runner) -> bool:
    """Destroy the scratch dataset, also one that a crash left; whether there was one.

    One that zvault did not make is left alone. Raises ToolFailed, DeadlineExceeded.
    """
    found = await runner.run(
        ["zfs", "get", "-H", "-o", "value,source", MARK, scratch_of(pool)], deadline=DEADLINE, check=False
    )
    if found.stdout.strip() != f"{pool}\tlocal":
        return False
    await _destroy(scratch_of(pool), runner)
    return True


async def sync(pool: str, runner: Runner, deadline: float) -> None:
    """Have all that is dirty written out. Raises DeadlineExceeded."""
    await runner.run(["zpool", "sync", pool], deadline=deadline)


async def _zfs(runner: Runner, *words: str) -> None:
    await runner.run(["zfs", *words], deadline=DEADLINE)


async def _destroy(dataset: str, runner: Runner) -> None:
    give_up = time.monotonic() + PATIENCE
    while True:
        done = await runner.run(["zfs", "destroy", "-r", dataset], deadline=DEADLINE, check=False)
        if done.returncode == 0 or "does not exist" in done.stderr:
            return
        if time.monotonic() >= give_up:
            raise ToolFailed(
                f"cannot destroy '{dataset}', which zvault made to try settings out",
                done.complaint(),
                f"'zfs destroy -r {dataset}' by hand",
            )
        await asyncio.sleep(0.5)
