"""The kernel's ring of events, and whoever reads it, in memory, for tests of what follows events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import Any

from tests.unit.zfs.event_pool import FakePool
from zvault.core.errors import ToolFailed
from zvault.system.process.json_child import JsonChild
from zvault.system.process.pipeline import HearStage, Pipeline
from zvault.system.process.runner import ProcessResult
from zvault.zfs.change_feed import ChangeFeed
from zvault.zfs.pool.event_reader import ChangeReader, KernelEvent


class FakeRing:
    """A reader's place among the pool's events, as fm.c keeps it."""

    def __init__(self, pool: FakePool) -> None:
        self._pool = pool
        self._at: int | None = None
        self._dropped = 0

    def _fall_off(self) -> None:
        if self._at is not None and self._at not in self._numbers():
            self._at = None
            self._dropped += 1

    def _numbers(self) -> list[int]:
        return [event.number for event in self._pool.events]

    def seek(self, number: int) -> bool:
        self._fall_off()
        if number not in self._numbers():
            return False
        self._at = number
        return True

    def next(self) -> tuple[KernelEvent, int] | None:
        self._fall_off()
        later = [event for event in self._pool.events if self._at is None or event.number > self._at]
        if not later:
            return None
        self._at, dropped, self._dropped = later[0].number, self._dropped, 0
        return later[0], dropped

    def failures(self) -> int:
        return self._pool.failures

    def complete(self) -> bool:
        return self._pool.complete


class FakeChild(JsonChild):
    """The feed's child, in this process."""

    def __init__(self, pool: FakePool) -> None:
        self.reader = ChangeReader(FakeRing(pool))
        self.killed = False

    async def ask(self, question: object, deadline: float) -> dict[str, Any]:
        await asyncio.sleep(0)
        if self.killed:
            raise ToolFailed("the child ended")
        return self.reader.take().document()

    async def close(self) -> None:
        self.killed = True


class FakeFeed(ChangeFeed):
    """The feed, with its child in this process. ``startable``: whether another child can be started."""

    def __init__(self, pool: FakePool) -> None:
        super().__init__(Path("/nowhere"))
        self.pool = pool
        self.startable = True
        self._child: FakeChild | None = FakeChild(pool)

    @property
    def reader(self) -> ChangeReader | None:
        return self._child.reader if self._child is not None and not self._child.killed else None

    def kill(self) -> None:
        """The child is killed, and no other one can be started."""
        self.startable = False
        if self._child is not None:
            self._child.killed = True

    def restart(self) -> None:
        """The child is killed, and another one is started as soon as that is seen."""
        self.kill()
        self.startable = True

    async def _ready_child(self) -> FakeChild | None:
        if self._child is None and self.startable:
            self._child = FakeChild(self.pool)
        return self._child


class FakeTools:
    """A Runner of that ``zfs``. ``meanwhile`` is called before each program."""

    def __init__(self, pool: FakePool, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.pool = pool
        self.meanwhile = meanwhile
        self.started: list[Sequence[str]] = []

    async def run(
        self,
        argv: Sequence[str],
        *,
        deadline: float = 60.0,
        stdin: bytes | None = None,
        check: bool = True,
    ) -> ProcessResult:
        await asyncio.sleep(0)
        self.meanwhile()
        self.started.append(argv)
        code, out, err = self.pool.answer(argv)
        if check and code:
            raise ToolFailed("failed", err)
        return ProcessResult(tuple(argv), code, out, err, 0.0)

    async def pipeline(
        self, stages: Sequence[Sequence[str]], hear: HearStage | None = None, *, nobody: Container[str] = ()
    ) -> Pipeline:
        raise AssertionError("no stream was asked for")
