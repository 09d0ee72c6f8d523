"""Reading blocks: from segments in memory, and from those in the store, side by side and ahead."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from zvault.blockstore.format import BLOCK_SIZE, CHUNK_SLOTS
from zvault.blockstore.log.segment_buffer import SegmentBuffer
from zvault.blockstore.map.blockmap import BlockExtent, BlockMap, PartsNotLoaded
from zvault.blockstore.read.readahead import ReadStreams
from zvault.blockstore.read.slot_fetcher import SPAN_CHUNKS, SlotFetcher
from zvault.object_store.interface import ObjectMissing

LOOKUP_RETRIES = 5
"""How often blocks are looked up anew whose segment was cleared while they were read."""


class BlockReader:
    """Reads a device of so many blocks. Safe for threads."""

    def __init__(
        self,
        blocks: BlockMap,
        fetcher: SlotFetcher,
        size: int,
        memory: Mapping[int, SegmentBuffer],
        usable: Callable[[], None] = lambda: None,
        retries: int = LOOKUP_RETRIES,
    ) -> None:
        """``size`` in blocks; ``memory``: segments that are not in the store yet; ``usable`` raises where none may."""
        self.blocks = blocks
        self.fetcher = fetcher
        self.size = size
        self.memory = memory
        self.usable = usable
        self.retries = retries
        self.read_bytes = 0
        self._streams = ReadStreams(fetcher.room * CHUNK_SLOTS)

    def read(self, offset: int, length: int) -> bytes:
        """Any range, in bytes. Raises ObjectDamaged for what cannot be read rightly, ObjectMissing, StoreError."""
        data = bytearray(length)
        self.read_into(offset, memoryview(data))
        return bytes(data)

    def read_into(self, offset: int, out: memoryview) -> None:
        """The range that begins there, as long as ``out``. Raises as ``read``, and then ``out`` may have anything."""
        length = len(out)
        first, end = offset // BLOCK_SIZE, -(-(offset + length) // BLOCK_SIZE)
        ahead = self._streams.next(first, end - first)
        if ahead is not None:
            self._ahead(*ahead)
        if length == (end - first) * BLOCK_SIZE:
            self._blocks(first, out)
        else:
            whole = memoryview(bytearray((end - first) * BLOCK_SIZE))
            self._blocks(first, whole)
            start = offset - first * BLOCK_SIZE
            out[:] = whole[start : start + length]
        self.read_bytes += length

    def _blocks(self, block: int, out: memoryview) -> None:
        for attempt in range(self.retries + 1):
            near, extents = self._look(block, len(out) // BLOCK_SIZE)
            far, outs, at = [], [], 0
            for extent, data in zip(extents, near, strict=True):
                piece = out[at : at + extent.count * BLOCK_SIZE]
                if data is not None:
                    piece[:] = data
                else:
                    far.append(extent)
                    outs.append(piece)
                at += len(piece)
            try:
                self.fetcher.read(far, self._epochs(far), outs)
            except ObjectMissing:
                if attempt == self.retries:
                    raise
                continue  # it was cleared meanwhile, and the map says where its blocks are now
            return

    def _look(self, block: int, count: int) -> tuple[list[bytes | None], list[BlockExtent]]:
        """What is at hand, in order, None for what is not; and where all of it is."""
        while True:
            with self.blocks.lock:
                self.usable()
                try:
                    extents = self.blocks.resolve(block, count)
                except PartsNotLoaded as error:
                    absent = error.parts
                else:
                    return [self._near(extent) for extent in extents], extents
            self.blocks.load(absent)

    def _near(self, extent: BlockExtent) -> bytes | None:
        """Blocks that need no request."""
        if extent.sequence == 0:
            return bytes(extent.count * BLOCK_SIZE)
        filling = self.memory.get(extent.sequence)
        return filling.block(extent.slot, extent.count) if filling is not None else None

    def _epochs(self, extents: Sequence[BlockExtent]) -> list[int]:
        return [self.blocks.root.epoch_of(extent.sequence) for extent in extents]

    def _ahead(self, block: int, count: int) -> None:
        count = min(count, self.size - block)
        if count <= 0:
            return
        with self.blocks.lock:
            try:
                extents = self.blocks.resolve(block, count)
            except PartsNotLoaded as error:
                self.fetcher.later(partial(self._load_and_ahead, error.parts, block, count))
                return
            extents = [one for one in extents if one.sequence and one.sequence not in self.memory]
        # The longer the way ahead, the longer the requests; still there are several of them.
        self.fetcher.ahead(extents, self._epochs(extents), max(SPAN_CHUNKS, count // CHUNK_SLOTS // 2))

    def _load_and_ahead(self, parts: list[int], block: int, count: int) -> None:
        self.blocks.load(parts)
        self._ahead(block, count)
