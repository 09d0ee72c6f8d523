"""Decides what to measure of a device next, and finds the best request size and queue depth in the measurements.

The search for the depth starts at 1 and stops when deeper gains nothing: a queue that is too deep is harmful
(docs/explanation/tuning.md), and measuring it only costs time. candidates.py turns the result into parameters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

UNMERGED_WRITE = 128 << 10
"""Bytes: size of an unmerged write, OpenZFS's default recordsize."""

FIRST_SIZE = 1 << 20
"""Request size in bytes while searching for the depth: large enough for most devices, and quick to measure."""

LARGEST_MERGED = 16 << 20
"""Bytes: the largest request that OpenZFS merges, SPA_MAXBLOCKSIZE."""

DEEPEST_QUEUE = 128
"""Maximum depth that is tried; no storage seen so far needed more."""

DEPTH_GAIN = 1.1
"""Doubling the depth must multiply the bandwidth by at least this."""

SIZE_GAIN = 1.15
"""Doubling the size must multiply the bandwidth by at least this, because other requests wait twice as long behind it.
Slow disks that work on 4 requests at once, each 35 ms and its bytes at 60 MB/s, gain 20 % from 4 to 8 MiB, 11 % from
8 to 16 MiB."""

ENOUGH_BANDWIDTH = 0.9
"""The smallest request size with at least this share of the best bandwidth is chosen."""

DISTURBED_SHARE = 0.9
"""With less than this share of a smaller or shallower point's bandwidth, a point was disturbed or is harmful."""

IoDirection = Literal["read", "write"]


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """Requests of ``size`` bytes, ``depth`` in flight: ``bandwidth`` in bytes a second, ``latency`` in seconds."""

    size: int
    depth: int
    bandwidth: float
    latency: float


@dataclass(frozen=True, slots=True)
class BandwidthKnee:
    """The point beyond which more size or depth gains nothing: ``size`` in bytes, ``depth``, ``bandwidth``.

    ``alone``: one request of that size at a time, or of the nearest size measured at depth 1. ``small``: requests of
    SMALL bytes one at a time; ``unmerged``: the same at ``depth``. ``slots``: how many requests the device works on in
    parallel, by Little's law.
    """

    size: int
    depth: int
    bandwidth: float
    slots: float
    alone: MeasuredPoint
    small: MeasuredPoint
    unmerged: MeasuredPoint


MeasuredPoints = Mapping[tuple[int, int], MeasuredPoint]


def index_points(points: Iterable[MeasuredPoint]) -> dict[tuple[int, int], MeasuredPoint]:
    """Points by size and depth."""
    return {(one.size, one.depth): one for one in points}


def choose_next_point(points: MeasuredPoints, largest: int = LARGEST_MERGED) -> tuple[int, int] | None:
    """Size and depth to measure next; None when enough is known.

    ``largest`` is the device's maximum request size in bytes.
    """
    largest = min(largest, LARGEST_MERGED)
    small, first = min(UNMERGED_WRITE, largest), min(FIRST_SIZE, largest)
    wanted = [(small, 1), *_depths(points, first)]
    if all(place in points for place in wanted):
        depth = _depth(points, first)
        wanted += [(small, depth), (first, depth), *_sizes(points, first, depth, largest)]
    return next((place for place in wanted if place not in points), None)


def is_doubtful(points: MeasuredPoints, place: tuple[int, int]) -> bool:
    """True if to measure a point again and keep the better result, because it was slower than a smaller one.

    The device is rarely the cause. Other users of the device or the processor could end the search too early.
    """
    size, depth = place
    below = (points.get((size // 2, depth)), points.get((size, depth // 2)))
    return any(one is not None and points[place].bandwidth < DISTURBED_SHARE * one.bandwidth for one in below)


def find_knee(points: MeasuredPoints, largest: int = LARGEST_MERGED) -> BandwidthKnee:
    """The result of a finished search. Raises ValueError if it is not finished."""
    largest = min(largest, LARGEST_MERGED)
    if choose_next_point(points, largest) is not None:
        raise ValueError("the measurement is not finished")
    small, first = min(UNMERGED_WRITE, largest), min(FIRST_SIZE, largest)
    depth = _depth(points, first)
    sizes = _gained(points, first, _sizes(points, first, depth, largest))
    tried = [points[place] for place in ((small, depth), (first, depth), *sizes)]
    best = max(one.bandwidth for one in tried)
    taken = next(one for one in tried if one.bandwidth >= ENOUGH_BANDWIDTH * best)
    return BandwidthKnee(
        taken.size,
        depth,
        taken.bandwidth,
        _slots(points, first),
        points[first, 1],
        points[small, 1],
        points[small, depth],
    )


def _deeper_gains(points: MeasuredPoints, size: int, depth: int) -> bool:
    return points[size, depth].bandwidth >= DEPTH_GAIN * points[size, depth // 2].bandwidth


def _larger_gains(points: MeasuredPoints, size: int, larger: int, depth: int) -> bool:
    """True if each doubling of the size multiplies the bandwidth by LARGER."""
    needed = SIZE_GAIN ** math.log2(larger // size)
    return (larger, depth) in points and points[larger, depth].bandwidth >= needed * points[
        size, depth
    ].bandwidth


def _depths(points: MeasuredPoints, size: int) -> list[tuple[int, int]]:
    """1, 2, 4… up to the first that gains nothing."""
    found, depth = [(size, 1)], 1
    while 2 * depth <= DEEPEST_QUEUE and (size, depth) in points:
        if depth > 1 and not _deeper_gains(points, size, depth):
            break
        depth *= 2
        found.append((size, depth))
    return found


def _sizes(points: MeasuredPoints, size: int, depth: int, largest: int) -> list[tuple[int, int]]:
    """Double the size until two sizes in a row gain nothing: one of them may have been disturbed."""
    found: list[tuple[int, int]] = []
    gained = size
    while 2 * size <= largest and size < 4 * gained and (size, depth) in points:
        size *= 2
        found.append((size, depth))
        if _larger_gains(points, gained, size, depth):
            gained = size
    return found


def _gained(points: MeasuredPoints, first: int, sizes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The sizes that gained over all smaller ones."""
    found, best = [], first
    for size, depth in sizes:
        if _larger_gains(points, best, size, depth):
            found.append((size, depth))
            best = size
    return found


def _slots(points: MeasuredPoints, size: int) -> float:
    """Little's law: requests a second, times the seconds that a single request takes."""
    alone = points[size, 1]
    best = max(points[place].bandwidth for place in _depths(points, size))
    return best / size * alone.latency


def _depth(points: MeasuredPoints, size: int) -> int:
    """The number of requests that the device works on in parallel, limited to the depths that gained."""
    gained = 1
    for _, depth in _depths(points, size)[1:]:
        if _deeper_gains(points, size, depth):
            gained = depth
    # A measurement of a few seconds may be wrong by a quarter of a request.
    return max(1, gained // 2 + 1 if gained > 1 else 1, min(gained, math.ceil(_slots(points, size) - 0.25)))
