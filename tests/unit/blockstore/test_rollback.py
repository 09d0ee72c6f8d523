"""A store that went back to an earlier state of itself, sound in every byte: this host remembers, and refuses it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore.attach import attach_store
from zvault.blockstore.engine import BlockEngine
from zvault.blockstore.format import BLOCK_SIZE, ObjectDamaged
from zvault.blockstore.known_position import SeenPosition, StorePosition, StoreWentBack
from zvault.blockstore.map.map_part import PART_BLOCKS
from zvault.blockstore.options import EngineOptions, WriteMode
from zvault.blockstore.recovery import create_store
from zvault.object_store.interface import StoreError

MODES = pytest.mark.parametrize("mode", ["strict", "writeback"])


@pytest.fixture
def store() -> MemoryStore:
    it = MemoryStore()
    create_store(it, "v", PART_BLOCKS * BLOCK_SIZE)
    return it


def options_in(folder: Path, mode: WriteMode = "strict") -> EngineOptions:
    return EngineOptions(folder / "journal", mode=mode, uploads=0, linger=1e9, seen=folder / "seen")


def write(engine: BlockEngine, block: int, byte: bytes) -> None:
    engine.write(block * BLOCK_SIZE, byte * BLOCK_SIZE)
    engine.flush()


def died(engine: BlockEngine, folder: Path, *, journal: bool = False) -> None:
    engine.fail(StoreError("it is gone"))
    engine.abandon()
    for file in () if journal else (folder / "journal").iterdir():
        file.unlink()


def last_segment_gone(store: MemoryStore) -> None:
    del store.objects[max(key for key in store.objects if key.startswith("v/segments/"))]


def put_back(before: dict[str, bytes]) -> Callable[[MemoryStore], None]:
    def do(store: MemoryStore) -> None:
        store.objects = dict(before)

    return do


def refused_and_untouched(store: MemoryStore, options: EngineOptions) -> None:
    before = {key: data for key, data in store.objects.items() if key != "v/epoch"}
    for _ in range(2):
        with pytest.raises(StoreWentBack) as error:
            attach_store(store, "v", options, "test")
        assert "--accept-rollback" in error.value.next
    assert {key: data for key, data in store.objects.items() if key != "v/epoch"} == before


@pytest.mark.parametrize("times", [0, 1, 2], ids=["the log", "a checkpoint", "several"])
@pytest.mark.parametrize("again", [False, True], ids=["same writer", "later writer"])
def test_an_older_state_of_the_whole_bucket_is_refused(
    store: MemoryStore, tmp_path: Path, times: int, again: bool
) -> None:
    options = options_in(tmp_path)
    engine = attach_store(store, "v", options, "test")
    write(engine, 0, b"a")
    older = dict(store.objects)
    write(engine, 1, b"b")
    for _ in range(times):
        engine.checkpoint()
        write(engine, 2, b"c")
    if again:
        engine.close()
        engine = attach_store(store, "v", options, "test")
        write(engine, 3, b"d")
    died(engine, tmp_path)
    store.objects = older
    refused_and_untouched(store, options)
    engine = attach_store(store, "v", replace(options, accept_older=True), "test")
    assert engine.read(0, 2 * BLOCK_SIZE) == b"a" * BLOCK_SIZE + bytes(BLOCK_SIZE)
    write(engine, 1, b"x")
    engine.close()
    attach_store(store, "v", options, "test").close()


def test_the_newest_segments_cannot_go_unseen(store: MemoryStore, tmp_path: Path) -> None:
    options = options_in(tmp_path)
    engine = attach_store(store, "v", options, "test")
    for block in range(3):
        write(engine, block, b"a")
    died(engine, tmp_path)
    last_segment_gone(store)
    refused_and_untouched(store, options)


def test_segments_that_went_side_by_side_cannot_go_unseen(store: MemoryStore, tmp_path: Path) -> None:
    """Those after the one that is missing do not say that it was acknowledged: they were on their way with it."""
    options = options_in(tmp_path)
    engine = attach_store(store, "v", options, "test")
    for block in range(2):
        engine.write(block * BLOCK_SIZE, b"a" * BLOCK_SIZE)
        with engine.changed:
            engine.log.seal()
    first = engine.log.waiting.popleft()
    engine.log.upload()
    engine.log.waiting.append(first)
    engine.flush()
    died(engine, tmp_path)
    del store.objects[min(key for key in store.objects if key.startswith("v/segments/"))]
    refused_and_untouched(store, options)


@MODES
def test_a_journal_that_is_newer_than_the_store_is_not_ignored(
    store: MemoryStore, tmp_path: Path, mode: WriteMode
) -> None:
    """Also where nothing else remembers."""
    options = replace(options_in(tmp_path, mode), seen=None)
    engine = attach_store(store, "v", options, "test")
    write(engine, 0, b"a")
    engine.close()
    older = dict(store.objects)
    engine = attach_store(store, "v", options, "test")
    write(engine, 1, b"b")
    died(engine, tmp_path, journal=True)
    store.objects = older
    refused_and_untouched(store, options)


@MODES
def test_a_log_that_ends_before_what_the_journal_released_is_refused(
    store: MemoryStore, tmp_path: Path, mode: WriteMode
) -> None:
    options = replace(options_in(tmp_path, mode), seen=None, journal_size=1 << 20)
    engine = attach_store(store, "v", options, "test")
    older: dict[str, bytes] = {}
    for block in range(60):
        write(engine, block, b"a")
        engine.put_all()
        engine.progress.release()
        older = older or dict(store.objects)
    died(engine, tmp_path, journal=True)
    store.objects = older
    refused_and_untouched(store, options)


def test_a_newest_checkpoint_that_went_is_noticed_by_a_host_that_never_saw_the_store(
    store: MemoryStore, tmp_path: Path
) -> None:
    first = attach_store(store, "v", options_in(tmp_path / "a"), "test")
    write(first, 0, b"a")
    older = {key: data for key, data in store.objects.items() if "/checkpoints/" in key}
    first.close()
    second = attach_store(store, "v", options_in(tmp_path / "b"), "test")
    second.close()
    third = attach_store(store, "v", options_in(tmp_path / "b"), "test")
    third.close()
    for key in [key for key in store.objects if "/checkpoints/" in key]:
        del store.objects[key]
    store.objects |= older
    never = options_in(tmp_path / "c")
    with pytest.raises(ObjectDamaged, match="newest checkpoint") as error:
        attach_store(store, "v", never, "test")
    assert "--accept-rollback" in error.value.next
    engine = attach_store(store, "v", replace(never, accept_older=True), "test")
    assert engine.read(0, BLOCK_SIZE) == b"a" * BLOCK_SIZE
    engine.close()
    attach_store(store, "v", never, "test").close()


def test_another_host_may_go_on_and_come_back(store: MemoryStore, tmp_path: Path) -> None:
    here, there = options_in(tmp_path / "a"), options_in(tmp_path / "b")
    for _ in range(3):
        for options in (here, there):
            engine = attach_store(store, "v", options, "test")
            for block in range(4):
                write(engine, block, b"a")
                engine.checkpoint()
            write(engine, 5, b"b")
            engine.close()


def test_what_another_host_cut_off_is_told(store: MemoryStore, tmp_path: Path) -> None:
    """It went on from an older state, which this host knows to lack what it was answered for."""
    here, there = options_in(tmp_path / "a"), options_in(tmp_path / "b")
    engine = attach_store(store, "v", here, "test")
    write(engine, 0, b"a")
    older = dict(store.objects)
    write(engine, 1, b"a")
    died(engine, tmp_path / "a")
    store.objects = older
    attach_store(store, "v", there, "test").close()
    refused_and_untouched(store, here)


def test_a_damaged_newest_checkpoint_still_gives_way_to_the_one_before(
    store: MemoryStore, tmp_path: Path
) -> None:
    options = options_in(tmp_path)
    engine = attach_store(store, "v", options, "test")
    for block in range(3):
        write(engine, block, b"a")
        engine.checkpoint()
    died(engine, tmp_path)
    newest = max(key for key in store.objects if key.startswith("v/checkpoints/"))
    store.objects[newest] = b"garbage"
    engine = attach_store(store, "v", options, "test")
    assert engine.read(2 * BLOCK_SIZE, BLOCK_SIZE) == b"a" * BLOCK_SIZE
    engine.close()


def test_a_writer_that_was_shut_out_remembers_only_what_counted(store: MemoryStore, tmp_path: Path) -> None:
    here, there = options_in(tmp_path / "a"), options_in(tmp_path / "b")
    engine = attach_store(store, "v", here, "test")
    write(engine, 0, b"a")
    other = attach_store(store, "v", there, "test")
    engine.write(BLOCK_SIZE, b"lost" * 1024)
    with pytest.raises(StoreError):
        engine.flush()
    engine.abandon()
    write(other, 1, b"b")
    other.close()
    engine = attach_store(store, "v", here, "test")
    assert engine.read(0, 2 * BLOCK_SIZE) == b"a" * BLOCK_SIZE + b"b" * BLOCK_SIZE
    engine.close()


def test_either_record_is_enough(tmp_path: Path) -> None:
    identity = bytes(range(16))
    seen = SeenPosition(tmp_path, identity)
    for segment in range(1, 6):
        seen.note(StorePosition(1, 1, segment))
    seen.close()
    whole = seen.path.read_bytes()
    assert len(whole) == 128
    for at, left in ((0, {4, 5}), (64, {4, 5})):
        seen.path.write_bytes(whole[:at] + os.urandom(64) + whole[at + 64 :])
        again = SeenPosition(tmp_path, identity)
        assert again.known is not None
        assert again.known.segment in left
        assert again.trouble is None
        again.close()
    seen.path.write_bytes(os.urandom(128))
    again = SeenPosition(tmp_path, identity)
    assert again.known is None
    assert "not known" in (again.trouble or "")
    again.note(StorePosition(1, 1, 1))
    assert again.trouble is None
    again.close()


def test_a_disk_that_cannot_keep_it_is_told_and_ends_nothing(store: MemoryStore, tmp_path: Path) -> None:
    (tmp_path / "seen").write_text("no folder")
    told: list[str] = []
    engine = attach_store(store, "v", options_in(tmp_path), "test", told.append)
    assert any("cannot be kept" in text for text in told)
    write(engine, 0, b"a")
    assert "cannot be kept" in (engine.status()["trouble"] or "")
    engine.close()


def test_it_never_goes_back_by_itself(tmp_path: Path) -> None:
    seen = SeenPosition(tmp_path, bytes(16))
    seen.note(StorePosition(2, 5, 9))
    for older in (StorePosition(1, 9, 99), StorePosition(2, 4, 9), StorePosition(2, 5, 3)):
        seen.note(older)
        assert seen.known == StorePosition(2, 5, 9)
    seen.note(StorePosition(2, 1, 1), anew=True)
    assert seen.known == StorePosition(2, 1, 1)
    seen.close()
