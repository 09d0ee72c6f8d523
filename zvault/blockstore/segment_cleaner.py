"""Cleaning segments (garbage collection, compaction): live blocks of mostly dead segments are written to the log anew.

Then nothing is live in them, and remove_objects.py removes them after a checkpoint.
"""

from __future__ import annotations

import threading
import time

import numpy as np

from zvault.blockstore.engine_state import LogProgress
from zvault.blockstore.format import (
    BLOCK_SIZE,
    SEGMENT_SLOTS,
    SLOT_SIZE,
    ZERO_SLOT,
    ObjectDamaged,
    Segment,
    make_segment_key,
    take_verified_slots,
)
from zvault.blockstore.log.log import SegmentLog
from zvault.blockstore.log_tail import read_segment
from zvault.blockstore.map.blockmap import BlockMap, PartsNotLoaded
from zvault.blockstore.map.map_part import PART_BLOCKS
from zvault.blockstore.map.usage import SegmentUsage
from zvault.object_store.interface import ObjectMissing, ObjectStore

ALLOWED_GARBAGE = 4 * SEGMENT_SLOTS * SLOT_SIZE
"""Bytes that may be stored in any case."""
SMALL_SEGMENT = SEGMENT_SLOTS * SLOT_SIZE // 4
"""A segment of fewer bytes is small: flushes made it, and many of them cost more requests than one."""
WASTED_SLOTS = 256
"""Slots that are read for nothing rather than with a request of their own."""
COLLECTION_LAG_SHARE = 1.2
"""So many times what may be stored is stored: then writers have to leave room for collecting."""
TOLERATED_SMALL_SEGMENTS = 64
"""So many small ones are left alone."""


def choose_segments_to_clear(usage: SegmentUsage, applied: int, allowed: float, dying: int) -> list[int]:
    """Segments to clear, the most worthwhile first. ``allowed``: stored bytes for each live one.

    ``dying``: bytes that are dead already and will be removed by themselves.
    """
    sequences = np.flatnonzero((usage.size > 0) & (usage.live > 0))
    sequences = sequences[sequences <= applied]
    size = usage.size[sequences].astype(np.int64)
    live = usage.live[sequences].astype(np.int64) * SLOT_SIZE
    excess = usage.stored_bytes - dying - allowed * usage.live_bytes - ALLOWED_GARBAGE
    order = np.argsort(live / np.maximum(size, 1), kind="stable")
    gain = np.cumsum((size - live)[order])
    found: list[int] = []
    if excess > 0:
        worth = order[(size - live)[order] * 20 > size[order]]
        found = sequences[worth[: int(np.searchsorted(gain[: len(worth)], excess)) + 1]].tolist()
    small = sequences[size < SMALL_SEGMENT]
    if len(small) > TOLERATED_SMALL_SEGMENTS:
        have = set(found)
        found += [
            number
            for number in small[: len(small) - TOLERATED_SMALL_SEGMENTS // 2].tolist()
            if number not in have
        ]
    return found


class SegmentCleaner:
    """Clears segments of one engine. Nothing here is called with its lock held."""

    def __init__(
        self,
        blocks: BlockMap,
        log: SegmentLog,
        progress: LogProgress,
        identity: bytes,
        changed: threading.Condition,
        rate: float,
    ) -> None:
        """``rate``: bytes a second at most."""
        self.blocks = blocks
        self.log = log
        self.progress = progress
        self.identity = identity
        self.changed = changed
        self.rate = rate
        self.store: ObjectStore = blocks.store
        self.moved_bytes = 0
        self.cleared = 0
        self.trouble: str | None = None
        """Why a segment cannot be cleared, of the last that could not."""
        self.refused: set[int] = set()

    def clear(self, sequence: int) -> bool:
        """Write a segment's live blocks anew; whether all of them. Raises StoreError."""
        root = self.blocks.root
        key = make_segment_key(self.blocks.prefix, sequence, root.epoch_of(sequence))
        began, before = time.monotonic(), self.moved_bytes
        try:
            segment = read_segment(self.store, key, self.identity, len(root.parts) * PART_BLOCKS)
            for blocks, slots in self._live(segment):
                self._move(key, segment, blocks, slots)
        except (ObjectDamaged, ObjectMissing) as error:
            # It stays: what can be read in it is read.
            self.trouble = str(error)
            self.refused.add(sequence)
            return False
        if self.moved_bytes == before:
            self.refused.add(sequence)  # what is live in it is lost
        self.cleared += 1
        pause = (self.moved_bytes - before) / self.rate - (time.monotonic() - began)
        if pause > 0 and self.log.limit > 1:
            time.sleep(min(pause, 1.0))
        return True

    def _live(self, segment: Segment) -> list[tuple[list[int], list[int]]]:
        """Blocks and slots of a segment that the map still points to, in pieces near each other."""
        out: list[tuple[list[int], list[int]]] = []
        for block, count, slot in segment.table.tolist():
            if slot == ZERO_SLOT:
                continue
            for extent in self.blocks.locate(block, count):
                shift = extent.block - block
                if extent.sequence != segment.sequence or extent.slot != slot + shift:
                    continue
                if not out or extent.slot - out[-1][1][-1] > WASTED_SLOTS:
                    out.append(([], []))
                out[-1][0].extend(range(extent.block, extent.block + extent.count))
                out[-1][1].extend(range(extent.slot, extent.slot + extent.count))
        return out

    def _move(self, key: str, segment: Segment, blocks: list[int], slots: list[int]) -> None:
        first, last = min(slots), max(slots)
        data = self.store.get(key, first * SLOT_SIZE, (last + 1 - first) * SLOT_SIZE)
        for block, slot in zip(blocks, slots, strict=True):
            taken = take_verified_slots(data, slot - first, [block], segment.sequence, segment.epoch)
            if taken is None:
                raise ObjectDamaged(
                    f"the segment {key} cannot be cleared", f"its slot {slot} is damaged", _NEXT
                )
            self._move_block(segment.sequence, block, slot, taken[0])

    def _move_block(self, sequence: int, block: int, slot: int, data: memoryview) -> None:
        while True:
            try:
                with self.changed:
                    while not self.log.room_for_garbage():
                        self.progress.wait()
                    extent = self.blocks.resolve(block, 1)[0]
                    if (extent.sequence, extent.slot) != (sequence, slot):
                        return
                    self.blocks.moved(block, 1, *self.log.place(block, data))
                    self.moved_bytes += BLOCK_SIZE
                    return
            except PartsNotLoaded as error:
                self.blocks.load(error.parts)


_NEXT = "run 'zvaultctl blockstore check'"
