"""Segments against the map: that they are there, say what the map says, and hold what their checksums say."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from zvault.blockstore.attach import add_segments
from zvault.blockstore.format import (
    LARGEST_SEGMENT,
    SEGMENT_SLOTS,
    SEGMENT_TAIL_SIZE,
    ZERO_SLOT,
    ObjectDamaged,
    Segment,
    decode_segment,
    is_slot_good,
    list_bad_slots,
    make_segment_key,
    make_slot_seed,
    parse_key_numbers,
)
from zvault.blockstore.log_tail import LogTail, read_segment
from zvault.blockstore.maintenance.check_report import StoreProblem, make_runs
from zvault.blockstore.map.blockmap import BlockMap
from zvault.blockstore.map.log_overlay import LogOverlay
from zvault.blockstore.map.map_part import PART_BITS
from zvault.blockstore.map.root import CheckpointRoot
from zvault.object_store.interface import ObjectMissing, ObjectStore


@dataclass(frozen=True, slots=True)
class SegmentJob:
    """A segment to look at: what the map has in it, and whether all of its slots are to be read."""

    sequence: int
    key: str
    runs: np.ndarray
    whole: bool


@dataclass(slots=True)
class SegmentResult:
    """The result of checking one segment. ``missing``: the object is not there."""

    job: SegmentJob
    verified: int = 0
    missing: bool = False
    problems: list[StoreProblem] = field(default_factory=list)


def group_by_segment(runs: np.ndarray) -> Iterator[np.ndarray]:
    """Rows ordered by segment, each segment's together."""
    if len(runs):
        yield from np.split(runs, np.flatnonzero(np.diff(runs["segment"])) + 1)


def check_segment(store: ObjectStore, identity: bytes, job: SegmentJob) -> SegmentResult:
    """Look at one segment. Raises StoreError."""
    done = SegmentResult(job)
    try:
        try:
            if job.whole:
                data = store.get(job.key, 0, LARGEST_SEGMENT)
                segment = _decoded(data, identity, job.key)
            else:
                data, segment = b"", read_segment(store, job.key, identity)
        except ObjectDamaged as error:
            _without_account(store, job, done, str(error.why))
            return done
    except ObjectMissing:
        done.missing = True
        return done
    wrong = _elsewhere(job.runs, segment)
    if len(wrong):
        why = "the map points to slots of it that hold other blocks, or none"
        done.problems.append(StoreProblem("position", job.key, why, wrong, True))
    if job.whole:
        done.verified = len(data)
        bad = list_bad_slots(data, segment)
        if bad:
            _damaged_slots(job, segment, bad, done)
    return done


def _decoded(data: bytes, identity: bytes, key: str) -> Segment:
    segment = decode_segment(data[-SEGMENT_TAIL_SIZE:], len(data), identity, key) or decode_segment(
        data, len(data), identity, key
    )
    if segment is None:
        raise ObjectDamaged(f"the segment {key} is damaged", "its table does not fit into it")
    return segment


def _without_account(store: ObjectStore, job: SegmentJob, done: SegmentResult, why: str) -> None:
    """What the map says of a segment is all that is known of it: look at each of those blocks."""
    data = store.get(job.key, 0, LARGEST_SEGMENT)
    done.verified = len(data)
    rows, epoch = [], parse_key_numbers(job.key)[1]
    for block, count, sequence, slot in job.runs.tolist():
        for index in range(count):
            if not is_slot_good(data, slot + index, make_slot_seed(sequence, epoch, block + index)):
                rows.append((block + index, 1, sequence, slot + index))
    many = sum(int(row["count"]) for row in job.runs)
    what = f"its own account is damaged ({why}); {many - len(rows)} of {many} live blocks can be read"
    done.problems.append(StoreProblem("segment", job.key, what, job.runs, numbers=(job.sequence,)))
    if rows:
        what = "it does not match its checksums"
        done.problems.append(StoreProblem("slots", job.key, what, make_runs(rows), True, (job.sequence,)))


def _blocks_of(segment: Segment) -> np.ndarray:
    """The block of each slot, -1 where there is none."""
    out = np.full(SEGMENT_SLOTS, -1, np.int64)
    table = segment.table[segment.table["slot"] != ZERO_SLOT]
    counts = table["count"].astype(np.int64)
    nth = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    out[np.repeat(table["slot"], counts) + nth] = np.repeat(table["block"].astype(np.int64), counts) + nth
    return out


def _elsewhere(runs: np.ndarray, segment: Segment) -> np.ndarray:
    """Runs that are not in a segment's table for those very blocks."""
    counts = runs["count"].astype(np.int64)
    nth = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    slots = np.repeat(runs["slot"].astype(np.int64), counts) + nth
    blocks = np.repeat(runs["block"].astype(np.int64), counts) + nth
    wrong = _blocks_of(segment)[slots] != blocks
    rows: np.ndarray = runs[np.unique(np.repeat(np.arange(len(runs)), counts)[wrong])]
    return rows


def _damaged_slots(job: SegmentJob, segment: Segment, bad: list[int], done: SegmentResult) -> None:
    blocks = _blocks_of(segment)
    rows = [(int(blocks[slot]), 1, segment.sequence, slot) for slot in bad]
    why = f"{len(bad)} of its {segment.slots} slots do not match their checksums"
    done.problems.append(StoreProblem("slots", job.key, why, make_runs(rows), True, (job.sequence,)))


class NewestView:
    """The newest checkpoint and the log after it: whether blocks are still where an older look saw them."""

    def __init__(
        self, store: ObjectStore, prefix: str, root: CheckpointRoot, rest: LogTail, memory: int
    ) -> None:
        self.blocks = BlockMap(store, prefix, root, memory, threading.Lock())
        self.overlay: LogOverlay = self.blocks.overlay
        add_segments(self.blocks, rest.segments)

    def still(self, runs: np.ndarray) -> np.ndarray:
        """Those of these runs, or the parts of them, that are where they were. Raises ObjectDamaged, StoreError."""
        rows = []
        for block, count, segment, slot in runs.tolist():
            for extent in self.blocks.locate(block, count):
                there = slot + extent.block - block
                if extent.sequence == segment and (extent.slot == there or segment == 0):
                    rows.append((extent.block, extent.count, segment, 0 if segment == 0 else there))
        return make_runs(rows)

    def select_untold(self, runs: np.ndarray) -> np.ndarray:
        """Return those blocks of damaged parts that the log does not tell of anew."""
        rows = []
        for block, count, _, _ in runs.tolist():
            for part_end in range(block, block + count, 1 << PART_BITS):
                many = min(1 << PART_BITS, block + count - part_end)
                base = part_end & ~((1 << PART_BITS) - 1)
                found = self.overlay.find(part_end, many)
                rows += [(base + low, number, 0, 0) for low, number, position in found if position < 0]
        return make_runs(rows)


def list_segment_jobs(
    runs: Iterator[np.ndarray], root: CheckpointRoot, prefix: str, chosen: set[int] | None
) -> Iterator[SegmentJob]:
    """One for each segment that the map points into; ``chosen`` are those to read whole, None: all."""
    for window in runs:
        for some in group_by_segment(window):
            sequence = int(some[0]["segment"])
            key = make_segment_key(prefix, sequence, root.epoch_of(sequence))
            yield SegmentJob(sequence, key, some, chosen is None or sequence in chosen)
