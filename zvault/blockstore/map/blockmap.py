"""The map from blocks to positions: parts loaded on demand, the newest of the log above them."""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import xxhash

from zvault.blockstore.format import SLOT_BITS, ZERO_SLOT, ObjectDamaged, make_map_key
from zvault.blockstore.map.log_overlay import LogOverlay
from zvault.blockstore.map.map_part import PART_BITS, PART_BLOCKS, MapPart
from zvault.blockstore.map.root import CheckpointRoot
from zvault.object_store.interface import ObjectMissing, ObjectStore

LEAST_LOADED_PARTS = 8
"""Parts: more than one read or write can need at once."""


@dataclass(frozen=True, slots=True)
class BlockExtent:
    """Consecutive blocks in consecutive slots of a segment; ``sequence`` 0: they read as zeroes."""

    block: int
    count: int
    sequence: int
    slot: int


class PartsNotLoaded(Exception):
    """These parts have to be loaded first."""

    def __init__(self, parts: list[int]) -> None:
        super().__init__(parts)
        self.parts = parts


class BlockMap:
    """The map of where every block is now. All but ``locate``, ``load`` and ``fetch`` want the lock held, the
    engine's.
    """

    def __init__(
        self,
        store: ObjectStore,
        prefix: str,
        root: CheckpointRoot,
        memory: int,
        lock: AbstractContextManager[object],
    ) -> None:
        """``memory``: bytes that parts may take; LEAST are kept in any case."""
        self.lock = lock
        self.store = store
        self.prefix = prefix
        self.root = root
        self.overlay = LogOverlay()
        self._memory = memory
        self._used = 0
        self._parts: OrderedDict[int, MapPart] = OrderedDict()
        self._staged: dict[int, MapPart] = {}

    def locate(self, block: int, count: int) -> list[BlockExtent]:
        """Find where these blocks are; loads what it must. Raises ObjectDamaged, StoreError."""
        while True:
            try:
                with self.lock:
                    return self.resolve(block, count)
            except PartsNotLoaded as error:
                self.load(error.parts)

    def load(self, parts: Sequence[int]) -> None:
        """Have parts in memory. Raises ObjectDamaged, StoreError."""
        for part in parts:
            loaded, ref = self.fetch(part)
            with self.lock:
                self.admit(part, loaded, ref)

    def resolve(self, block: int, count: int) -> list[BlockExtent]:
        """Find where these blocks are, in order. Raises PartsNotLoaded."""
        found: list[BlockExtent] = []
        absent: list[int] = []
        end = block + count
        while block < end:
            number = min(end - block, PART_BLOCKS - (block & (PART_BLOCKS - 1)))
            try:
                self._resolve(block, number, found)
            except PartsNotLoaded as error:
                absent += error.parts
            block += number
        if absent:
            raise PartsNotLoaded(absent)
        return found

    def _resolve(self, block: int, count: int, found: list[BlockExtent]) -> None:
        part, base = block >> PART_BITS, block & ~(PART_BLOCKS - 1)
        for low, number, position in self.overlay.find(block, count):
            if position >= 0:
                sequence, slot = position >> SLOT_BITS, position & ZERO_SLOT
                found.append(
                    BlockExtent(base + low, number, *((0, 0) if slot == ZERO_SLOT else (sequence, slot)))
                )
                continue
            known = self.known(part)
            if known is None:
                raise PartsNotLoaded([part])
            found += [BlockExtent(base + at, size, *where) for at, size, *where in known.find(low, number)]

    def moved(self, block: int, count: int, sequence: int, slot: int) -> None:
        """Blocks are there from now on."""
        self.overlay.put(block, count, sequence << SLOT_BITS | slot)

    def known(self, part: int) -> MapPart | None:
        """A part, where it is in memory or blank."""
        staged = self._staged.get(part)
        if staged is not None:
            return staged
        if part in self._parts:
            self._parts.move_to_end(part)
            return self._parts[part]
        if self.root.parts[part]["map"] == 0:
            return MapPart.blank()
        return None

    def fetch(self, part: int) -> tuple[MapPart, np.void]:
        """Load a part, without the lock; and the reference by which it was found. Raises ObjectDamaged, StoreError."""
        ref = self.root.parts[part].copy()
        return MapPart.blank() if ref["map"] == 0 else self._load(ref), ref

    def _load(self, ref: np.void) -> MapPart:
        try:
            return MapPart.of_bytes(fetch_references(self.store, self.prefix, [ref])[0])
        except (ValueError, zlib.error) as error:
            raise ObjectDamaged(
                "a part of the map cannot be read", str(error), "run 'zvaultctl blockstore check'"
            ) from error

    def admit(self, part: int, loaded: MapPart, ref: np.void) -> None:
        """Keep a part that was loaded, unless it has changed meanwhile."""
        if part not in self._staged and self.root.parts[part] == ref:
            self._keep(part, loaded)

    def stage(self, part: int, changed: MapPart) -> None:
        """A part as it is from now on; it stays in memory until it is in the store."""
        self._forget(part)
        self._staged[part] = changed

    def stored(self, part: int, ref: tuple[int, int, int, int, int]) -> None:
        """A staged part is in the store there."""
        self.root.parts[part] = ref
        self._keep(part, self._staged.pop(part))

    def _keep(self, part: int, loaded: MapPart) -> None:
        self._forget(part)
        self._parts[part] = loaded
        self._used += loaded.nbytes
        while self._used > self._memory and len(self._parts) > LEAST_LOADED_PARTS:
            _, old = self._parts.popitem(last=False)
            self._used -= old.nbytes

    def _forget(self, part: int) -> None:
        old = self._parts.pop(part, None)
        if old is not None:
            self._used -= old.nbytes

    @property
    def memory_used(self) -> int:
        """Bytes that parts take."""
        return self._used + sum(part.nbytes for part in self._staged.values())


def fetch_references(store: ObjectStore, prefix: str, refs: Sequence[np.void]) -> list[bytes]:
    """The bytes that references point to, which lie one behind the other. Raises ObjectDamaged, StoreError."""
    first, last = refs[0], refs[-1]
    key = make_map_key(prefix, int(first["map"]), int(first["epoch"]))
    base = int(first["offset"])
    try:
        data = store.get(key, base, int(last["offset"]) + int(last["length"]) - base)
    except ObjectMissing as error:
        raise ObjectDamaged(
            f"a part of the map is gone with {key}", "the object is missing", _CHECK
        ) from error
    found = []
    for ref in refs:
        at = int(ref["offset"]) - base
        found.append(data[at : at + int(ref["length"])])
        if xxhash.xxh3_64_intdigest(found[-1]) != int(ref["digest"]):
            raise ObjectDamaged(
                f"a part of the map in {key} is damaged", "it does not match its checksum", _CHECK
            )
    return found


_CHECK = "run 'zvaultctl blockstore check'"
