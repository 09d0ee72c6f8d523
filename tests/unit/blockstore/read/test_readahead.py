"""What is read ahead of whom."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.blockstore.read.readahead import (
    LEAST_AHEAD_BLOCKS,
    MOST_AHEAD_BLOCKS,
    USUAL_AHEAD_BLOCKS,
    ReadStreams,
)

FAR = 1 << 24


def asked(streams: ReadStreams, reads: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [one for read in reads if (one := streams.next(*read)) is not None]


def in_flight(starts: list[int], depth: int, seed: int) -> list[int]:
    """The order in which reads begin of which so many are under way at once."""
    chance, waiting, out = random.Random(seed), list(starts), []
    while waiting:
        out.append(waiting.pop(chance.randrange(min(depth, len(waiting)))))
    return out


def test_the_first_read_and_random_ones_ask_for_nothing():
    chance, streams = random.Random(1), ReadStreams()
    assert asked(streams, [(chance.randrange(FAR), 1) for _ in range(500)]) == []


@given(st.integers(0, FAR), st.integers(1, 256), st.integers(0, 100), st.integers(1, 16))
def test_a_sequential_reader_has_what_is_before_him_asked_for(
    first: int, count: int, seed: int, depth: int
) -> None:
    starts = [first + number * count for number in range(400)]
    spans = sorted(asked(ReadStreams(), [(at, count) for at in in_flight(starts, depth, seed)]))
    # At first, and where a read comes long after those beside it, he may be taken for two; what is asked for twice
    # is fetched once.
    later = [span for span in spans if span[0] >= first + 200 * count]
    covered = list(itertools.accumulate((at + number for at, number in later), max))
    assert later
    # A read that arrives before those that were sent before it may leave them out: they are on their way themselves.
    holes = [at - upto for upto, (at, _) in zip(covered, later[1:], strict=False) if at > upto]
    assert all(hole < depth * count for hole in holes), later
    assert sum(holes) <= (covered[-1] - later[0][0]) // 20, later
    assert sum(number for _, number in later) <= 3 * (covered[-1] - later[0][0])


@pytest.mark.parametrize("count", [32, 256])
def test_requests_are_few_once_he_has_read_much(count: int) -> None:
    spans = asked(ReadStreams(), [(at, count) for at in range(0, 1 << 18, count)])
    late = [number for first, number in spans if first > 1 << 16]
    assert min(late) >= MOST_AHEAD_BLOCKS // 2


def test_no_more_than_usual_is_asked_for_before_he_has_read_as_much():
    streams, read = ReadStreams(), 0
    for at in range(0, 4 * MOST_AHEAD_BLOCKS, 32):
        ahead = streams.next(at, 32)
        read = at + 32
        if ahead is not None:
            assert ahead[0] + ahead[1] - read <= max(USUAL_AHEAD_BLOCKS, read)


def test_who_leaps_gets_nothing():
    assert asked(ReadStreams(), [(at, 4) for at in range(0, 1 << 14, 32)]) == []


def test_who_was_sequential_and_then_leaps_is_let_go():
    streams = ReadStreams()
    asked(streams, [(at, 32) for at in range(0, 1 << 14, 32)])
    spans = asked(streams, [(at, 4) for at in range(1 << 14, 1 << 20, 64)])
    assert sum(number for _, number in spans) <= 3 * MOST_AHEAD_BLOCKS


def test_readers_that_read_at_the_same_time_share_the_memory():
    room, readers = 2 * MOST_AHEAD_BLOCKS, 8
    streams = ReadStreams(room)
    ahead = dict.fromkeys(range(readers), 0)
    for step in range(0, 1 << 15, 32):
        for who in range(readers):
            at = who * FAR + step
            if (span := streams.next(at, 32)) is not None and step > 1 << 14:
                ahead[who] = max(ahead[who], span[0] + span[1] - at)
    assert all(LEAST_AHEAD_BLOCKS <= most <= 2 * room // readers for most in ahead.values()), ahead
