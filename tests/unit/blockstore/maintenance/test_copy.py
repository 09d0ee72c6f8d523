"""Copying a store: the same bytes, only what is live, and no store where the copy was broken off."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest

from tests.unit.object_store.faulty_store import Crash, Fault, FaultyStore
from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore.attach import attach_store
from zvault.blockstore.format import BLOCK_SIZE, SLOT_SIZE, make_segment_key, parse_key_numbers
from zvault.blockstore.maintenance.check import find_store_problems
from zvault.blockstore.maintenance.copy import CopiedStore, copy_store
from zvault.blockstore.maintenance.offline_gc import collect_all_garbage
from zvault.blockstore.maintenance.repair import quiet_options
from zvault.blockstore.map.map_part import PART_BLOCKS
from zvault.blockstore.options import EngineOptions
from zvault.blockstore.recovery import create_store, read_superblock
from zvault.blockstore.store_view import StoreView
from zvault.core.errors import Busy, NotFound, Refused
from zvault.object_store.interface import StoreError

BLOCKS = PART_BLOCKS + 3000


def options(folder: Path, uploads: int = 0) -> EngineOptions:
    return quiet_options(EngineOptions(folder, uploads=uploads, memory=1 << 20))


def content(tag: int, count: int) -> bytes:
    return b"".join((tag * 100_000 + at).to_bytes(8, "little") * (BLOCK_SIZE // 8) for at in range(count))


@pytest.fixture
def pool():
    with ThreadPoolExecutor(4) as it:
        yield it


@pytest.fixture
def source(tmp_path: Path) -> MemoryStore:
    """Written over again and again; the last writes are in the log only."""
    store = MemoryStore()
    create_store(store, "a/b", BLOCKS * BLOCK_SIZE)
    engine = attach_store(store, "a/b", options(tmp_path / "journal"), "test")
    for tag in range(4):
        engine.write(10 * BLOCK_SIZE, content(tag, 300))
        engine.write((PART_BLOCKS - 100) * BLOCK_SIZE, content(9 - tag, 200))
        engine.flush()
        engine.checkpoint()
    engine.zero(20 * BLOCK_SIZE, 100 * BLOCK_SIZE)
    engine.flush()
    engine.write((BLOCKS - 1) * BLOCK_SIZE, content(7, 1))
    engine.flush()
    engine.abandon()
    return store


def whole(store: MemoryStore, prefix: str) -> list[bytes]:
    """All its bytes, 5000 blocks each: their digests, for they are hundreds of megabytes of zeroes."""
    view = StoreView(store, prefix)
    try:
        places = [*range(0, BLOCKS - 5000, 5000), BLOCKS - 5000]
        return [sha256(view.read(at * BLOCK_SIZE, 5000 * BLOCK_SIZE)).digest() for at in places]
    finally:
        view.close()


def copied(source: MemoryStore, to, folder: Path, pool, uploads: int = 4, **how) -> CopiedStore:
    view = StoreView(source, "a/b")
    try:
        return copy_store(view, to, "c", options(folder / "copying", uploads), "test", pool, **how)
    finally:
        view.close()


@pytest.mark.parametrize("uploads", [0, 4])
def test_a_copy_has_the_same_bytes_and_only_live_ones(
    source: MemoryStore, tmp_path: Path, pool, uploads: int
):
    seen: list[tuple[int, int]] = []
    target = MemoryStore()
    done = copied(source, target, tmp_path, pool, uploads, progress=lambda _, at, of: seen.append((at, of)))
    assert whole(target, "c") == whole(source, "a/b")
    assert done.size == BLOCKS * BLOCK_SIZE
    assert done.data == (300 - 100 + 200 + 1) * BLOCK_SIZE
    assert done.stored < 1.02 * done.data
    assert seen[-1] == (BLOCKS, BLOCKS)
    assert read_superblock(target, "c").uuid != read_superblock(source, "a/b").uuid
    report = find_store_problems(target, "c", share=1, pool=pool)
    assert report.well
    assert report.strays == []


def test_a_copy_into_the_same_bucket(source: MemoryStore, tmp_path: Path, pool):
    before = {key: data for key, data in source.objects.items() if key.startswith("a/b/")}
    copied(source, source, tmp_path, pool)
    assert {key: data for key, data in source.objects.items() if key.startswith("a/b/")} == before
    assert whole(source, "c") == whole(source, "a/b")


def test_nothing_is_copied_over_something(source: MemoryStore, tmp_path: Path, pool):
    target = MemoryStore()
    target.put("c/anything", b"x")
    with pytest.raises(Refused, match="no new block store"):
        copied(source, target, tmp_path, pool)
    assert target.objects == {"c/anything": b"x"}


@pytest.mark.parametrize("wrong", ["crash before", "crash after", "refused", "lost"])
def test_a_copy_that_is_broken_off_is_no_store(source: MemoryStore, tmp_path: Path, pool, wrong):
    calls = FaultyStore(MemoryStore())
    copied(source, calls, tmp_path, pool, 0)
    last = len(calls.calls) - 1
    assert calls.calls[last].key == "c/store", "which makes it one"
    # There are no such objects yet: no epoch, and no segment after the end of the log.
    first = {next(call.number for call in calls.calls if call.name == name) for name in ("read", "tail")}
    for at in set(range(last)) - first:
        inner = MemoryStore()
        with pytest.raises((Crash, StoreError)):
            copied(source, FaultyStore(inner, [Fault(at, wrong)]), tmp_path / f"{at}", pool, 0)
        with pytest.raises(NotFound):
            read_superblock(inner, "c")
        if not wrong.startswith("crash"):
            assert inner.objects == {}, "what it had put is removed"


def test_a_source_that_is_cleared_meanwhile_is_told(source: MemoryStore, tmp_path: Path, pool):
    view = StoreView(source, "a/b")
    for key in [key for key in source.objects if "/segments/" in key]:
        if parse_key_numbers(key)[0] <= view.root.applied:
            del source.objects[key]
    target = MemoryStore()
    with pytest.raises(Busy, match="single moment"):
        copy_store(view, target, "c", options(tmp_path / "copying"), "test", pool)
    assert target.objects == {}
    view.close()


def test_a_damaged_source_is_not_copied(source: MemoryStore, tmp_path: Path, pool):
    for key in [
        key for key, data in source.objects.items() if "/segments/" in key and len(data) > 2 * SLOT_SIZE
    ]:
        source.objects[key] = bytes(4096) + source.objects[key][4096:]
    target = MemoryStore()
    with pytest.raises(StoreError, match="cannot be read"):
        copied(source, target, tmp_path, pool)
    assert target.objects == {}


def test_a_sweep_leaves_what_is_live(source: MemoryStore, tmp_path: Path, pool):
    before = whole(source, "a/b")
    source.put("a/b/maps/0000000001-00000000", b"stray")
    done = collect_all_garbage(source, "a/b", options(tmp_path / "sweeping"), "test", pool=pool)
    assert whole(source, "a/b") == before
    assert done.before > 1.5 * done.live
    assert done.after <= 1.1 * done.live
    assert (done.trouble, done.strays) == (None, 0), "a checkpoint had removed the stray by itself"
    assert "a/b/maps/0000000001-00000000" not in source.objects
    segments = sum(len(data) for key, data in source.objects.items() if "/segments/" in key)
    assert segments == done.after
    report = find_store_problems(source, "a/b", share=1, pool=pool)
    assert report.well
    assert report.strays == []
    again = collect_all_garbage(source, "a/b", options(tmp_path / "sweeping"), "test", pool=pool)
    assert (again.moved, again.cleared) == (0, 0)


def test_a_sweep_of_nothing(tmp_path: Path, pool):
    store = MemoryStore()
    create_store(store, "a/b", BLOCKS * BLOCK_SIZE)
    done = collect_all_garbage(store, "a/b", options(tmp_path / "sweeping"), "test", pool=pool)
    assert (done.before, done.after, done.cleared) == (0, 0, 0)


def test_a_sweep_with_a_damaged_segment_goes_on(source: MemoryStore, tmp_path: Path, pool):
    live = [key for key in sorted(source.objects) if "/segments/" in key]
    for key in live[-4:-3]:
        source.objects[key] = source.objects[key][:-70] + b"x" + source.objects[key][-69:]
    done = collect_all_garbage(source, "a/b", options(tmp_path / "sweeping"), "test", pool=pool)
    assert done.after >= done.live


def test_a_sweep_with_a_missing_segment_goes_on(source: MemoryStore, tmp_path: Path, pool):
    view = StoreView(source, "a/b")
    needed = next(one.sequence for one in view.blocks.locate(200, 1))
    view.close()
    (key,) = (key for key in source.objects if key.startswith(make_segment_key("a/b", needed, 1)))
    del source.objects[key]
    done = collect_all_garbage(source, "a/b", options(tmp_path / "sweeping"), "test", pool=pool)
    assert done.after >= done.live
