"""What threads that ask the daemon have heard, for the one thread that has the screen."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Generic, TypeVar

S = TypeVar("S")


class ScreenNews(Generic[S]):
    """Changes of the screen's state. Any thread puts them; the screen's own makes them, in their order."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[S], None]] = queue.SimpleQueue()

    def put(self, change: Callable[[S], None]) -> None:
        """Have it made when the screen looks next."""
        self._queue.put(change)

    def take(self, state: S) -> bool:
        """Make what came since the last time; whether anything did."""
        took = False
        while not self._queue.empty():
            self._queue.get()(state)
            took = True
        return took
