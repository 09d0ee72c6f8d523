"""Simulated time: tasks are generators that yield until when they sleep, or what they ask of the bucket."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Generator
from typing import Any, Protocol

GUARD_LATE = 1.0
"""Seconds after a sleep for which a host goes on before its guard looks: the worst case of who is scheduled first."""

Steps = Generator[Any, Any, Any]
"""What a task yields: seconds of true time to sleep until, or a request to the bucket; it is sent the answer."""


class Owner(Protocol):
    """The machine a task runs on."""

    asleep_until: float
    hung_until: float


class Task:
    """One thread of a host. ``daemon``: it stands still while zvaultd hangs."""

    def __init__(self, owner: Owner, steps: Steps, *, daemon: bool) -> None:
        self.owner = owner
        self.steps = steps
        self.daemon = daemon
        self.ended = False

    def runs_from(self, at: float) -> float:
        """When it can go on, if it is woken at this time."""
        if self.daemon:
            return max(at, self.owner.asleep_until, self.owner.hung_until)
        return max(at, self.owner.asleep_until + GUARD_LATE) if at < self.owner.asleep_until else at

    def end(self) -> None:
        """It is never woken again."""
        self.ended = True


class Timeline:
    """The events to come, in order."""

    def __init__(self) -> None:
        self.now = 0.0
        self.answer: Callable[[Task, Any], None] = lambda _task, _request: None
        self._events: list[tuple[float, int, Task | Callable[[], None], Any]] = []
        self._count = itertools.count()

    def spawn(self, task: Task) -> Task:
        """Start a task now."""
        self.wake(task, self.now)
        return task

    def wake(self, task: Task, at: float, value: object = None) -> None:
        """Let a task go on."""
        heapq.heappush(self._events, (at, next(self._count), task, value))

    def call(self, at: float, action: Callable[[], None]) -> None:
        """Do something at a time."""
        heapq.heappush(self._events, (at, next(self._count), action, None))

    def run(self, until: float) -> None:
        """Go on until a time."""
        events = self._events
        while events and events[0][0] <= until:
            at, _, what, value = heapq.heappop(events)
            self.now = at
            if not isinstance(what, Task):
                what()
            elif not what.ended:
                if (later := what.runs_from(at)) > at:
                    self.wake(what, later, value)
                else:
                    self._step(what, value)
        self.now = until

    def _step(self, task: Task, value: object) -> None:
        try:
            wanted = task.steps.send(value)
        except StopIteration:
            task.end()
            return
        if isinstance(wanted, (int, float)):
            self.wake(task, max(self.now, wanted))
        else:
            self.answer(task, wanted)
