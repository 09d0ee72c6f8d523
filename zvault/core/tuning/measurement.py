"""What to measure of a device next, and what the measurement says: how large requests should be, and how many at once.

The number of requests at once is searched from below, and no further than it gains: a queue that is too deep
is harmful (docs/explanation/tuning.md), and measuring it only costs time. What follows from it is in settings.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

SMALL = 128 << 10
"""Bytes: what OpenZFS writes where it merges nothing, its default recordsize."""

FIRST = 1 << 20
"""Bytes of a request with which the depth is searched: large enough for most, and soon done."""

LARGEST = 16 << 20
"""Bytes: OpenZFS merges no more, SPA_MAXBLOCKSIZE."""

DEEPEST = 128
"""Requests at once: more are neither tried nor needed by any storage that was seen."""

GAIN = 1.1
"""Twice the depth has to bring at least so much to be worth it."""

LARGER = 1.25
"""So much twice the size has to bring: it takes as long again to gather, and others wait behind it."""

ENOUGH = 0.9
"""The smallest request that has this part of the bandwidth of the largest that gained is taken."""

LESS = 0.9
"""What has less than this part of a smaller or shallower one's bandwidth was disturbed, or is harmful."""

Way = Literal["read", "write"]


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """Requests of ``size`` bytes, ``depth`` at once: ``bandwidth`` in bytes a second, ``latency`` in seconds each."""

    size: int
    depth: int
    bandwidth: float
    latency: float


@dataclass(frozen=True, slots=True)
class Knee:
    """Where more brings no more: requests of ``size`` bytes, ``depth`` at once, have ``bandwidth``.

    ``alone`` is the point of one request of that size at a time, or of the nearest size that was measured so;
    ``small`` that of SMALL bytes one at a time, and ``unmerged`` the same at ``depth``. ``slots`` is how many requests
    the device works on side by side, by Little's law.
    """

    size: int
    depth: int
    bandwidth: float
    slots: float
    alone: MeasuredPoint
    small: MeasuredPoint
    unmerged: MeasuredPoint


Points = Mapping[tuple[int, int], MeasuredPoint]


def by_place(points: Iterable[MeasuredPoint]) -> dict[tuple[int, int], MeasuredPoint]:
    """Points by size and depth."""
    return {(one.size, one.depth): one for one in points}


def next_place(points: Points, largest: int = LARGEST) -> tuple[int, int] | None:
    """Size and depth to measure next; None when enough is known.

    ``largest`` is the most bytes that the device takes in a request.
    """
    largest = min(largest, LARGEST)
    small, first = min(SMALL, largest), min(FIRST, largest)
    wanted = [(small, 1), *_depths(points, first)]
    if all(place in points for place in wanted):
        depth = _depth(points, first)
        wanted += [(small, depth), (first, depth), *_sizes(points, first, depth, largest)]
    return next((place for place in wanted if place not in points), None)


def doubtful(points: Points, place: tuple[int, int]) -> bool:
    """Whether a point should be measured again, and the better of the two taken: more at once, or larger, had less.

    Seldom is that the device's doing. Who else uses it or the processor for a moment would end the search too early.
    """
    size, depth = place
    below = (points.get((size // 2, depth)), points.get((size, depth // 2)))
    return any(one is not None and points[place].bandwidth < LESS * one.bandwidth for one in below)


def knee(points: Points, largest: int = LARGEST) -> Knee:
    """What a finished search says. Raises ValueError for one that is not."""
    largest = min(largest, LARGEST)
    if next_place(points, largest) is not None:
        raise ValueError("the measurement is not finished")
    small, first = min(SMALL, largest), min(FIRST, largest)
    depth = _depth(points, first)
    sizes = _gained(points, first, _sizes(points, first, depth, largest))
    tried = [points[place] for place in ((small, depth), (first, depth), *sizes)]
    best = max(one.bandwidth for one in tried)
    taken = next(one for one in tried if one.bandwidth >= ENOUGH * best)
    return Knee(
        taken.size,
        depth,
        taken.bandwidth,
        _slots(points, first),
        points[first, 1],
        points[small, 1],
        points[small, depth],
    )


def _deeper_gains(points: Points, size: int, depth: int) -> bool:
    return points[size, depth].bandwidth >= GAIN * points[size, depth // 2].bandwidth


def _larger_gains(points: Points, size: int, larger: int, depth: int) -> bool:
    """Whether it gains LARGER with each doubling."""
    needed = LARGER ** math.log2(larger // size)
    return (larger, depth) in points and points[larger, depth].bandwidth >= needed * points[
        size, depth
    ].bandwidth


def _depths(points: Points, size: int) -> list[tuple[int, int]]:
    """1, 2, 4… up to the first that gains nothing."""
    found, depth = [(size, 1)], 1
    while 2 * depth <= DEEPEST and (size, depth) in points:
        if depth > 1 and not _deeper_gains(points, size, depth):
            break
        depth *= 2
        found.append((size, depth))
    return found


def _sizes(points: Points, size: int, depth: int, largest: int) -> list[tuple[int, int]]:
    """Twice the size, and again, until two in a row gain nothing: one may have been disturbed."""
    found: list[tuple[int, int]] = []
    gained = size
    while 2 * size <= largest and size < 4 * gained and (size, depth) in points:
        size *= 2
        found.append((size, depth))
        if _larger_gains(points, gained, size, depth):
            gained = size
    return found


def _gained(points: Points, first: int, sizes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Those of the sizes that gained over all before."""
    found, best = [], first
    for size, depth in sizes:
        if _larger_gains(points, best, size, depth):
            found.append((size, depth))
            best = size
    return found


def _slots(points: Points, size: int) -> float:
    """Little's law: as many as arrive in a second, times the seconds each takes when it is alone."""
    alone = points[size, 1]
    best = max(points[place].bandwidth for place in _depths(points, size))
    return best / size * alone.latency


def _depth(points: Points, size: int) -> int:
    """As many at once as the device works on side by side, within the depths that gained."""
    gained = 1
    for _, depth in _depths(points, size)[1:]:
        if _deeper_gains(points, size, depth):
            gained = depth
    # A quarter of a request is what a measurement of seconds may be wrong by.
    return max(1, gained // 2 + 1 if gained > 1 else 1, min(gained, math.ceil(_slots(points, size) - 0.25)))
