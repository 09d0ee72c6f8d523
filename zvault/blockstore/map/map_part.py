"""A part of the map: where each of PART consecutive blocks is, kept as runs.

A run is consecutive blocks in consecutive slots of one segment, 10 bytes: a device of 128 KiB records takes less than
90 MiB a TiB. To change a part it is laid out block by block and gathered anew.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from zvault.blockstore.format import ZERO_SLOT, inflate_bounded

PART_BITS = 15
PART_BLOCKS = 1 << PART_BITS
"""Blocks a part: 128 MiB."""

LARGEST_PART = 10 * PART_BLOCKS + 1024
"""Bytes of a part that is deflated, at most."""
PART_RUNS = np.dtype([("start", "<u2"), ("less", "<u2"), ("segment", "<u4"), ("slot", "<u2")])
"""``less``: one less than the number of blocks, which may be all of PART."""


@dataclass(slots=True)
class DensePart:
    """A part block by block: the segment (0: the block was never written, or is zero) and the slot in it."""

    segment: np.ndarray
    slot: np.ndarray

    @classmethod
    def blank(cls) -> DensePart:
        """Return a part of which no block was ever written."""
        return cls(np.zeros(PART_BLOCKS, np.uint32), np.zeros(PART_BLOCKS, np.uint16))


class MapPart:
    """A part as runs; it is never changed."""

    __slots__ = ("runs",)

    def __init__(self, runs: np.ndarray) -> None:
        self.runs = runs

    @classmethod
    def blank(cls) -> MapPart:
        """Return a part of which no block was ever written."""
        return cls(np.zeros(0, PART_RUNS))

    @classmethod
    def of_dense(cls, dense: DensePart) -> MapPart:
        """Make the runs of a part that was laid out block by block."""
        segment, slot = dense.segment, dense.slot.astype(np.int32)
        breaks = np.flatnonzero((segment[1:] != segment[:-1]) | (slot[1:] != slot[:-1] + 1)) + 1
        starts = np.concatenate([[0], breaks])
        ends = np.concatenate([breaks, [PART_BLOCKS]])
        used = segment[starts] != 0
        starts, ends = starts[used], ends[used]
        runs = np.zeros(len(starts), PART_RUNS)
        runs["start"], runs["less"] = starts, ends - starts - 1
        runs["segment"], runs["slot"] = segment[starts], dense.slot[starts]
        return cls(runs)

    def dense(self) -> DensePart:
        """Lay the runs out block by block."""
        out = DensePart.blank()
        runs = self.runs
        if len(runs) == 0:
            return out
        counts = runs["less"].astype(np.int64) + 1
        before = np.cumsum(counts) - counts
        within = np.arange(counts.sum()) - np.repeat(before, counts)
        where = np.repeat(runs["start"].astype(np.int64), counts) + within
        out.segment[where] = np.repeat(runs["segment"], counts)
        out.slot[where] = (np.repeat(runs["slot"].astype(np.int64), counts) + within).astype(np.uint16)
        return out

    def find(self, first: int, count: int) -> Iterator[tuple[int, int, int, int]]:
        """Runs in a range of blocks of the part: (first block, blocks, segment, slot), segment 0 for what is zero."""
        starts = self.runs["start"]
        at, end = first, first + count
        index = max(0, int(starts.searchsorted(first, "right")) - 1)
        while at < end and index < len(starts):
            start, less, segment, slot = self.runs[index].item()
            stop = start + less + 1
            index += 1
            if stop <= at:
                continue
            if start >= end:
                break
            if start > at:
                yield at, start - at, 0, 0
                at = start
            until = min(stop, end)
            yield at, until - at, segment, slot + at - start
            at = until
        if at < end:
            yield at, end - at, 0, 0

    @property
    def nbytes(self) -> int:
        """The bytes of memory that it takes, about."""
        return int(self.runs.nbytes) + 200

    def as_bytes(self) -> bytes:
        """As a checkpoint holds it; by columns, which packs better."""
        columns = b"".join(np.ascontiguousarray(self.runs[name]).tobytes() for name in PART_RUNS.names or ())
        return zlib.compress(columns, 1)

    @classmethod
    def of_bytes(cls, data: bytes) -> MapPart:
        """Read back. Raises ValueError, zlib.error."""
        columns = inflate_bounded(data, PART_BLOCKS * PART_RUNS.itemsize)
        number, rest = divmod(len(columns), PART_RUNS.itemsize)
        if rest:
            raise ValueError(f"{len(columns)} bytes are no runs")
        runs, at = np.zeros(number, PART_RUNS), 0
        for name in PART_RUNS.names or ():
            kind = PART_RUNS[name]
            runs[name] = np.frombuffer(columns, kind, number, at)
            at += number * kind.itemsize
        ends = runs["start"].astype(np.int64) + runs["less"] + 1
        if (ends > PART_BLOCKS).any() or (ends[:-1] > runs["start"][1:]).any():
            raise ValueError("its runs lie over each other, or beyond its end")
        if (runs["slot"].astype(np.int64) + runs["less"] > ZERO_SLOT).any():
            raise ValueError("its runs lie beyond the end of a segment")
        return cls(runs)


@dataclass(slots=True)
class PartChange:
    """The changes of a stretch of the log to one part, in its order: ``blank`` all of it first, then block by block."""

    blank: bool
    blocks: np.ndarray
    segments: np.ndarray
    slots: np.ndarray

    def apply(self, dense: DensePart) -> tuple[np.ndarray, np.ndarray]:
        """Carry it out; the segments of all blocks before and after, to count by."""
        before = dense.segment.copy()
        if self.blank:
            dense.segment[:] = 0
            dense.slot[:] = 0
        # Where a block comes more than once numpy keeps the last.
        dense.segment[self.blocks] = self.segments
        dense.slot[self.blocks] = self.slots
        return before, dense.segment
