"""Reading slots from the store: by chunks, side by side, through the cache, each slot verified."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from typing import Protocol

from zvault.blockstore.format import BLOCK, CHUNK, SLOT, SLOTS, Damaged, segment_key, taken_out
from zvault.blockstore.map.blockmap import Extent
from zvault.object_store.interface import ObjectStore

SPAN = 32
"""Chunks a request at most, 2 MiB: large enough to be worth it, small enough for several side by side."""

Key = tuple[int, int]
"""A segment's sequence, and the number of a chunk in it."""


class ChunkCache(Protocol):
    """What is asked of the local cache."""

    def get(self, segment: int, chunk: int) -> bytes | None:
        """A chunk, if it is there."""

    def put(self, segment: int, chunk: int, data: bytes) -> None:
        """Keep one."""

    def drop(self, segment: int, chunk: int) -> None:
        """It is not what it should be."""


class Fetcher:
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
        self._room = max(1, memory // (CHUNK * SLOT))
        self._lock = threading.Lock()
        self._kept: OrderedDict[Key, bytes] = OrderedDict()
        self._flights: dict[Key, Future[bytes]] = {}

    def read(self, extents: Sequence[Extent], epochs: Sequence[int]) -> list[list[memoryview]]:
        """The blocks of each extent. Raises Missing, Damaged, StoreError."""
        found: dict[Key, bytes | Future[bytes]] = {}
        for extent, epoch in zip(extents, epochs, strict=True):
            self._have(extent, epoch, found, bool(len(extents) > 1))
        return [self._blocks(extent, epoch, found) for extent, epoch in zip(extents, epochs, strict=True)]

    def ahead(self, extents: Sequence[Extent], epochs: Sequence[int]) -> None:
        """Begin to read what will be asked for soon."""
        if self.pool is not None:
            for extent, epoch in zip(extents, epochs, strict=True):
                self._have(extent, epoch, {}, True)

    def _have(
        self, extent: Extent, epoch: int, found: dict[Key, bytes | Future[bytes]], several: bool
    ) -> None:
        first, last = extent.slot // CHUNK, (extent.slot + extent.count - 1) // CHUNK
        missing: list[int] = []
        for chunk in range(first, last + 1):
            key = (extent.sequence, chunk)
            if key in found:
                continue
            data = self._at_hand(key)
            if data is not None:
                found[key] = data
            else:
                missing.append(chunk)
        for span in _spans(missing):
            flights = self._take_off(extent.sequence, epoch, span, several or len(missing) > len(span))
            found.update(
                {(extent.sequence, chunk): flight for chunk, flight in zip(span, flights, strict=True)}
            )

    def _at_hand(self, key: Key) -> bytes | Future[bytes] | None:
        with self._lock:
            data = self._kept.get(key)
            if data is not None:
                self._kept.move_to_end(key)
                return data
            if key in self._flights:
                return self._flights[key]
        data = self.cache.get(*key) if self.cache is not None else None
        if data is not None:
            self._keep(key, data)
        return data

    def _take_off(self, sequence: int, epoch: int, span: list[int], several: bool) -> list[Future[bytes]]:
        flights: list[Future[bytes]] = [Future() for _ in span]
        with self._lock:
            self._flights.update(
                {(sequence, chunk): flight for chunk, flight in zip(span, flights, strict=True)}
            )
        if several and self.pool is not None:
            self.pool.submit(self._fly, sequence, epoch, span, flights)
        else:
            self._fly(sequence, epoch, span, flights)
        return flights

    def _fly(self, sequence: int, epoch: int, span: list[int], flights: list[Future[bytes]]) -> None:
        size = CHUNK * SLOT
        try:
            end = min((span[-1] + 1) * size, SLOTS * SLOT)
            data = self.store.get(
                segment_key(self.prefix, sequence, epoch), span[0] * size, end - span[0] * size
            )
        except BaseException as error:
            for flight in flights:
                flight.set_exception(error)
        else:
            with self._lock:
                self.read_bytes += len(data)
            for number, (chunk, flight) in enumerate(zip(span, flights, strict=True)):
                piece = data[number * size : (number + 1) * size]
                self._keep((sequence, chunk), piece)
                if self.cache is not None:
                    self.cache.put(sequence, chunk, piece)
                flight.set_result(piece)
        finally:
            with self._lock:
                for chunk in span:
                    self._flights.pop((sequence, chunk), None)

    def _keep(self, key: Key, data: bytes) -> None:
        with self._lock:
            self._kept[key] = data
            self._kept.move_to_end(key)
            while len(self._kept) > self._room:
                self._kept.popitem(last=False)

    def _blocks(
        self, extent: Extent, epoch: int, found: dict[Key, bytes | Future[bytes]]
    ) -> list[memoryview]:
        out: list[memoryview] = []
        block, slot, left = extent.block, extent.slot, extent.count
        while left:
            chunk, first = divmod(slot, CHUNK)
            number = min(left, CHUNK - first)
            blocks = range(block, block + number)
            data = found[extent.sequence, chunk]
            if isinstance(data, Future):
                data = data.result()
            taken = taken_out(data, first, blocks, extent.sequence, epoch)
            if taken is None:
                taken = self._once_more(extent.sequence, epoch, chunk, first, blocks)
            out += taken
            block, slot, left = block + number, slot + number, left - number
        return out

    def _once_more(
        self, sequence: int, epoch: int, chunk: int, first: int, blocks: range
    ) -> list[memoryview]:
        """From the store itself: what was at hand is damaged. Raises Damaged."""
        self.forget(sequence, chunk)
        key = segment_key(self.prefix, sequence, epoch)
        data = self.store.get(key, chunk * CHUNK * SLOT, CHUNK * SLOT)
        taken = taken_out(data, first, blocks, sequence, epoch)
        if taken is None:
            raise Damaged(
                f"blocks {blocks.start} to {blocks.stop - 1} cannot be read ({len(blocks) * BLOCK} bytes)",
                f"the segment {key} does not match its checksums",
                "run 'zvaultctl blockstore check'; what a scrub of the pool then finds can be healed from the source",
            )
        self._keep((sequence, chunk), data)
        if self.cache is not None:
            self.cache.put(sequence, chunk, data)
        return taken

    def forget(self, sequence: int, chunk: int) -> None:
        """Do not use what is kept of a chunk."""
        with self._lock:
            self._kept.pop((sequence, chunk), None)
        if self.cache is not None:
            self.cache.drop(sequence, chunk)


def _spans(chunks: list[int]) -> list[list[int]]:
    """Neighbours together, SPAN at most."""
    out: list[list[int]] = []
    for chunk in chunks:
        if out and out[-1][-1] + 1 == chunk and len(out[-1]) < SPAN:
            out[-1].append(chunk)
        else:
            out.append([chunk])
    return out
