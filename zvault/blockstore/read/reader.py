"""Reading blocks: from segments in memory, and from those in the store, side by side and ahead."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from zvault.blockstore.format import BLOCK
from zvault.blockstore.log.segment_buffer import SegmentBuffer
from zvault.blockstore.map.blockmap import BlockMap, Extent, PartsNotLoaded
from zvault.blockstore.read.fetcher import Fetcher
from zvault.blockstore.read.readahead import Streams
from zvault.object_store.interface import ObjectMissing

RETRIES = 5
"""How often blocks are looked up anew whose segment was cleared while they were read."""


class Reader:
    """Reads a device of so many blocks. Safe for threads."""

    def __init__(
        self,
        blocks: BlockMap,
        fetcher: Fetcher,
        size: int,
        memory: Mapping[int, SegmentBuffer],
        usable: Callable[[], None] = lambda: None,
        retries: int = RETRIES,
    ) -> None:
        """``size`` in blocks; ``memory``: segments that are not in the store yet; ``usable`` raises where none may."""
        self.blocks = blocks
        self.fetcher = fetcher
        self.size = size
        self.memory = memory
        self.usable = usable
        self.retries = retries
        self.read_bytes = 0
        self._streams = Streams()

    def read(self, offset: int, length: int) -> bytes:
        """Any range, in bytes. Raises Damaged for what cannot be read rightly, Missing, StoreError."""
        first, end = offset // BLOCK, -(-(offset + length) // BLOCK)
        data = self._blocks(first, end - first)
        self.read_bytes += length
        ahead = self._streams.next(first, end - first)
        if ahead is not None:
            self._ahead(*ahead)
        start = offset - first * BLOCK
        return data if len(data) == length else data[start : start + length]

    def _blocks(self, block: int, count: int) -> bytes:
        for attempt in range(self.retries + 1):
            near, far = self._look(block, count)
            try:
                found = self.fetcher.read(far, self._epochs(far))
            except ObjectMissing:
                if attempt == self.retries:
                    raise
                continue  # it was cleared meanwhile, and the map says where its blocks are now
            pieces = iter(found)
            return b"".join(b"".join(next(pieces)) if piece is None else piece for piece in near)
        raise AssertionError("not reached")

    def _look(self, block: int, count: int) -> tuple[list[bytes | None], list[Extent]]:
        """What is at hand, in order, None for what is not; and where that is."""
        while True:
            with self.blocks.lock:
                self.usable()
                try:
                    extents = self.blocks.resolve(block, count)
                except PartsNotLoaded as error:
                    absent = error.parts
                else:
                    near = [self._near(extent) for extent in extents]
                    return near, [one for one, data in zip(extents, near, strict=True) if data is None]
            self.blocks.load(absent)

    def _near(self, extent: Extent) -> bytes | None:
        """Blocks that need no request."""
        if extent.sequence == 0:
            return bytes(extent.count * BLOCK)
        filling = self.memory.get(extent.sequence)
        return filling.block(extent.slot, extent.count) if filling is not None else None

    def _epochs(self, extents: Sequence[Extent]) -> list[int]:
        return [self.blocks.root.epoch_of(extent.sequence) for extent in extents]

    def _ahead(self, block: int, count: int) -> None:
        count = min(count, self.size - block)
        if count <= 0:
            return
        with self.blocks.lock:
            try:
                extents = self.blocks.resolve(block, count)
            except PartsNotLoaded:
                return
            extents = [one for one in extents if one.sequence and one.sequence not in self.memory]
        self.fetcher.ahead(extents, self._epochs(extents))
