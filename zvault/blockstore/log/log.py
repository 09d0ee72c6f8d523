"""The log: what is written is gathered in segments, which are uploaded side by side and count in their order."""

from __future__ import annotations

import threading
import time
from collections import deque

from zvault.blockstore.format import BLOCK_SIZE, Segment, make_segment_key
from zvault.blockstore.log.segment_buffer import SegmentBuffer, make_buffer
from zvault.object_store.interface import ObjectStore, StoreError

SPARE_BUFFERS = 2
"""Buffers kept while nobody writes. While somebody does, all are kept: memory that is new costs more than a copy."""


class SegmentLog:
    """Segments from the one being filled to those that checkpoints have not taken yet.

    All but ``upload`` wants the lock of ``changed`` held, the engine's; ``changed`` is notified of each change, and
    ``sealed_one``, which has the same lock, of segments that wait: one uploader wakes for each, and no writer.
    """

    def __init__(
        self,
        store: ObjectStore,
        prefix: str,
        identity: bytes,
        changed: threading.Condition,
        sealed_one: threading.Condition,
        uploads: int,
    ):
        self.store = store
        self.prefix = prefix
        self.identity = identity
        self.changed = changed
        self.sealed_one = sealed_one
        self.limit = 2 * max(uploads, 1) + 1
        self.reserve = 0
        """Of ``limit``: segments that are not for writers, but for collecting garbage, where that lags behind."""
        self.epoch = 0
        self.sequence = 0
        self.uploaded = 0
        """All segments up to this one are in the store."""
        self.checkpoint = 0
        """The newest checkpoint that this writer has put, 0 before the first."""
        self.frame = 0
        """The last frame that was placed."""
        self.frame_uploaded = 0
        """All frames up to this one are in the store."""
        self.filling: SegmentBuffer | None = None
        self.waiting: deque[SegmentBuffer] = deque()
        self.memory: dict[int, SegmentBuffer] = {}
        self.done: dict[int, Segment] = {}
        """Segments in the store that no checkpoint has taken yet; from the one after ``uploaded`` on out of order."""
        self.rate = 0.0
        """Bytes a second of late, 0 before the first upload ended."""
        self.uploaded_bytes = 0
        self._spare: list[memoryview] = []

    def begin(self, epoch: int, sequence: int, frame: int) -> None:
        """Go on after this segment and frame, which are in the store, as this epoch."""
        self.epoch, self.sequence, self.uploaded = epoch, sequence, sequence
        self.frame = self.frame_uploaded = frame

    def room(self, slots: int) -> bool:
        """True if so many, at most a segment's, can be placed without waiting."""
        if self.filling is not None and self.filling.room >= slots:
            return True
        return len(self.memory) < self.limit - self.reserve

    def room_for_garbage(self) -> bool:
        """True if a block may be written anew: where nothing is reserved for that, writers come first."""
        if self.reserve and self.filling is not None and self.filling.room:
            return True
        return len(self.memory) < (self.limit if self.reserve else self.limit - 1)

    def place(self, block: int, data: memoryview) -> tuple[int, int]:
        """Put blocks, at most a segment's, into the log, for which there must be room; the first one's place.

        All of them go into one segment: a frame is there whole or not at all.
        """
        if self.filling is not None and self.filling.room * BLOCK_SIZE < len(data):
            self.seal()
        filling = self._open()
        return filling.sequence, filling.add(block, data)

    def zero(self, block: int, count: int) -> int:
        """Have blocks read as zeroes; the sequence of the segment that says so."""
        filling = self._open()
        filling.zero(block, count)
        return filling.sequence

    def _open(self) -> SegmentBuffer:
        if self.filling is not None and self.filling.room == 0:
            self.seal()
        if self.filling is None:
            self.sequence += 1
            buffer = self._spare.pop() if self._spare else make_buffer()
            self.filling = SegmentBuffer(self.sequence, self.epoch, buffer)
            self.memory[self.sequence] = self.filling
        return self.filling

    def seal(self) -> None:
        """Have what there is uploaded; ``sequence`` is then the last segment that will be."""
        if self.filling is not None and not self.filling.empty:
            self.filling.frame = self.frame
            self.waiting.append(self.filling)
            self.filling = None
            self.sealed_one.notify()

    def forget_spares(self) -> None:
        """Keep no more memory for segments to come than the next few need: nobody writes at the moment."""
        del self._spare[SPARE_BUFFERS:]

    @property
    def sealed(self) -> int:
        """The last segment that is uploaded or will be."""
        return self.sequence if self.filling is None else self.sequence - 1

    def upload(self) -> bool:
        """Upload the next one, if there is one. Raises StoreError; what was not uploaded waits again."""
        with self.changed:
            if not self.waiting:
                return False
            filling = self.waiting.popleft()
            segment = filling.sealed(self.uploaded, self.checkpoint)
        began = time.monotonic()
        try:
            self.store.put(
                make_segment_key(self.prefix, segment.sequence, segment.epoch),
                filling.encode(segment, self.identity),
            )
        except StoreError:
            with self.changed:
                self.waiting.appendleft(filling)
            raise
        with self.changed:
            self._uploaded(filling, segment, time.monotonic() - began)
        return True

    def _uploaded(self, filling: SegmentBuffer, segment: Segment, seconds: float) -> None:
        self.done[segment.sequence] = segment
        self.uploaded_bytes += segment.size
        rate = segment.size / max(seconds, 0.001) * max(1, len(self.memory) - 1)
        self.rate = rate if not self.rate else 0.8 * self.rate + 0.2 * rate
        del self.memory[segment.sequence]
        self._spare.append(filling.give_back())
        while self.uploaded + 1 in self.done:
            self.uploaded += 1
            self.frame_uploaded = self.done[self.uploaded].frame
        self.changed.notify_all()
