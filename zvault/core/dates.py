"""Whether a date of what is over can be believed: clocks are set, and were wrong."""

from __future__ import annotations

CLOCK_TOLERANCE = 300.0
"""Seconds that a date may be later than now: clocks of two hosts differ, and are set."""


def reject_future(date: float | None, now: float) -> float | None:
    """A date, in seconds since the epoch, of what is over; None where it is later than ``now``: then it is none."""
    return min(date, now) if date is not None and date <= now + CLOCK_TOLERANCE else None
