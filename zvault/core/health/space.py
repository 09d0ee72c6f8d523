"""When a pool will be full, at the pace at which it has filled of late. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from zvault.core.health.verdict import DAY

OVER = 2 * DAY
"""Seconds over which the pace is taken."""

LEAST = DAY
"""Seconds that must have been seen: a first full backup, or the hours of a day, are no pace."""

EVERY = 1800.0
"""Seconds between samples."""

SOON = 7 * DAY
"""A pool that is full within so many seconds is full soon."""

SCARCE = 0.3
"""Share of a pool above which what is free is enough, whatever the pace."""


class Sample(NamedTuple):
    """The bytes that were free in a pool at a time, which is in seconds of a clock that nobody sets."""

    time: float
    free: int


def sampled(samples: Sequence[Sample], new: Sample) -> tuple[Sample, ...]:
    """The samples with a new one, if it is time for one; without those that are too old, or from the future."""
    kept = tuple(one for one in samples if new.time - OVER <= one.time <= new.time)
    return kept if kept and new.time - kept[-1].time < EVERY else (*kept, new)


def full_in(samples: Sequence[Sample], now: float) -> float | None:
    """Seconds until nothing is free, by a straight line through the samples; None where they tell of none."""
    kept = [one for one in samples if one.time >= now - OVER]
    if not told(kept):
        return None
    mean_time = sum(one.time for one in kept) / len(kept)
    mean_free = sum(one.free for one in kept) / len(kept)
    spread = sum((one.time - mean_time) ** 2 for one in kept)
    pace = sum((one.time - mean_time) * (one.free - mean_free) for one in kept) / spread
    if pace >= 0:
        return None
    return max(0.0, mean_time - mean_free / pace - now)


def told(samples: Sequence[Sample]) -> bool:
    """True if samples span enough time to tell of a pace."""
    return bool(samples) and samples[-1].time - samples[0].time >= LEAST
