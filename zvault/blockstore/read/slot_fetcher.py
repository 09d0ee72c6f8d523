"""Reading slots from the store: by chunks, side by side, through the cache, each slot verified."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Protocol

from zvault.blockstore.format import (
    BLOCK_SIZE,
    CHUNK_SLOTS,
    SEGMENT_SLOTS,
    SLOT_SIZE,
    ObjectDamaged,
    copy_verified_slots,
    make_segment_key,
)
from zvault.blockstore.map.blockmap import BlockExtent
from zvault.object_store.interface import Buffer, ObjectStore, StoreError

SPAN_CHUNKS = 32
"""Chunks a request at most, 2 MiB: large enough to be worth it, small enough for several side by side."""

Key = tuple[int, int]
"""A segment's sequence, and the number of a chunk in it."""


class ChunkCache(Protocol):
    """The calls that are made on the local cache."""

    def get(self, segment: int, chunk: int) -> bytes | None:
        """A chunk, if it is there."""

    def put(self, segment: int, chunk: int, data: Buffer) -> None:
        """Keep a chunk."""

    def drop(self, segment: int, chunk: int) -> None:
        """It is not what it should be."""


class ChunkSpan:
    """Chunks of a segment from ``first`` on, which were asked for together: on their way, or in memory."""

    __slots__ = ("came", "chunks", "epoch", "first", "sequence")

    def __init__(self, sequence: int, epoch: int, first: int, chunks: int) -> None:
        self.sequence, self.epoch = sequence, epoch
        self.first, self.chunks = first, chunks
        self.came: Future[bytes] = Future()

    @property
    def keys(self) -> list[Key]:
        return [(self.sequence, chunk) for chunk in range(self.first, self.first + self.chunks)]


class SlotFetcher:
    """Fetches slots of segments that are in the store. Safe for threads."""

    def __init__(
        self, store: ObjectStore, prefix: str, cache: ChunkCache | None, memory: int, pool: Executor | None
    ) -> None:
        """``memory``: bytes of chunks kept in memory, what was read ahead among them."""
        self.store = store
        self.prefix = prefix
        self.cache = cache
        self.pool = pool
        self.read_bytes = 0
        self.room = max(1, memory // (CHUNK_SLOTS * SLOT_SIZE))
        """Chunks."""
        self._lock = threading.Lock()
        self._spans: dict[Key, ChunkSpan] = {}
        """By each of their chunks."""
        self._kept: OrderedDict[ChunkSpan, None] = OrderedDict()
        """Those that came, the one that was used last at the end."""
        self._used = 0

    def read(self, extents: Sequence[BlockExtent], epochs: Sequence[int], outs: Sequence[memoryview]) -> None:
        """Put the blocks of each extent where they are wanted. Raises ObjectMissing, ObjectDamaged, StoreError."""
        found = self._have(extents, epochs, SPAN_CHUNKS)
        for extent, epoch, out in zip(extents, epochs, outs, strict=True):
            self._copy(extent, epoch, found, out)

    def ahead(self, extents: Sequence[BlockExtent], epochs: Sequence[int], most: int = SPAN_CHUNKS) -> None:
        """Begin to read what will be asked for soon, by requests of at most so many chunks."""
        if self.pool is not None:
            self._have(extents, epochs, most, wait=False)

    def later(self, call: Callable[[], object]) -> None:
        """Do something besides, if there are threads; whoever needs what comes of it finds out what went wrong."""
        if self.pool is not None:
            self.pool.submit(call)

    def _have(
        self, extents: Sequence[BlockExtent], epochs: Sequence[int], most: int, *, wait: bool = True
    ) -> dict[Key, ChunkSpan]:
        """The chunks of all extents, at least on their way; by requests of at most ``most`` chunks."""
        found: dict[Key, ChunkSpan] = {}
        spans: list[ChunkSpan] = []
        for (sequence, epoch), chunks in _by_segment(extents, epochs).items():
            absent = self._at_hand(sequence, chunks, found)
            if absent and self.cache is not None:
                absent = [chunk for chunk in absent if not self._cached(sequence, epoch, chunk, found)]
            if absent:
                spans += self._take_off(sequence, epoch, absent, most, found)
        for span in spans:
            if self.pool is None or (wait and len(spans) == 1):
                self._fly(span)
            else:
                self._fly_besides(span, self.pool)
        return found

    def _at_hand(self, sequence: int, chunks: list[int], found: dict[Key, ChunkSpan]) -> list[int]:
        """Those that neither are in memory nor come."""
        absent = []
        last: ChunkSpan | None = None
        with self._lock:
            for chunk in chunks:
                span = self._spans.get((sequence, chunk))
                if span is None:
                    absent.append(chunk)
                    continue
                found[sequence, chunk] = span
                if span is not last and span in self._kept:
                    self._kept.move_to_end(span)
                last = span
        return absent

    def _cached(self, sequence: int, epoch: int, chunk: int, found: dict[Key, ChunkSpan]) -> bool:
        """True if the local cache has a chunk."""
        data = self.cache.get(sequence, chunk) if self.cache is not None else None
        if data is None:
            return False
        found[sequence, chunk] = self._take_in(sequence, epoch, chunk, data)
        return True

    def _take_in(self, sequence: int, epoch: int, chunk: int, data: bytes) -> ChunkSpan:
        """One chunk, as it came."""
        span = ChunkSpan(sequence, epoch, chunk, 1)
        span.came.set_result(data)
        with self._lock:
            self._spans[sequence, chunk] = span
        self._keep(span)
        return span

    def _take_off(
        self, sequence: int, epoch: int, absent: list[int], most: int, found: dict[Key, ChunkSpan]
    ) -> list[ChunkSpan]:
        """Requests for chunks, but for those that another thread has asked for meanwhile."""
        new: list[ChunkSpan] = []
        with self._lock:
            for chunk in absent:
                key = (sequence, chunk)
                if (span := self._spans.get(key)) is None:
                    if new and new[-1].first + new[-1].chunks == chunk and new[-1].chunks < most:
                        span = new[-1]
                        span.chunks += 1
                    else:
                        span = ChunkSpan(sequence, epoch, chunk, 1)
                        new.append(span)
                    self._spans[key] = span
                found[key] = span
        return new

    def _fly_besides(self, span: ChunkSpan, pool: Executor) -> None:
        """Have a thread ask for a span. One that was not asked for before the threads ended is an error for all."""

        def ended(asking: Future[None]) -> None:
            if asking.cancelled():
                self._fail(span, StoreError("blocks cannot be read", "the device is being closed"))

        try:
            pool.submit(self._fly, span).add_done_callback(ended)
        except RuntimeError:
            self._fail(span, StoreError("blocks cannot be read", "the device is closed"))

    def _fail(self, span: ChunkSpan, error: BaseException) -> None:
        self._forget(span)
        span.came.set_exception(error)

    def _fly(self, span: ChunkSpan) -> None:
        try:
            data = self._get(span.sequence, span.epoch, span.first, span.chunks)
        except BaseException as error:
            self._fail(span, error)
            return
        with self._lock:
            self.read_bytes += len(data)
        span.came.set_result(data)
        self._keep(span)
        if self.cache is not None:
            view, size = memoryview(data), CHUNK_SLOTS * SLOT_SIZE
            for number in range(span.chunks):
                piece = view[number * size : (number + 1) * size]
                self.cache.put(span.sequence, span.first + number, piece)

    def _get(self, sequence: int, epoch: int, first: int, chunks: int) -> bytes:
        start, end = first * CHUNK_SLOTS, min((first + chunks) * CHUNK_SLOTS, SEGMENT_SLOTS)
        key = make_segment_key(self.prefix, sequence, epoch)
        return self.store.get(key, start * SLOT_SIZE, (end - start) * SLOT_SIZE)

    def _keep(self, span: ChunkSpan) -> None:
        """Count a span that came, and let go of what was not used for longest."""
        with self._lock:
            self._kept[span] = None
            self._used += span.chunks
            while self._used > self.room and len(self._kept) > 1:
                old, _ = self._kept.popitem(last=False)
                self._used -= old.chunks
                self._unlist(old)

    def _forget(self, span: ChunkSpan) -> None:
        with self._lock:
            self._unlist(span)

    def _unlist(self, span: ChunkSpan) -> None:
        for key in span.keys:
            if self._spans.get(key) is span:
                del self._spans[key]

    def _copy(self, extent: BlockExtent, epoch: int, found: dict[Key, ChunkSpan], out: memoryview) -> None:
        """Put an extent's blocks into ``out``, each verified."""
        block, slot, left = extent.block, extent.slot, extent.count
        at = 0
        while left:
            span = found[extent.sequence, slot // CHUNK_SLOTS]
            first = slot - span.first * CHUNK_SLOTS
            number = min(left, span.chunks * CHUNK_SLOTS - first)
            blocks, piece = range(block, block + number), out[at : at + number * BLOCK_SIZE]
            if not copy_verified_slots(span.came.result(), first, blocks, extent.sequence, epoch, piece):
                self._by_chunks(span, first, blocks, piece)
            block, slot, left, at = block + number, slot + number, left - number, at + number * BLOCK_SIZE

    def _by_chunks(self, span: ChunkSpan, first: int, blocks: range, out: memoryview) -> None:
        """The same, where not all that is at hand is right. Raises ObjectDamaged."""
        data, at = span.came.result(), 0
        while at < len(blocks):
            slot = first + at
            number = min(len(blocks) - at, CHUNK_SLOTS - slot % CHUNK_SLOTS)
            some, piece = blocks[at : at + number], out[at * BLOCK_SIZE : (at + number) * BLOCK_SIZE]
            if not copy_verified_slots(data, slot, some, span.sequence, span.epoch, piece):
                self._once_more(span, span.first + slot // CHUNK_SLOTS, slot % CHUNK_SLOTS, some, piece)
            at += number

    def _once_more(self, span: ChunkSpan, chunk: int, first: int, blocks: range, out: memoryview) -> None:
        """From the store itself: what was at hand is damaged. Raises ObjectDamaged."""
        self.forget(span.sequence, chunk)
        data = self._get(span.sequence, span.epoch, chunk, 1)
        if not copy_verified_slots(data, first, blocks, span.sequence, span.epoch, out):
            key = make_segment_key(self.prefix, span.sequence, span.epoch)
            raise ObjectDamaged(
                f"blocks {blocks.start} to {blocks.stop - 1} cannot be read ({len(blocks) * BLOCK_SIZE} bytes)",
                f"the segment {key} does not match its checksums",
                "run 'zvaultctl blockstore check'; what a scrub of the pool then finds can be healed from the source",
            )
        self._take_in(span.sequence, span.epoch, chunk, data)
        if self.cache is not None:
            self.cache.put(span.sequence, chunk, data)

    def forget(self, sequence: int, chunk: int) -> None:
        """Do not use what is kept of a chunk."""
        with self._lock:
            self._spans.pop((sequence, chunk), None)
        if self.cache is not None:
            self.cache.drop(sequence, chunk)


def _by_segment(extents: Sequence[BlockExtent], epochs: Sequence[int]) -> dict[tuple[int, int], list[int]]:
    """Chunks that extents lie in, by sequence and epoch of their segments, in order.

    What was written at the same time lies in one segment, but in the order in which it came: extents that follow on
    each other may lie there in any.
    """
    found: dict[tuple[int, int], set[int]] = {}
    for extent, epoch in zip(extents, epochs, strict=True):
        chunks = range(extent.slot // CHUNK_SLOTS, (extent.slot + extent.count - 1) // CHUNK_SLOTS + 1)
        found.setdefault((extent.sequence, epoch), set()).update(chunks)
    return {segment: sorted(chunks) for segment, chunks in found.items()}
