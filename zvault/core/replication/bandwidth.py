"""How fast a backup may send, by the time of day. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

WEEKDAY_WORDS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@dataclass(frozen=True, slots=True)
class RateWindow:
    """A rate in bytes a second (None: no limit) for a time of day on some days; Monday is day 0.

    ``start`` and ``end`` are minutes since midnight by the wall clock. A window that ends before it starts goes over
    midnight and belongs to the day it starts on; with both the same it lasts the whole day.
    """

    rate: int | None
    start: int = 0
    end: int = 0
    days: frozenset[int] = frozenset(range(7))

    def covers(self, local: datetime) -> bool:
        """True if a moment, in the time zone that counts, lies in it."""
        minute, today = local.hour * 60 + local.minute, local.weekday()
        if self.start < self.end:
            return today in self.days and self.start <= minute < self.end
        if minute >= self.start:
            return today in self.days
        return minute < self.end and (today - 1) % 7 in self.days


@dataclass(frozen=True, slots=True)
class RateLimit:
    """Windows; the first that covers a moment counts, and where none does there is no limit."""

    windows: tuple[RateWindow, ...] = ()

    def rate(self, local: datetime) -> int | None:
        """Bytes a second at a moment in the time zone that counts; None without a limit."""
        return next((window.rate for window in self.windows if window.covers(local)), None)

    def __bool__(self) -> bool:
        """True if there is a limit at any time."""
        return any(window.rate is not None for window in self.windows)


ALLOWANCE_BURST = 0.5
"""Seconds' worth of bytes that may be saved up while no stream has use for them, and then be sent at once."""


@dataclass(slots=True)
class StreamAllowance:
    """The leave that streams get under a limit, in quanta of ``quantum`` bytes.

    ``most`` is how many can be kept ready: so many are when there is no limit.
    """

    quantum: int
    most: int
    _owed: float = 0.0

    def due(self, rate: int | None, seconds: float, ready: int) -> int:
        """Quanta to add to the ``ready`` ones, which nobody took yet; below zero, to take back.

        ``seconds`` have passed since the last time; ``rate`` is in bytes a second, None without a limit.
        """
        if rate is None:
            self._owed = 0.0
            return self.most - ready
        room = min(self.most, max(1, int(rate * ALLOWANCE_BURST / self.quantum))) - ready
        self._owed += rate * seconds / self.quantum
        given = int(self._owed)
        if given > room:
            # What nobody wanted in time is lost: else a lull would be followed by a flood.
            self._owed = 0.0
            return room
        self._owed -= given
        return given


def parse_time(text: str) -> int:
    """Minutes since midnight of ``08:00``; ``24:00`` is midnight too. Raises ValueError."""
    hours, colon, minutes = text.partition(":")
    if colon and len(minutes) == 2 and hours.isdecimal() and minutes.isdecimal():
        total = int(hours) * 60 + int(minutes)
        if int(minutes) < 60 and total <= 24 * 60:
            return total % (24 * 60)
    raise ValueError(f'{text!r} is no time of day, as in "08:00"')


def parse_days(text: str) -> frozenset[int]:
    """Weekdays of ``mon-fri``, ``sat,sun`` or ``fri-mon``. Raises ValueError."""
    found: set[int] = set()
    for part in text.lower().replace(" ", "").split(","):
        first, dash, last = part.partition("-")
        if first not in WEEKDAY_WORDS or (dash and last not in WEEKDAY_WORDS):
            raise ValueError(f'{text!r} names no days, as in "mon-fri" or "sat,sun"')
        day, end = WEEKDAY_WORDS.index(first), WEEKDAY_WORDS.index(last if dash else first)
        found.add(day)
        while day != end:
            day = (day + 1) % 7
            found.add(day)
    return frozenset(found)
