"""The block store's engine, case by case: its memory, a segment that is gone, discards, a full disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.blockstore.engine_world import listed
from tests.unit.object_store.faulty_store import FaultyStore
from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore.attach import attach
from zvault.blockstore.format import BLOCK
from zvault.blockstore.log.journal import NoRoom
from zvault.blockstore.map.map_part import PART
from zvault.blockstore.options import Options
from zvault.blockstore.recovery import create
from zvault.object_store.interface import StoreError


def test_a_map_larger_than_its_memory(tmp_path: Path) -> None:
    store = MemoryStore()
    create(store, "vault", 64 * PART * BLOCK)
    options = Options(tmp_path / "a", uploads=0, memory=0)
    engine = attach(store, "vault", options, "a")
    for part in range(1, 64):
        engine.write((part * PART - 1) * BLOCK, part.to_bytes(2, "little") * BLOCK)
    engine.close()
    engine = attach(store, "vault", options, "a")
    for part in range(1, 64):
        assert engine.read((part * PART - 1) * BLOCK, 2 * BLOCK) == part.to_bytes(2, "little") * BLOCK
    assert engine.blocks.memory_used < 9 * 300
    engine.close()


def test_who_writes_is_known_from_the_roots_too(tmp_path: Path) -> None:
    store = MemoryStore()
    create(store, "vault", PART * BLOCK)
    options = Options(tmp_path / "a", uploads=0)
    attach(store, "vault", options, "a").close()
    store.delete(["vault/epoch"])
    engine = attach(store, "vault", options, "a")
    engine.write(0, b"x" * BLOCK)
    engine.close()
    engine = attach(store, "vault", options, "a")
    assert engine.read(0, BLOCK) == b"x" * BLOCK
    engine.close()


def test_a_segment_that_is_gone_is_left_alone(tmp_path: Path) -> None:
    store = MemoryStore()
    create(store, "vault", PART * BLOCK)
    engine = attach(store, "vault", Options(tmp_path / "a", uploads=0), "a")
    engine.write(0, b"x" * (400 * BLOCK))
    engine.flush()
    engine.write(0, b"y" * (200 * BLOCK))
    engine.flush()
    engine.checkpoint()
    store.delete(listed(store, "segments")[:1])
    assert not engine.collector.clear(1)
    assert engine.read(0, BLOCK) == b"y" * BLOCK
    with pytest.raises(StoreError):
        engine.read(300 * BLOCK, BLOCK)
    assert "segments" in engine.status()["trouble"]
    engine.close()


def test_a_discard_touches_only_whole_blocks_and_asks_for_nothing(tmp_path: Path) -> None:
    store = FaultyStore(MemoryStore())
    create(store, "vault", PART * BLOCK)
    engine = attach(store, "vault", Options(tmp_path / "a", uploads=0), "a")
    engine.write(0, b"x" * (8 * BLOCK))
    engine.flush()
    asked = len(store.calls)
    engine.discard(BLOCK + 512, 4 * BLOCK)
    engine.discard(6 * BLOCK + 1, 100)
    assert len(store.calls) == asked
    assert engine.read(0, 8 * BLOCK) == b"x" * (2 * BLOCK) + bytes(3 * BLOCK) + b"x" * (3 * BLOCK)
    engine.close()


def test_a_full_disk_is_told_until_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    create(store, "vault", PART * BLOCK)
    engine = attach(store, "vault", Options(tmp_path / "a", uploads=0), "a")
    told: list[str | None] = []
    append = engine.journal.append

    def full_once(*frame: Any) -> None:
        told.append(engine.status()["trouble"])
        if len(told) == 1:
            raise NoRoom("the journal's disk is full")
        append(*frame)

    monkeypatch.setattr(engine.journal, "append", full_once)
    engine.write(0, b"x" * BLOCK)
    assert told == [None, "the journal's disk is full"]
    assert engine.status()["trouble"] is None
    assert engine.read(0, BLOCK) == b"x" * BLOCK
    engine.close()
