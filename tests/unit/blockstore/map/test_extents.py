"""Ranges of a device that hold something, also where the map is larger than its memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore.attach import attach_store
from zvault.blockstore.format import BLOCK_SIZE
from zvault.blockstore.map.blockmap import LEAST_LOADED_PARTS
from zvault.blockstore.map.extents import find_extents
from zvault.blockstore.map.map_part import PART_BLOCKS
from zvault.blockstore.options import EngineOptions
from zvault.blockstore.recovery import create_store

PARTS = 2 * LEAST_LOADED_PARTS
PART_SIZE = PART_BLOCKS * BLOCK_SIZE


class CountedStore(MemoryStore):
    """A store that refuses to be asked for ever."""

    gets = 0

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        self.gets += 1
        assert self.gets < 20 * PARTS, "it asks again and again"
        return super().get(key, start, length)


@pytest.fixture
def store() -> CountedStore:
    found = CountedStore()
    create_store(found, "v", PARTS * PART_SIZE)
    return found


def test_a_map_larger_than_its_memory(store: CountedStore, tmp_path: Path) -> None:
    engine = attach_store(store, "v", EngineOptions(tmp_path / "journal", uploads=0, memory=0), "test")
    for part in range(PARTS):
        engine.write(part * PART_SIZE, memoryview(os.urandom(BLOCK_SIZE)))
    engine.flush()
    engine.checkpoint()
    found = find_extents(engine.blocks, engine.size, 0, engine.size)
    assert found == [
        one
        for part in range(PARTS)
        for one in (
            (part * PART_SIZE, BLOCK_SIZE, False),
            (part * PART_SIZE + BLOCK_SIZE, PART_SIZE - BLOCK_SIZE, True),
        )
    ]
    ragged = find_extents(engine.blocks, engine.size, 100, PART_SIZE)
    assert ragged == [
        (100, BLOCK_SIZE - 100, False),
        (BLOCK_SIZE, PART_SIZE - BLOCK_SIZE, True),
        (PART_SIZE, 100, False),
    ]
    engine.close()
