"""Puts parts of the map and pages of the usage into objects, many in one, and has the map point to them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import xxhash

from zvault.blockstore.format import make_map_key
from zvault.blockstore.map.root import CheckpointRoot
from zvault.object_store.interface import ObjectStore

MAP_BYTES = 8 << 20
"""An object of the map is put when it has so many."""

MapReference = tuple[int, int, int, int, int]
"""Where it is: number and epoch of the object, offset and length in it, and its digest; a row of MAP_REFERENCE."""


class MapWriter:
    """Gathers what is added until an object is full. The map is changed with ``changed`` held; the store is not."""

    def __init__(
        self,
        store: ObjectStore,
        prefix: str,
        root: CheckpointRoot,
        epoch: int,
        changed: AbstractContextManager[object] | None = None,
    ) -> None:
        """``epoch``: of the writer that puts the objects."""
        self.store, self.prefix, self.root, self.epoch = store, prefix, root, epoch
        self.changed = changed or nullcontext()
        self._data = bytearray()
        self._waiting: list[tuple[Callable[[MapReference], None], int, int, int]] = []

    def add(self, data: bytes, point: Callable[[MapReference], None]) -> None:
        """Add a part or page; ``point`` has the map point to it once it is in the store. Raises StoreError."""
        self._waiting.append((point, len(self._data), len(data), xxhash.xxh3_64_intdigest(data)))
        self._data += data
        if len(self._data) >= MAP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Put what there is. Raises StoreError."""
        if not self._data:
            return
        number = self.root.map_number + 1
        self.store.put(make_map_key(self.prefix, number, self.epoch), self._data)
        with self.changed:
            self.root.map_number = number
            self.root.maps[number, self.epoch] = len(self._data)
            for point, offset, length, digest in self._waiting:
                point((number, self.epoch, offset, length, digest))
        self._data, self._waiting = bytearray(), []
