"""A scratch dataset, in which a receive is tried out: made, filled, received from, and always destroyed again.

Its source compresses to next to nothing, so that making and reading it costs the device nothing. Sent uncompressed and
received with ``compression=off`` it is written out in full: what is timed is a real stream and a real receive.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from zvault.core.errors import ToolFailed
from zvault.system.process.runner import ProcessRunner

TRIAL_DATASET_NAME = "zvault-scratch"
TRIAL_MARK = "org.zvault:scratch"
DRILL_PREFIX, LOOK_PREFIX = "zvault-drill-", "zvault-look-"
SCRATCH_NAMES = (TRIAL_DATASET_NAME, DRILL_PREFIX, LOOK_PREFIX)
"""What the last part of a scratch dataset's name begins with."""

TRIAL_DEADLINE = 120.0
TRIAL_PATIENCE = 60.0
"""Seconds for a receive that was killed to release its dataset."""


def name_scratch(pool: str) -> str:
    """The scratch dataset's name."""
    return f"{pool}/{TRIAL_DATASET_NAME}"


def trial_send_argv(pool: str) -> list[str]:
    """``zfs send`` of the source, uncompressed."""
    return ["zfs", "send", f"{name_scratch(pool)}/source@stream"]


def trial_receive_argv(pool: str) -> list[str]:
    """``zfs receive`` that writes every byte, and is not resumable: what was stopped is gone."""
    off = [word for key in ("compression", "dedup") for word in ("-o", f"{key}=off")]
    return ["zfs", "receive", "-u", *off, f"{name_scratch(pool)}/copy"]


def trial_keep_argv(pool: str) -> list[str]:
    """The same receive of a copy that is then read: nothing of it stays in memory, where a send would find it."""
    *argv, dataset = trial_receive_argv(pool)
    return [*argv, "-o", "primarycache=metadata", dataset]


def trial_read_argv(pool: str) -> list[str]:
    """``zfs send`` of that copy."""
    return ["zfs", "send", f"{name_scratch(pool)}/copy@stream"]


async def make_scratch(pool: str, mountpoint: Path, runner: ProcessRunner) -> Path:
    """Make the scratch dataset with an empty source; the file to be filled in it. Raises ToolFailed."""
    root = name_scratch(pool)
    await _zfs(runner, "create", "-u", "-o", "mountpoint=none", "-o", f"{TRIAL_MARK}={pool}", root)
    properties = {
        "mountpoint": str(mountpoint),
        "canmount": "on",
        "compression": "zstd",
        "recordsize": "128K",
    }
    options = [word for key, value in properties.items() for word in ("-o", f"{key}={value}")]
    await _zfs(runner, "create", *options, f"{root}/source")
    return mountpoint / "stream"


async def freeze_scratch(pool: str, runner: ProcessRunner) -> None:
    """Take the snapshot that is sent, once the file is there."""
    await _zfs(runner, "snapshot", f"{name_scratch(pool)}/source@stream")


async def drop_scratch_copy(pool: str, runner: ProcessRunner) -> None:
    """Destroy what was received; it need not be there."""
    await _destroy(f"{name_scratch(pool)}/copy", runner)


async def sweep_scratch(pool: str, runner: ProcessRunner) -> bool:
    """Destroy the scratch dataset, also one that a crash left; whether there was one.

    One that zvault did not make is left alone. Raises ToolFailed, DeadlineExceeded.
    """
    found = await runner.run(
        ["zfs", "get", "-H", "-o", "value,source", TRIAL_MARK, name_scratch(pool)],
        deadline=TRIAL_DEADLINE,
        check=False,
    )
    if found.stdout.strip() != f"{pool}\tlocal":
        return False
    await _destroy(name_scratch(pool), runner)
    return True


async def sync_pool(pool: str, runner: ProcessRunner, deadline: float) -> None:
    """Have all that is dirty written out. Raises DeadlineExceeded."""
    await runner.run(["zpool", "sync", pool], deadline=deadline)


async def _zfs(runner: ProcessRunner, *words: str) -> None:
    await runner.run(["zfs", *words], deadline=TRIAL_DEADLINE)


async def _destroy(dataset: str, runner: ProcessRunner) -> None:
    give_up = time.monotonic() + TRIAL_PATIENCE
    while True:
        done = await runner.run(["zfs", "destroy", "-r", dataset], deadline=TRIAL_DEADLINE, check=False)
        if done.returncode == 0 or "does not exist" in done.stderr:
            return
        if time.monotonic() >= give_up:
            raise ToolFailed(
                f"cannot destroy '{dataset}', which zvault made to try settings out",
                done.complaint(),
                f"'zfs destroy -r {dataset}' by hand",
            )
        await asyncio.sleep(0.5)
