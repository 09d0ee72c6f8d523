"""A segment that is being filled, or waits to be uploaded."""

from __future__ import annotations

import time

import numpy as np

from zvault.blockstore.format import (
    BLOCK_SIZE,
    LARGEST_SEGMENT,
    MOST_TABLE_ENTRIES,
    SEGMENT_SLOTS,
    SEGMENT_TABLE,
    SLOT_SIZE,
    ZERO_SLOT,
    Segment,
    encode_segment,
)

CAPACITY = LARGEST_SEGMENT
"""Bytes of a buffer that any segment fits into."""


def make_buffer() -> memoryview:
    """One for a segment. It takes memory as it is filled: a bytearray takes, and clears, all of it at once."""
    return np.empty(CAPACITY, np.uint8).data


class SegmentBuffer:
    """Blocks gathered for one segment, in memory. Not safe for threads by itself."""

    def __init__(self, sequence: int, epoch: int, buffer: memoryview) -> None:
        self.sequence = sequence
        self.epoch = epoch
        self.frame = 0
        self.began = time.monotonic()
        self.used = 0
        self._buffer = buffer
        self._rows = np.frombuffer(buffer, np.uint8, SEGMENT_SLOTS * SLOT_SIZE).reshape(
            SEGMENT_SLOTS, SLOT_SIZE
        )
        self._entries: list[tuple[int, int, int]] = []
        self._last = (-1, 0, 0)

    @property
    def room(self) -> int:
        """Slots left; 0 also when its table is full."""
        return SEGMENT_SLOTS - self.used if len(self._entries) < MOST_TABLE_ENTRIES - 1 else 0

    @property
    def empty(self) -> bool:
        """True if it says nothing yet."""
        return self._last[1] == 0

    def add(self, block: int, data: memoryview) -> int:
        """Take whole blocks, for which there must be room; the first one's slot."""
        slot, count = self.used, len(data) // BLOCK_SIZE
        if count == 1:
            self._buffer[slot * SLOT_SIZE : slot * SLOT_SIZE + BLOCK_SIZE] = data
        else:
            self._rows[slot : slot + count, :BLOCK_SIZE] = np.frombuffer(data, np.uint8).reshape(
                count, BLOCK_SIZE
            )
        self.used = slot + count
        self._say(block, count, slot)
        return slot

    def zero(self, block: int, count: int) -> None:
        """These blocks read as zeroes from here on."""
        self._say(block, count, ZERO_SLOT)

    def _say(self, block: int, count: int, slot: int) -> None:
        at, number, first = self._last
        joins = first == ZERO_SLOT if slot == ZERO_SLOT else first != ZERO_SLOT and first + number == slot
        if number and joins and at + number == block and number + count < 1 << 32:
            self._last = (at, number + count, first)
            return
        if number:
            self._entries.append(self._last)
        self._last = (block, count, slot)

    def block(self, slot: int, count: int) -> bytes:
        """Return the bytes of these slots, one after another."""
        if count == 1:
            return bytes(self._buffer[slot * SLOT_SIZE : slot * SLOT_SIZE + BLOCK_SIZE])
        return self._rows[slot : slot + count, :BLOCK_SIZE].tobytes()

    def sealed(self, safe: int, checkpoint: int) -> Segment:
        """Seal it and return its own account (see Segment). Nothing may be added any more."""
        entries = [*self._entries, self._last] if self._last[1] else self._entries
        table = np.array(entries, SEGMENT_TABLE)
        return Segment(self.sequence, self.epoch, self.frame, self.used, table, safe, checkpoint)

    def encode(self, segment: Segment, identity: bytes) -> memoryview:
        """The object's bytes, in its own buffer."""
        return encode_segment(self._buffer, segment, identity)

    def give_back(self) -> memoryview:
        """The buffer, for another."""
        return self._buffer
