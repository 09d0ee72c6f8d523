"""When a pool will be full, at the pace at which it has filled of late. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from zvault.core.health.verdict import DAY_SECONDS

PACE_SPAN = 2 * DAY_SECONDS
"""Seconds over which the pace is taken."""

LEAST_PACE_SPAN = DAY_SECONDS
"""Seconds that must have been seen: a first full backup, or the hours of a day, are no pace."""

SAMPLE_INTERVAL = 1800.0
"""Seconds between samples."""

FULL_SOON_SPAN = 7 * DAY_SECONDS
"""A pool that is full within so many seconds is full soon."""

AMPLE_SHARE = 0.3
"""Share of a pool above which what is free is enough, whatever the pace."""


class FreeSpaceSample(NamedTuple):
    """The bytes that were free in a pool at a time, which is in seconds of a clock that nobody sets."""

    time: float
    free: int


def add_free_sample(samples: Sequence[FreeSpaceSample], new: FreeSpaceSample) -> tuple[FreeSpaceSample, ...]:
    """The samples with a new one, if it is time for one; without those that are too old, or from the future."""
    kept = tuple(one for one in samples if new.time - PACE_SPAN <= one.time <= new.time)
    return kept if kept and new.time - kept[-1].time < SAMPLE_INTERVAL else (*kept, new)


def predict_full(samples: Sequence[FreeSpaceSample], now: float) -> float | None:
    """Seconds until nothing is free, by a straight line through the samples; None where they tell of none."""
    kept = [one for one in samples if one.time >= now - PACE_SPAN]
    if not has_enough_samples(kept):
        return None
    mean_time = sum(one.time for one in kept) / len(kept)
    mean_free = sum(one.free for one in kept) / len(kept)
    spread = sum((one.time - mean_time) ** 2 for one in kept)
    pace = sum((one.time - mean_time) * (one.free - mean_free) for one in kept) / spread
    if pace >= 0:
        return None
    return max(0.0, mean_time - mean_free / pace - now)


def has_enough_samples(samples: Sequence[FreeSpaceSample]) -> bool:
    """True if samples span enough time to tell of a pace."""
    return bool(samples) and samples[-1].time - samples[0].time >= LEAST_PACE_SPAN
