"""What a store tells of itself, and by how few requests."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.unit.object_store.faulty_store import FaultyStore
from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore.attach import attach_store
from zvault.blockstore.format import BLOCK_SIZE, SLOT_SIZE
from zvault.blockstore.maintenance.info import price_requests, read_store_info
from zvault.blockstore.maintenance.repair import quiet_options
from zvault.blockstore.options import EngineOptions
from zvault.blockstore.recovery import create_store
from zvault.core.cost.prices import StorePrices
from zvault.core.errors import NotFound

PRICES = StorePrices(put=0.005, get=0.0004)


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    store = MemoryStore()
    create_store(store, "v", 1 << 30)
    engine = attach_store(
        store, "v", quiet_options(EngineOptions(tmp_path / "journal", uploads=0)), "filer1, process 7"
    )
    engine.write(0, b"a" * 100 * BLOCK_SIZE)
    engine.flush()
    engine.write(0, b"b" * 40 * BLOCK_SIZE)
    engine.flush()
    engine.checkpoint()
    engine.write(0, b"c" * BLOCK_SIZE)
    engine.flush()
    engine.abandon()
    return store


def test_it_tells_what_there_is_by_a_few_requests(store: MemoryStore):
    asked = FaultyStore(store)
    with ThreadPoolExecutor(2) as pool:
        found = read_store_info(asked, "v", pool)
    assert (found.size, found.epoch, found.owner) == (1 << 30, 1, "filer1, process 7")
    assert found.live_bytes == 100 * BLOCK_SIZE
    segments = [len(data) for key, data in sorted(store.objects.items()) if "/segments/" in key]
    assert found.stored_bytes == sum(segments)
    assert found.segments == 3
    assert (found.log_segments, found.log_bytes) == (1, segments[2])
    assert found.dead_bytes == segments[0] + segments[1] - 100 * SLOT_SIZE
    assert found.map_objects == len([key for key in store.objects if "/maps/" in key])
    assert found.map_bytes == sum(len(data) for key, data in store.objects.items() if "/maps/" in key)
    assert len(asked.calls) <= 6
    assert not any(call.name in ("put", "delete") for call in asked.calls)


def test_a_fresh_store_has_nothing(tmp_path: Path):
    store = MemoryStore()
    create_store(store, "v", 1 << 20)
    with ThreadPoolExecutor(2) as pool:
        found = read_store_info(store, "v", pool)
        assert (found.epoch, found.live_bytes, found.stored_bytes, found.segments) == (0, 0, 0, 0)
        with pytest.raises(NotFound):
            read_store_info(store, "w", pool)


def test_money():
    counts = {"put": 2000, "list": 1000, "get": 5000, "delete": 9}
    assert price_requests(counts, PRICES) == pytest.approx(3 * 0.005 + 5 * 0.0004)
    assert price_requests({}, PRICES) == 0
