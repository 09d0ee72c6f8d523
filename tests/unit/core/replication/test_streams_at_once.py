"""How many small streams go at once: by the time of a group, between what large ones have and the most."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.replication.small_streams import SMALL_STREAM
from zvault.core.replication.streams_at_once import (
    GROUPS_JUDGED,
    LARGEST_GROUP,
    LEAST_GROUP,
    MOST_SMALL_STREAMS,
    count_small_streams,
    estimate_sync_time,
    is_small_stream,
)

SECONDS = st.floats(0, 1000, allow_nan=False)
PROCESSORS = st.integers(1, 256)
TRANSFERS = st.integers(1, MOST_SMALL_STREAMS)


@given(st.none() | SECONDS, PROCESSORS, TRANSFERS)
def test_never_fewer_than_large_ones_and_never_more_than_the_most(
    sync_time: float | None, processors: int, transfers: int
) -> None:
    assert transfers <= count_small_streams(sync_time, processors, transfers) <= MOST_SMALL_STREAMS


@given(SECONDS, SECONDS, PROCESSORS, PROCESSORS, TRANSFERS)
def test_slower_storage_and_more_processors_never_mean_fewer(
    one: float, other: float, few: int, many: int, transfers: int
) -> None:
    fast, slow = sorted((one, other))
    less, more = sorted((few, many))
    assert count_small_streams(fast, less, transfers) <= count_small_streams(slow, more, transfers)


@pytest.mark.parametrize(
    ("sync_time", "processors", "count"),
    [
        (None, 64, 4),
        (0.002, 4, 4),
        (0.02, 4, 16),
        (0.3, 1, 60),
        (0.9, 1, 64),
    ],
)
def test_by_kind_of_storage(sync_time: float | None, processors: int, count: int) -> None:
    """Unknown, a disk of flash in this host, a disk that rotates, and storage behind a network."""
    assert count_small_streams(sync_time, processors, 4) == count


def test_a_stream_is_small_by_its_estimate() -> None:
    assert [is_small_stream(size) for size in (0, SMALL_STREAM, SMALL_STREAM + 1, None)] == [
        *(True, True, False, False)
    ]


GROUP = st.tuples(st.integers(0, 2 * LARGEST_GROUP), SECONDS)


@given(st.lists(GROUP))
def test_the_time_is_that_of_a_group_that_counts(groups: list[tuple[int, float]]) -> None:
    counted = [seconds for written, seconds in groups if LEAST_GROUP <= written <= LARGEST_GROUP]
    found = estimate_sync_time(groups)
    assert (found is None) == (not counted)
    assert found is None or found in counted[-GROUPS_JUDGED:]


@given(st.lists(GROUP, min_size=1), st.lists(SECONDS, min_size=GROUPS_JUDGED, max_size=GROUPS_JUDGED))
def test_what_was_long_ago_does_not_count(groups: list[tuple[int, float]], now: list[float]) -> None:
    newest = [(LEAST_GROUP, seconds) for seconds in now]
    assert estimate_sync_time([*groups, *newest]) == estimate_sync_time(newest)


def test_neither_idle_groups_nor_full_ones_count() -> None:
    assert estimate_sync_time([(12 << 10, 0.001), (1 << 30, 20.0)]) is None
    assert estimate_sync_time([(12 << 10, 0.001), (1 << 20, 0.3), (1 << 30, 20.0)]) == 0.3
