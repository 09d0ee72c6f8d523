"""A device in an encrypted store: all that is done with one, and what is put in the place of its objects is refused."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.unit.blockstore.encryption.test_encrypted_objects import KEY, OTHER, encrypted
from tests.unit.object_store.faulty_store import Crash, Fault, FaultyStore
from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore.attach import attach_store
from zvault.blockstore.encryption.pieces import NotAuthentic
from zvault.blockstore.engine import BlockEngine
from zvault.blockstore.format import BLOCK_SIZE, ObjectDamaged
from zvault.blockstore.known_position import StoreWentBack
from zvault.blockstore.maintenance.check import find_store_problems
from zvault.blockstore.maintenance.copy import copy_store
from zvault.blockstore.maintenance.offline_gc import collect_all_garbage
from zvault.blockstore.maintenance.repair import RepairJob, quiet_options, repair_store
from zvault.blockstore.map.map_part import PART_BLOCKS
from zvault.blockstore.options import EngineOptions
from zvault.blockstore.recovery import create_store, read_superblock
from zvault.blockstore.store_view import StoreView
from zvault.core.errors import Refused
from zvault.object_store.interface import StoreError

MARKER = b"what nobody may read in the bucket "
SIZE = 2 * PART_BLOCKS * BLOCK_SIZE


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as it:
        yield it


@pytest.fixture
def bare() -> MemoryStore:
    it = MemoryStore()
    create_store(encrypted(it), "v", SIZE)
    return it


def options_in(folder: Path) -> EngineOptions:
    return quiet_options(EngineOptions(folder / "journal", uploads=0, memory=1 << 20, seen=folder / "seen"))


def filled(bare: MemoryStore, folder: Path) -> tuple[BlockEngine, bytes]:
    """A device with some checkpoints and a log after the last; and what it holds."""
    engine = attach_store(encrypted(bare), "v", options_in(folder), "test")
    for tag in range(3):
        for at in range(0, 3000, 500):
            engine.write(
                at * BLOCK_SIZE, (MARKER + b"%d %d" % (tag, at)).ljust(64) * (BLOCK_SIZE // 64) * 400
            )
        engine.zero(20 * BLOCK_SIZE, 50 * BLOCK_SIZE)
        engine.flush()
        if tag < 2:
            engine.checkpoint()
    return engine, engine.read(0, 4000 * BLOCK_SIZE)


def died(engine: BlockEngine, folder: Path) -> None:
    engine.fail(StoreError("it is gone"))
    engine.abandon()
    for file in (folder / "journal").iterdir():
        file.unlink()


def test_a_life(bare: MemoryStore, tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    engine, truth = filled(bare, tmp_path)
    assert MARKER not in b"".join(bare.objects.values())
    assert MARKER in truth
    died(engine, tmp_path)
    engine = attach_store(encrypted(bare), "v", options_in(tmp_path), "test")
    assert engine.read(0, 4000 * BLOCK_SIZE) == truth
    engine.close()
    found = find_store_problems(encrypted(bare), "v", share=1.0, pool=pool, settle=0)
    assert found.problems == []
    assert found.strays == []
    collect_all_garbage(encrypted(bare), "v", options_in(tmp_path), "test", pool=pool)
    view = StoreView(encrypted(bare), "v")
    assert view.read(0, 4000 * BLOCK_SIZE) == truth
    view.close()
    assert find_store_problems(encrypted(bare), "v", share=1.0, pool=pool, settle=0).problems == []


def test_keys_that_change_in_its_life(bare: MemoryStore, tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    engine, _ = filled(bare, tmp_path)
    encrypted(bare).rotate(None, OTHER, 5.0)
    engine.write(0, MARKER[:32] * 128)  # it goes on with the key that it has
    engine.close()
    again = attach_store(encrypted(bare, OTHER), "v", options_in(tmp_path), "test")
    again.write(BLOCK_SIZE, MARKER[:32] * 128)
    again.flush()
    truth = again.read(0, 4000 * BLOCK_SIZE)
    assert truth[: 2 * BLOCK_SIZE] == MARKER[:32] * 256
    died(again, tmp_path)
    with pytest.raises(Refused):
        attach_store(encrypted(bare, KEY), "v", options_in(tmp_path), "test")
    assert find_store_problems(encrypted(bare, OTHER), "v", share=1.0, pool=pool, settle=0).problems == []
    view = StoreView(encrypted(bare, OTHER), "v")
    assert view.read(0, 4000 * BLOCK_SIZE) == truth
    view.close()


def test_an_older_state_of_the_bucket_is_refused_by_name(bare: MemoryStore, tmp_path: Path) -> None:
    engine, _ = filled(bare, tmp_path)
    older = dict(bare.objects)
    engine.checkpoint()
    newest = max(key for key in bare.objects if "/checkpoints/" in key)
    engine.write(0, MARKER[:32] * 128)
    engine.flush()
    engine.checkpoint()
    engine.close()
    bare.objects = older
    with pytest.raises(StoreWentBack) as error:
        attach_store(encrypted(bare), "v", options_in(tmp_path), "test")
    newest = error.value.why
    assert "v/checkpoints/00000001-" in newest
    assert "missing" in newest


def test_a_log_that_went_back_is_refused_by_name(bare: MemoryStore, tmp_path: Path) -> None:
    engine, _ = filled(bare, tmp_path)
    older = dict(bare.objects)
    engine.write(0, MARKER[:32] * 128)
    engine.flush()
    (lost,) = set(bare.objects) - set(older)
    died(engine, tmp_path)
    bare.objects = older
    with pytest.raises(StoreWentBack) as error:
        attach_store(encrypted(bare), "v", options_in(tmp_path), "test")
    assert lost in error.value.why


def read_all(bare: MemoryStore, folder: Path, truth: bytes) -> None:
    engine = attach_store(encrypted(bare), "v", options_in(folder), "test")
    try:
        assert engine.read(0, 4000 * BLOCK_SIZE) == truth
    finally:
        engine.abandon()


def _swapped(bare: MemoryStore, kind: str) -> None:
    one, other = sorted(key for key in bare.objects if f"/{kind}/" in key)[-2:]
    bare.objects[one], bare.objects[other] = bare.objects[other], bare.objects[one]


def _replaced(bare: MemoryStore, kind: str) -> None:
    for key in bare.objects:
        if f"/{kind}/" in key:
            bare.objects[key] = os.urandom(len(bare.objects[key]))


def _plain(bare: MemoryStore, kind: str) -> None:
    """What the writer of a store that is not encrypted would have put, with all checksums right."""
    store = encrypted(bare)
    for key in list(bare.objects):
        if f"/{kind}/" in key:
            bare.objects[key] = store.get(key)


@pytest.mark.parametrize("forged", [_swapped, _replaced, _plain])
@pytest.mark.parametrize("kind", ["segments", "checkpoints", "maps"])
def test_a_forged_object_is_never_read(
    bare: MemoryStore,
    tmp_path: Path,
    pool: ThreadPoolExecutor,
    kind: str,
    forged: Callable[[MemoryStore, str], None],
) -> None:
    engine, truth = filled(bare, tmp_path)
    died(engine, tmp_path)
    forged(bare, kind)
    with pytest.raises((ObjectDamaged, Refused)):
        read_all(bare, tmp_path, truth)
    assert find_store_problems(encrypted(bare), "v", share=1.0, pool=pool, settle=0).problems


def test_a_forged_epoch_is_refused(bare: MemoryStore, tmp_path: Path) -> None:
    engine, _ = filled(bare, tmp_path)
    engine.close()
    bare.objects["v/epoch"] = b'{"epoch": 900, "owner": "somebody", "since": 0, "root": [1, 1]}'
    with pytest.raises(NotAuthentic, match="v/epoch"):
        attach_store(encrypted(bare), "v", options_in(tmp_path), "test")


@pytest.mark.parametrize("lost", ["missing", "damaged"])
def test_a_lost_first_object_is_repaired(
    bare: MemoryStore, tmp_path: Path, pool: ThreadPoolExecutor, lost: str
) -> None:
    engine, truth = filled(bare, tmp_path)
    engine.close()
    what = read_superblock(encrypted(bare), "v")
    if lost == "missing":
        del bare.objects["v/store"]
    else:
        bare.objects["v/store"] = bare.objects["v/store"][:100]
    assert find_store_problems(encrypted(bare), "v", share=0, pool=pool, settle=0).problems
    found = repair_store(encrypted(bare), "v", RepairJob(options_in(tmp_path), "test", size=SIZE), pool)
    assert found.problems == []
    assert read_superblock(encrypted(bare), "v").uuid == what.uuid
    view = StoreView(encrypted(bare), "v")
    assert view.read(0, 4000 * BLOCK_SIZE) == truth
    view.close()


@pytest.mark.parametrize("calls", range(0, 40, 3))
def test_a_copy_encrypts_and_an_interrupted_one_is_no_store(
    tmp_path: Path, pool: ThreadPoolExecutor, calls: int
) -> None:
    source, target = MemoryStore(), MemoryStore()
    create_store(source, "v", SIZE)
    engine = attach_store(source, "v", options_in(tmp_path), "test")
    engine.write(0, MARKER[:32] * 128 * 3000)
    engine.flush()
    truth = engine.read(0, 4000 * BLOCK_SIZE)
    engine.close()
    scratch = EngineOptions(tmp_path / "scratch", uploads=0)
    view = StoreView(source, "v")
    try:
        wrong = FaultyStore(target, [Fault(calls, "crash before")])
        copy_store(view, wrong, "w", scratch, "test", pool, encrypted=lambda one: encrypted(one, prefix="w"))
    except Crash:
        assert "w/store" not in target.objects
        return
    finally:
        view.close()
    assert MARKER[:32] not in b"".join(target.objects.values())
    there = StoreView(encrypted(target, prefix="w"), "w")
    assert there.read(0, 4000 * BLOCK_SIZE) == truth
    there.close()
    assert (
        find_store_problems(encrypted(target, prefix="w"), "w", share=1.0, pool=pool, settle=0).problems == []
    )
