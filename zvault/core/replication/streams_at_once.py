"""How many streams go at once into a vault. Pure.

A receive waits for a transaction group of the vault at its begin and at its end, however little it brings. Receives
that run at once wait for the same groups. So on slow storage the number at once decides how long many small increments
take, and how many requests they cost. It follows from the time that the vault takes to write a group.
"""

from __future__ import annotations

from collections.abc import Iterable

from zvault.core.replication.small_streams import SMALL_STREAM

MOST_SMALL_STREAMS = 64
"""The most that go at once. ``transfers`` allows no more either."""

STREAM_PROCESSOR_TIME = 0.005
"""Seconds of one processor that a small stream takes at least. What a processor cannot begin while one group is
written, the next group takes, however many more are allowed at once."""

LEAST_GROUP, LARGEST_GROUP = 48 << 10, 16 << 20
"""Bytes written in a transaction group whose time counts. One with less changed nothing but the pool's labels; one with
more took most of its time for its bytes."""

GROUPS_JUDGED = 16
"""The newest of these groups; what the vault did long ago says nothing about now."""

FULL_SHARE = 0.75
"""Which of their times counts, from the shortest up: groups in which many streams begin or end are the slow ones."""


def estimate_sync_time(groups: Iterable[tuple[int, float]]) -> float | None:
    """The seconds that a pool takes to write a transaction group with little in it; None if no group tells.

    ``groups``: bytes and seconds of its newest groups, oldest first.
    """
    counted = [seconds for written, seconds in groups if LEAST_GROUP <= written <= LARGEST_GROUP]
    newest = sorted(counted[-GROUPS_JUDGED:])
    return newest[int(FULL_SHARE * (len(newest) - 1))] if newest else None


def is_small_stream(size: int | None) -> bool:
    """True if a stream of ``size`` bytes is over before its bytes count; False where the size is unknown."""
    return size is not None and size <= SMALL_STREAM


def count_small_streams(sync_time: float | None, processors: int, transfers: int) -> int:
    """How many small streams go at once into a vault: as many as its host can begin while it writes one group.

    ``sync_time``: see ``estimate_sync_time``; unknown, there are as many as of large ones. ``transfers``: how many of
    these there are; never fewer than that, and at most MOST_SMALL_STREAMS.
    """
    if sync_time is None:
        return transfers
    able = int(sync_time * processors / STREAM_PROCESSOR_TIME)
    return max(transfers, min(able, MOST_SMALL_STREAMS))
