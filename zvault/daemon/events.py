"""What happens, told to whoever listens: the journal, the API's streams."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from typing import Any

Event = dict[str, Any]

REMEMBERED_RUNS = 20
"""Runs whose events can still be replayed to one who comes late."""

REMEMBERED_EVENTS = 2000
"""Events kept of one run; of its progress only the newest is."""


class Events:
    """Publishes events; a slow listener loses nothing but progress."""

    def __init__(self) -> None:
        self._listeners: set[asyncio.Queue[Event]] = set()
        self._past: OrderedDict[str, deque[Event]] = OrderedDict()
        self.hooks: list[Callable[[Event], None]] = []

    def publish(self, event: Event) -> None:
        """Tell everyone."""
        self._remember(event)
        for hook in self.hooks:
            hook(event)
        for queue in self._listeners:
            if event["event"] != "progress" or queue.qsize() < 100:
                queue.put_nowait(event)

    def _remember(self, event: Event) -> None:
        past = self._past.setdefault(event["run"], deque(maxlen=REMEMBERED_EVENTS))
        if past and event["event"] == "progress" == past[-1]["event"]:
            past.pop()
        past.append(event)
        while len(self._past) > REMEMBERED_RUNS:
            self._past.popitem(last=False)

    def knows(self, run: str) -> bool:
        """Whether a run's events can be replayed."""
        return run in self._past

    async def follow(self, run: str | None) -> AsyncIterator[Event]:
        """Every event from now on; of one run, those past as well, until it has finished."""
        queue: asyncio.Queue[Event] = asyncio.Queue()
        for event in self._past.get(run, ()) if run else ():
            queue.put_nowait(event)
        self._listeners.add(queue)
        try:
            while True:
                event = await queue.get()
                if run is None or event["run"] == run:
                    yield event
                    if run is not None and event["event"] == "run-finished":
                        return
        finally:
            self._listeners.discard(queue)
