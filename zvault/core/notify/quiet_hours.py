"""Quiet hours: when a target is told of nothing but what is critical. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from zvault.core.replication.bandwidth import RateWindow, parse_time


@dataclass(frozen=True, slots=True)
class QuietHours:
    """From ``start`` to ``end``, in minutes since midnight by the wall clock; over midnight if it ends before."""

    start: int
    end: int

    def covers(self, local: datetime) -> bool:
        """True if a moment, in the time zone that counts, lies in them."""
        return RateWindow(None, self.start, self.end).covers(local)

    def __str__(self) -> str:
        return "-".join(f"{one // 60:02}:{one % 60:02}" for one in (self.start, self.end))


def parse_quiet(text: str) -> QuietHours:
    """Quiet hours as in ``22:00-07:00``. Raises ValueError."""
    start, dash, end = text.replace(" ", "").partition("-")
    if not dash:
        raise ValueError(f'{text!r} are no hours, as in "22:00-07:00"')
    found = QuietHours(parse_time(start), parse_time(end))
    if found.start == found.end:
        raise ValueError(f"{text!r} begins and ends at the same time")
    return found
