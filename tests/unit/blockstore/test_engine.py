"""The block store's engine, case by case: its memory, a segment that is gone, discards, a full disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.blockstore.engine_world import listed
from tests.unit.object_store.faulty_store import FaultyStore
from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore.attach import attach_store
from zvault.blockstore.format import BLOCK_SIZE
from zvault.blockstore.log.journal import JournalDiskFull
from zvault.blockstore.map.map_part import PART_BLOCKS
from zvault.blockstore.options import EngineOptions
from zvault.blockstore.recovery import create_store
from zvault.object_store.interface import StoreError


def test_a_map_larger_than_its_memory(tmp_path: Path) -> None:
    store = MemoryStore()
    create_store(store, "vault", 64 * PART_BLOCKS * BLOCK_SIZE)
    options = EngineOptions(tmp_path / "a", uploads=0, memory=0)
    engine = attach_store(store, "vault", options, "a")
    for part in range(1, 64):
        engine.write((part * PART_BLOCKS - 1) * BLOCK_SIZE, part.to_bytes(2, "little") * BLOCK_SIZE)
    engine.close()
    engine = attach_store(store, "vault", options, "a")
    for part in range(1, 64):
        assert (
            engine.read((part * PART_BLOCKS - 1) * BLOCK_SIZE, 2 * BLOCK_SIZE)
            == part.to_bytes(2, "little") * BLOCK_SIZE
        )
    assert engine.blocks.memory_used < 9 * 300
    engine.close()


def test_who_writes_is_known_from_the_roots_too(tmp_path: Path) -> None:
    store = MemoryStore()
    create_store(store, "vault", PART_BLOCKS * BLOCK_SIZE)
    options = EngineOptions(tmp_path / "a", uploads=0)
    attach_store(store, "vault", options, "a").close()
    store.delete(["vault/epoch"])
    engine = attach_store(store, "vault", options, "a")
    engine.write(0, b"x" * BLOCK_SIZE)
    engine.close()
    engine = attach_store(store, "vault", options, "a")
    assert engine.read(0, BLOCK_SIZE) == b"x" * BLOCK_SIZE
    engine.close()


def test_a_segment_that_is_gone_is_left_alone(tmp_path: Path) -> None:
    store = MemoryStore()
    create_store(store, "vault", PART_BLOCKS * BLOCK_SIZE)
    engine = attach_store(store, "vault", EngineOptions(tmp_path / "a", uploads=0), "a")
    engine.write(0, b"x" * (400 * BLOCK_SIZE))
    engine.flush()
    engine.write(0, b"y" * (200 * BLOCK_SIZE))
    engine.flush()
    engine.checkpoint()
    store.delete(listed(store, "segments")[:1])
    assert not engine.cleaner.clear(1)
    assert engine.read(0, BLOCK_SIZE) == b"y" * BLOCK_SIZE
    with pytest.raises(StoreError):
        engine.read(300 * BLOCK_SIZE, BLOCK_SIZE)
    assert "segments" in engine.status()["trouble"]
    engine.close()


def test_a_discard_touches_only_whole_blocks_and_asks_for_nothing(tmp_path: Path) -> None:
    store = FaultyStore(MemoryStore())
    create_store(store, "vault", PART_BLOCKS * BLOCK_SIZE)
    engine = attach_store(store, "vault", EngineOptions(tmp_path / "a", uploads=0), "a")
    engine.write(0, b"x" * (8 * BLOCK_SIZE))
    engine.flush()
    asked = len(store.calls)
    engine.discard(BLOCK_SIZE + 512, 4 * BLOCK_SIZE)
    engine.discard(6 * BLOCK_SIZE + 1, 100)
    assert len(store.calls) == asked
    assert engine.read(0, 8 * BLOCK_SIZE) == b"x" * (2 * BLOCK_SIZE) + bytes(3 * BLOCK_SIZE) + b"x" * (
        3 * BLOCK_SIZE
    )
    engine.close()


def test_a_discard_of_all_is_a_frame_for_each_gib(tmp_path: Path) -> None:
    """So none outlasts a device's timeout, and the block store's profile needs no bound for them."""
    store = FaultyStore(MemoryStore())
    create_store(store, "vault", 64 << 30)
    engine = attach_store(store, "vault", EngineOptions(tmp_path / "a", uploads=0), "a")
    asked, frame = len(store.calls), engine.log.frame
    engine.discard(0, 64 << 30)
    assert (len(store.calls), engine.log.frame - frame) == (asked, 64)
    engine.close()


def test_a_full_disk_is_told_until_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    create_store(store, "vault", PART_BLOCKS * BLOCK_SIZE)
    engine = attach_store(store, "vault", EngineOptions(tmp_path / "a", uploads=0), "a")
    told: list[str | None] = []
    append = engine.journal.append

    def full_once(*frame: Any) -> None:
        told.append(engine.status()["trouble"])
        if len(told) == 1:
            raise JournalDiskFull("the journal's disk is full")
        append(*frame)

    monkeypatch.setattr(engine.journal, "append", full_once)
    engine.write(0, b"x" * BLOCK_SIZE)
    assert told == [None, "the journal's disk is full"]
    assert engine.status()["trouble"] is None
    assert engine.read(0, BLOCK_SIZE) == b"x" * BLOCK_SIZE
    engine.close()
