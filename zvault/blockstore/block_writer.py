"""Writing to the block device: into the journal and the segment being filled, once there is room in both.

A part of a block is a read, a change and a write of the whole block."""

from __future__ import annotations

import threading
import time

from zvault.blockstore.engine_state import EngineState, LogProgress
from zvault.blockstore.format import BLOCK_SIZE, SEGMENT_SLOTS
from zvault.blockstore.log.journal import Journal, JournalDiskFull, JournalFailed, JournalFull
from zvault.blockstore.log.log import SegmentLog
from zvault.blockstore.map.blockmap import BlockMap
from zvault.blockstore.read.block_reader import BlockReader

WRITE_PIECE_SIZE = SEGMENT_SLOTS // 3 * BLOCK_SIZE
"""A longer write is several frames of so many bytes: three fill a segment."""
ZERO_PIECE = 1 << 18
"""Blocks of one frame of zeroes at most: 1 GiB."""
SLOW_FROM = 0.5
"""How full the journal is when writers begin to be slowed down."""
LONGEST_HOLD_BACK = 1.0
"""Seconds that one write is held back at most, for that."""


class BlockWriter:
    """The writer to one device. Safe for threads: they take turns."""

    def __init__(
        self,
        state: EngineState,
        log: SegmentLog,
        progress: LogProgress,
        journal: Journal,
        blocks: BlockMap,
        reader: BlockReader,
        *,
        paced: bool,
    ) -> None:
        """``paced``: whether writers are slowed down as the journal fills. ``reader`` reads the device."""
        self.log, self.journal, self.blocks = log, journal, blocks
        self.trouble: str | None = None
        """Why writers wait, where that is the journal's disk."""
        self.written_bytes = 0
        self._paced = paced
        self._state, self._progress, self._reader = state, progress, reader
        self._ragged = threading.Lock()
        self._turn = threading.Lock()
        """One writer waits for room, and wakes for each change; the others wait for him alone."""

    def write(self, offset: int, data: memoryview) -> None:
        """Write bytes at any offset. Raises StoreError."""
        if offset % BLOCK_SIZE or len(data) % BLOCK_SIZE:
            self._write_ragged(offset, data)
            return
        for at in range(0, len(data), WRITE_PIECE_SIZE):
            self._write((offset + at) // BLOCK_SIZE, data[at : at + WRITE_PIECE_SIZE])

    def _write(self, block: int, data: memoryview) -> None:
        count = len(data) // BLOCK_SIZE
        self._pace(len(data))
        with self._turn, self.log.changed:
            self._append(block, count, data)
            self.blocks.moved(block, count, *self.log.place(block, data))
            # Not before: a segment that is sealed to make room does not hold it.
            self.log.frame += 1
            self.written_bytes += len(data)

    def zero(self, offset: int, length: int) -> None:
        """Have a range read as zeroes. Raises StoreError."""
        first, end = -(-offset // BLOCK_SIZE), (offset + length) // BLOCK_SIZE
        if first > end:
            self._write_ragged(offset, memoryview(bytes(length)))
            return
        if offset < first * BLOCK_SIZE:
            self._write_ragged(offset, memoryview(bytes(first * BLOCK_SIZE - offset)))
        self.zero_blocks(first, end)
        if offset + length > end * BLOCK_SIZE:
            self._write_ragged(end * BLOCK_SIZE, memoryview(bytes(offset + length - end * BLOCK_SIZE)))

    def zero_blocks(self, first: int, end: int) -> None:
        """Have whole blocks read as zeroes. Raises StoreError."""
        for block in range(first, end, ZERO_PIECE):
            self._zero(block, min(ZERO_PIECE, end - block))

    def _zero(self, block: int, count: int) -> None:
        with self._turn, self.log.changed:
            self._append(block, count, None)
            self.blocks.overlay.zero(block, count, self.log.zero(block, count))
            self.log.frame += 1

    def _append(self, block: int, count: int, data: memoryview | None) -> None:
        """Put a frame into the journal, once there is room for it there and in memory."""
        while True:
            self._state.refuse_writing()
            if not self.log.room(count if data is not None else 1):
                self.log.seal()
                self._progress.wait()
                continue
            try:
                self.journal.append(self.log.frame + 1, block, count, data)
            except JournalFull:
                # It has room again once what it holds is in the store.
                self.log.seal()
                self._progress.wait()
            except JournalDiskFull as error:
                self.trouble = str(error)
                self.log.seal()
                self._progress.wait()
            except JournalFailed as error:
                self._state.fail(error)
                raise
            else:
                self.trouble = None
                return

    def _write_ragged(self, offset: int, data: memoryview) -> None:
        """Change parts of blocks; two that do so at once wait for each other."""
        with self._ragged:
            first, end = offset // BLOCK_SIZE, -(-(offset + len(data)) // BLOCK_SIZE)
            around = bytearray(self._reader.read(first * BLOCK_SIZE, (end - first) * BLOCK_SIZE))
            start = offset - first * BLOCK_SIZE
            around[start : start + len(data)] = data
            for at in range(0, len(around), WRITE_PIECE_SIZE):
                self._write(first + at // BLOCK_SIZE, memoryview(around)[at : at + WRITE_PIECE_SIZE])

    def _pace(self, length: int) -> None:
        """Slow writers down as the journal fills, until they are as fast as the store: no one of them is stopped."""
        fill = self.journal.fill
        if self._paced and fill > SLOW_FROM and self.log.rate > 0:
            time.sleep(min(LONGEST_HOLD_BACK, (fill - SLOW_FROM) / (1 - SLOW_FROM) * length / self.log.rate))
