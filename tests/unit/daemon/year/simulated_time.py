"""An event loop in which time passes by its timers alone: whenever nothing is left to do the next one is due."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from datetime import datetime, tzinfo
from typing import Any

from zvault.ops.state.environment import WallClock

PATIENCE = 10.0
"""Real seconds for something that no timer brings, such as an answer from a socket."""


class _Selector(selectors.DefaultSelector):
    """Waits for nothing: where no file is ready the loop's time goes on."""

    loop: SimulatedLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None or timeout < 0:
            ready = super().select(PATIENCE)
            assert ready, "nothing is left to wait for"
            return ready
        self.loop.now += timeout
        return []


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Deterministic: what is done in threads elsewhere is done at once, and no signal comes."""

    def __init__(self) -> None:
        self.now = 0.0
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self.now

    def run_in_executor(self, _: Any, func: Callable[..., Any], *args: Any) -> Any:
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    def add_signal_handler(self, sig: int, callback: Any, *args: Any) -> None:
        """Nobody sends one."""


class SimulatedClock(WallClock):
    """The host's clock: it goes on with the loop, and can be set."""

    def __init__(self, loop: SimulatedLoop, began: float) -> None:
        self.loop = loop
        self.ahead = began

    def time(self) -> float:
        return self.loop.now + self.ahead

    def monotonic(self) -> float:
        return self.loop.now

    def boottime(self) -> float:
        return self.loop.now

    def datetime_class(self) -> type[datetime]:
        """A ``datetime`` whose now is this clock's, for APScheduler, which is given none."""
        clock = self

        class Now(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> Any:
                return datetime.fromtimestamp(clock.time(), tz)

        return Now
