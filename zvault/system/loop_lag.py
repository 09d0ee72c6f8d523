"""How long the event loop keeps whatever is due waiting: each turn of it is measured, not only those of a timer.

A loop that computes feeds no watchdog and answers no scrape. The loop's own selector sees both ends of each turn, so no
timer has to wake the daemon for it.
"""

from __future__ import annotations

import selectors
import time
from collections import deque
from collections.abc import Callable

LAG_SPAN = 60.0
"""Seconds for which the longest turn is remembered: as long as the usual intervals between scrapes, so none is missed.
"""

LAG_SPAN_PART = 10.0
"""Seconds that are remembered as one."""


class LagSelector(selectors.DefaultSelector):
    """Waits for files as the usual one does, and measures what lies between: what the loop does meanwhile; and how much
    later than asked it comes back, as while another thread has the interpreter.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._returned = clock()
        self._parts: deque[tuple[float, float]] = (
            deque()
        )  # when each part of the span began, and its longest turn

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for files to be ready, at most ``timeout`` seconds."""
        began = self._clock()
        self._note(began, began - self._returned)
        ready = super().select(timeout)
        self._returned = self._clock()
        if timeout is not None:
            self._note(self._returned, self._returned - began - max(timeout, 0.0))
        return ready

    def _note(self, now: float, seconds: float) -> None:
        if not self._parts or now - self._parts[-1][0] >= LAG_SPAN_PART:
            self._forget(now)
            self._parts.append((now, seconds))
        elif seconds > self._parts[-1][1]:
            self._parts[-1] = (self._parts[-1][0], seconds)

    def _forget(self, now: float) -> None:
        while self._parts and now - self._parts[0][0] >= LAG_SPAN + LAG_SPAN_PART:
            self._parts.popleft()

    def longest(self) -> float:
        """The longest that anything had to wait in the last minute, in seconds."""
        now = self._clock()
        self._forget(now)
        return max((seconds for _, seconds in self._parts), default=0.0)
