"""The way of a backup's name to the program that receives its stream: each call on it, over all tasks, in order."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import zvault
from tests.unit.daemon.large_world import LargeWorld, ListedSide
from tests.unit.daemon.test_loop_is_free import sides_of
from tests.unit.daemon.test_month_run import UpVault
from zvault.core.errors import ToolMissing
from zvault.daemon.backup_runs import BackupRuns
from zvault.system.process.runner import HostRunner
from zvault.zfs.lzc_stream import StreamHelpers

MOST_HOPS = 12
"""Calls from the one who is told to start a backup to the one who starts ``zfs receive``."""

PACKAGE = Path(zvault.__file__).parent

BEGUN: dict[asyncio.Task[Any], list[str]] = {}
"""The calls by which each task was begun, over all tasks before it."""


def calls_of_zvault(frame: FrameType | None) -> list[str]:
    """The calls of zvault on the way to a frame, and to the task that it is in."""
    found: list[str] = []
    while frame is not None:
        if Path(frame.f_code.co_filename).is_relative_to(PACKAGE):
            found.append(frame.f_code.co_qualname)
        frame = frame.f_back
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return [*(BEGUN.get(task, []) if task is not None else []), *reversed(found)]


def begin_task(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **how: Any) -> Any:
    """Begin a task, and note where that is done."""
    calls = calls_of_zvault(sys._getframe(1))
    task = asyncio.Task(work, loop=loop, **how)
    BEGUN[task] = calls
    return task


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The calls that led to each pipeline that was begun; none of them gets any further."""
    found: list[list[str]] = []

    async def pipeline(*_: object, **__: object) -> object:
        found.append([*calls_of_zvault(sys._getframe(1)), HostRunner.pipeline.__qualname__])
        raise ToolMissing("zfs is not there")

    async def start(*_: object) -> object:
        raise ToolMissing("libzfs_core is not there")

    pipeline.__qualname__ = HostRunner.pipeline.__qualname__
    monkeypatch.setattr(HostRunner, "pipeline", pipeline)
    monkeypatch.setattr(StreamHelpers, "start", start)
    return found


def test_a_backups_name_comes_to_zfs_receive_in_a_dozen_plain_calls(
    tmp_path: Path, ways: list[list[str]]
) -> None:
    async def run() -> None:
        asyncio.get_running_loop().set_task_factory(begin_task)
        world = LargeWorld(tmp_path, *sides_of(tmp_path, 3, 1, datasets=2))
        (tmp_path / "after").mkdir()
        vaults: Any = UpVault(world, ListedSide(tmp_path / "after", "cold/host/tank", 2, range(1, 4)))
        runs = world.daemon.runs
        runs.vaults = vaults
        await runs.runner.current[runs.start("large", "hand")].task

    BEGUN.clear()
    asyncio.run(run())
    assert ways, "a stream was to be begun"
    for calls in ways:
        way = calls[calls.index(BackupRuns.start.__qualname__) :]
        told = "\n".join(way)
        assert len(way) - 1 <= MOST_HOPS, f"{len(way) - 1} calls after the first:\n{told}"
        assert not [one for one in way if "<locals>" in one or "<lambda>" in one], told
