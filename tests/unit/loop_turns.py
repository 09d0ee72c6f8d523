"""What each turn of an event loop takes of the processor: whatever computes in the loop is found by its name.

Counted is what the thread itself computes, by callback, so a machine that stands still for seconds is no fault.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
import types
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

MOST = 0.2
"""Seconds of the processor that no callback may take. What is meant is 50 ms, on a machine four times as fast."""


NAMED = 5
"""Callbacks that are named."""


@dataclass
class LoopTurns:
    """The longest callbacks: seconds of the processor, and what they were."""

    longest: list[tuple[float, str]] = field(default_factory=list)
    turns: int = 0

    @property
    def least(self) -> float:
        """From how many seconds on one is among them."""
        return self.longest[-1][0] if len(self.longest) == NAMED else 0.0

    def note(self, seconds: float, what: str) -> None:
        self.longest = sorted([*self.longest, (seconds, what)], reverse=True)[:NAMED]

    @property
    def worst(self) -> float:
        """Seconds of the longest."""
        return self.longest[0][0] if self.longest else 0.0

    def __str__(self) -> str:
        return "\n".join(f"{seconds:8.3f} s: {what}" for seconds, what in self.longest)


@contextlib.contextmanager
def measured_turns(monkeypatch: pytest.MonkeyPatch, *, tests_too: bool = True) -> Iterator[LoopTurns]:
    """Measure each callback of all event loops of this thread, for a block; ``tests_too``: also those of tasks that a
    test began.

    What is spent on looking for garbage is not counted: it goes by all that the tests before have left.
    """
    found, run, collecting = LoopTurns(), asyncio.Handle._run, _Collecting()

    def timed(handle: asyncio.Handle) -> None:
        callback = handle._callback
        task = getattr(callback, "__self__", None)
        coroutine = task.get_coro() if isinstance(task, asyncio.Task) else None
        if not tests_too and "/tests/" in getattr(getattr(coroutine, "cr_code", None), "co_filename", ""):
            run(handle)
            return
        began, collected = time.thread_time(), collecting.seconds
        try:
            run(handle)
        finally:
            seconds = time.thread_time() - began - (collecting.seconds - collected)
            if seconds > found.least:
                found.note(seconds, _place_of(task) if isinstance(task, asyncio.Task) else repr(callback))
            found.turns += 1

    monkeypatch.setattr(asyncio.Handle, "_run", timed)
    gc.callbacks.append(collecting)
    try:
        yield found
    finally:
        gc.callbacks.remove(collecting)
        monkeypatch.setattr(asyncio.Handle, "_run", run)


class _Collecting:
    """Seconds of the processor that were spent on looking for garbage, in whichever thread."""

    def __init__(self) -> None:
        self.seconds = self._began = 0.0

    def __call__(self, phase: str, _: object) -> None:
        now = time.thread_time()
        if phase == "start":
            self._began = now
        else:
            self.seconds += now - self._began


def _place_of(task: asyncio.Task[object]) -> str:
    """Where a task waits now, right after what it did: its coroutines, the outermost first."""
    coroutine, names = task.get_coro(), list[str]()
    while isinstance(coroutine, types.CoroutineType):
        line = f":{coroutine.cr_frame.f_lineno}" if coroutine.cr_frame is not None else ""
        names.append(f"{coroutine.__qualname__}{line}")
        coroutine = coroutine.cr_await
    return f"{task.get_name()} in {' > '.join(names)}"
