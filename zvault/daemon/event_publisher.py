"""What happens, told to whoever listens: the journal, the API's streams."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from zvault.api.events import Emit, ProgressMade, RunEvent, RunFinished
from zvault.ops.state.environment import WallClock

REMEMBERED_RUNS = 20
"""Runs whose events can still be replayed to one who comes late."""

REMEMBERED_EVENTS = 50_000
"""Events kept of all these together, some 25 MB; a dataset has about five. Of progress only the newest is kept."""

MOST_UNREAD_EVENTS = 10_000
"""Events a listener may leave unread before it counts as hung and is cut off."""

log = logging.getLogger(__name__)
E = TypeVar("E", bound=RunEvent)


class EventPublisher:
    """Publishes events; a slow listener loses nothing but progress, one that hangs is cut off."""

    def __init__(self) -> None:
        self._listeners: set[asyncio.Queue[RunEvent | None]] = set()
        self._past: OrderedDict[str, deque[RunEvent]] = OrderedDict()
        self._count = 0
        self.subscribers: list[tuple[type[RunEvent], Callable[[Any], None]]] = []

    def subscribe(self, kind: type[E], hear: Callable[[E], None]) -> None:
        """Have each event of a kind told to ``hear``, after those who subscribed before, and before anybody who
        follows. RunEvent stands for all kinds.
        """
        self.subscribers.append((kind, hear))

    def publish(self, event: RunEvent) -> None:
        """Tell everyone. Nothing that goes wrong with a listener comes back to the one who tells."""
        self._remember(event)
        for kind, hear in self.subscribers:
            try:
                if isinstance(event, kind):
                    hear(event)
            except Exception:
                log.exception("cannot note the event %s of run %s", event.name, event.run)
        for queue in tuple(self._listeners):
            if queue.qsize() >= MOST_UNREAD_EVENTS:
                self._cut_off(queue)
            elif not isinstance(event, ProgressMade) or queue.qsize() < 100:
                queue.put_nowait(event)

    def _cut_off(self, queue: asyncio.Queue[RunEvent | None]) -> None:
        self._listeners.discard(queue)
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(None)

    def _remember(self, event: RunEvent) -> None:
        past = self._past.setdefault(event.run, deque())
        if past and isinstance(event, ProgressMade) and isinstance(past[-1], ProgressMade):
            past.pop()
            self._count -= 1
        past.append(event)
        self._count += 1
        while len(self._past) > REMEMBERED_RUNS:
            self._forget_a_run()
        while self._count > REMEMBERED_EVENTS and len(self._past) > 1:
            self._forget_a_run()
        if self._count > REMEMBERED_EVENTS:
            past.popleft()
            self._count -= 1

    def _forget_a_run(self) -> None:
        """The oldest that has finished, if there is one; else the oldest."""
        over = (run for run, events in self._past.items() if isinstance(events[-1], RunFinished))
        self._count -= len(self._past.pop(next(over, next(iter(self._past)))))

    def knows(self, run: str) -> bool:
        """True if a run's events can be replayed."""
        return run in self._past

    def past(self, run: str) -> list[RunEvent] | None:
        """The events of a run so far; None where they are no longer remembered."""
        return list(self._past[run]) if run in self._past else None

    def newest(self) -> Iterator[RunEvent]:
        """All that is remembered, run by run, the newest first."""
        for events in reversed(list(self._past.values())):
            yield from reversed(list(events))

    async def follow(self, run: str | None) -> AsyncIterator[RunEvent]:
        """Every event from now on; of one run, those past as well, until it has finished.

        Ends early for one who leaves too much unread.
        """
        queue: asyncio.Queue[RunEvent | None] = asyncio.Queue()
        replay = deque(self._past.get(run, ()) if run else ())
        self._listeners.add(queue)
        try:
            while True:
                heard = replay.popleft() if replay else await queue.get()
                if heard is None:
                    return
                if run is None or heard.run == run:
                    yield heard
                    if run is not None and isinstance(heard, RunFinished):
                        return
        finally:
            self._listeners.discard(queue)


def make_emit(
    publish: Callable[[RunEvent], None], clock: WallClock, run: str, backup: Callable[[], str]
) -> Emit:
    """Make what tells ``publish`` of the events of one run, each with the time at which it is told, and the name that
    its ``backup`` has then.
    """

    def emit(event: RunEvent) -> None:
        publish(replace(event, run=run, backup=backup(), time=clock.time()))

    return emit
