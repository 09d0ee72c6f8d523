"""Parts of the map, what the log says above them, and how live blocks are counted: against plain arrays."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.examples import cases
from zvault.blockstore.checkpoint import _change, _split
from zvault.blockstore.format import SEGMENT_TABLE, SLOT_BITS, ZERO_SLOT
from zvault.blockstore.map.log_overlay import LogOverlay
from zvault.blockstore.map.map_part import PART_BLOCKS, DensePart, MapPart
from zvault.blockstore.map.usage import PAGE_SEGMENTS, SegmentUsage

runs = st.lists(
    st.tuples(st.integers(0, PART_BLOCKS - 1), st.integers(1, 900), st.integers(0, 5), st.integers(0, 2000)),
    max_size=12,
)


def laid_out(found: list[tuple[int, int, int, int]]) -> DensePart:
    dense = DensePart.blank()
    for start, count, segment, slot in found:
        end = min(PART_BLOCKS, start + count)
        dense.segment[start:end] = segment
        dense.slot[start:end] = np.arange(slot, slot + end - start) if segment else 0
    return dense


@settings(deadline=None)
@given(runs, st.integers(0, PART_BLOCKS - 1), st.integers(1, PART_BLOCKS))
def test_runs_say_what_was_laid_out(found: list[tuple[int, int, int, int]], first: int, count: int) -> None:
    dense = laid_out(found)
    part = MapPart.of_bytes(MapPart.of_dense(dense).as_bytes())
    again = part.dense()
    assert (again.segment == dense.segment).all()
    assert (again.slot == dense.slot).all()
    count = min(count, PART_BLOCKS - first)
    at = first
    for start, number, segment, slot in part.find(first, count):
        assert start == at
        assert (dense.segment[start : start + number] == segment).all()
        if segment:
            assert (dense.slot[start : start + number] == np.arange(slot, slot + number)).all()
        at += number
    assert at == first + count


def test_a_full_part_of_large_records_is_small() -> None:
    records = [(block, 32, 1 + block // 2040, block % 2040) for block in range(0, PART_BLOCKS, 32)]
    part = MapPart.of_dense(laid_out(records))
    assert part.nbytes * 8192 < 200 << 20, "a TiB of 128 KiB records takes less than 200 MiB"


BORDERS = st.one_of(
    st.integers(0, 3 * PART_BLOCKS),
    st.sampled_from([0, PART_BLOCKS - 1, PART_BLOCKS, 2 * PART_BLOCKS - 1, 2 * PART_BLOCKS]),
)
entries = st.lists(
    st.tuples(BORDERS, st.sampled_from([1, 2, 40, PART_BLOCKS, 2 * PART_BLOCKS]), st.booleans()), max_size=8
)


@settings(deadline=None, max_examples=cases(50))
@given(entries, st.integers(0, 8))
def test_the_log_is_the_same_above_the_map_and_in_it(said: list[tuple[int, int, bool]], upto: int) -> None:
    wanted = np.zeros(6 * PART_BLOCKS, np.int64)
    overlay, tables = LogOverlay(), []
    for sequence, (block, length, zero) in enumerate(said, 1):
        count = length if zero else min(length, 2040)
        if zero:
            overlay.zero(block, count, sequence)
            wanted[block : block + count] = 0
        else:
            overlay.put(block, count, sequence << SLOT_BITS)
            wanted[block : block + count] = np.arange(count) + (sequence << SLOT_BITS)
        tables.append((sequence, np.array([(block, count, ZERO_SLOT if zero else 0)], SEGMENT_TABLE)))
    dense = {part: DensePart.blank() for part in range(6)}
    for sequence, table in tables[:upto]:
        split, sequences = _split(table, np.array([sequence]))
        for row in range(len(split)):
            part = int(split["block"][row]) // PART_BLOCKS
            _change(split[row : row + 1], sequences[row : row + 1]).apply(dense[part])
    for part in range(6):
        overlay.settle(part, upto)
        for low, count, position in overlay.find(part * PART_BLOCKS, PART_BLOCKS):
            here = wanted[part * PART_BLOCKS + low : part * PART_BLOCKS + low + count]
            if position < 0:
                found = dense[part].segment[low : low + count].astype(np.int64) << SLOT_BITS
                assert (found + dense[part].slot[low : low + count] == here).all()
            elif position & ZERO_SLOT == ZERO_SLOT:
                assert not here.any()
            else:
                assert (here == np.arange(position, position + count)).all()
    if upto >= len(said):
        assert len(overlay) == 0


@given(st.lists(st.lists(st.integers(0, 3 * PAGE_SEGMENTS), min_size=4, max_size=4), min_size=1, max_size=8))
def test_live_blocks_are_counted(states: list[list[int]]) -> None:
    usage, before = SegmentUsage(), np.zeros(4, np.uint32)
    for state in states:
        after = np.array(state, np.uint32)
        usage.count(before, after)
        before = after
    counted = Counter(number for number in states[-1] if number)
    assert {int(number): int(usage.live[number]) for number in np.flatnonzero(usage.live)} == dict(counted)
    again = SegmentUsage()
    for page in sorted(usage.changed):
        again.load_page(page, usage.page_bytes(page))
    assert {int(number): int(again.live[number]) for number in np.flatnonzero(again.live)} == dict(counted)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3000), st.sampled_from([1, 70, 200, 2000]), st.booleans()), max_size=60)
)
def test_many_spans_of_zeroes_in_one_part(said: list[tuple[int, int, bool]]) -> None:
    overlay, wanted = LogOverlay(), np.full(PART_BLOCKS, -1, np.int64)
    for sequence, (block, count, zero) in enumerate(said, 1):
        if zero:
            overlay.zero(block, count, sequence)
            wanted[block : block + count] = sequence << SLOT_BITS | ZERO_SLOT
        else:
            overlay.put(block, count, sequence << SLOT_BITS)
            wanted[block : block + count] = np.arange(count) + (sequence << SLOT_BITS)
    for low, count, position in overlay.find(0, 6000):
        here = wanted[low : low + count]
        same = position < 0 or position & ZERO_SLOT == ZERO_SLOT
        assert (here == (position if same else np.arange(position, position + count))).all()
