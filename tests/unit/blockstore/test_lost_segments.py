"""A store that loses segments, or does not list them: what was acknowledged is never rolled back unseen."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import xxhash

from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore.attach import attach_store
from zvault.blockstore.engine import BlockEngine
from zvault.blockstore.format import BLOCK_SIZE, FOOTER_SIZE, ObjectDamaged, parse_key_numbers
from zvault.blockstore.maintenance.check import find_store_problems
from zvault.blockstore.maintenance.repair import RepairJob, repair_store
from zvault.blockstore.map.map_part import PART_BLOCKS
from zvault.blockstore.options import EngineOptions
from zvault.blockstore.recovery import create_store
from zvault.blockstore.store_view import view_store_now
from zvault.core.errors import Refused
from zvault.object_store.interface import ListedObject, StoreError

FLUSHES = 20


class Hiding(MemoryStore):
    """A store whose listings leave objects out, which are there."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden: set[str] = set()

    def list(self, prefix: str, after: str = "") -> Iterator[ListedObject]:
        return (one for one in super().list(prefix, after) if one.key not in self.hidden)


@pytest.fixture
def store() -> Hiding:
    it = Hiding()
    create_store(it, "v", PART_BLOCKS * BLOCK_SIZE)
    return it


def opened(store: MemoryStore, folder: Path, told: list[str] | None = None) -> BlockEngine:
    options = EngineOptions(folder / "journal", uploads=0, linger=1e9)
    return attach_store(store, "v", options, "test", (told if told is not None else []).append)


def died(engine: BlockEngine, folder: Path) -> None:
    """The host is gone, with the journal in its memory."""
    engine.fail(StoreError("it is gone"))
    engine.abandon()
    for file in (folder / "journal").iterdir():
        file.unlink()


def flushed(store: MemoryStore, folder: Path, count: int = FLUSHES) -> None:
    engine = opened(store, folder)
    for block in range(count):
        engine.write(block * BLOCK_SIZE, bytes([block + 1]) * BLOCK_SIZE)
        engine.flush()
    died(engine, folder)


def segments(store: MemoryStore) -> list[str]:
    return sorted(key for key in store.objects if key.startswith("v/segments/"))


def blocks_there(engine: BlockEngine, count: int = FLUSHES) -> int:
    return sum(
        engine.read(block * BLOCK_SIZE, BLOCK_SIZE) == bytes([block + 1]) * BLOCK_SIZE
        for block in range(count)
    )


def without_watermark(store: MemoryStore, key: str) -> None:
    """As a zvault wrote it whose footers do not say what is in the store."""
    data = store.objects[key]
    magic, uuid, epoch, sequence, frame, _, _, slots, entries, table, _ = struct.unpack(
        "<8s16sQQQQQIIQQ", data[-FOOTER_SIZE:]
    )
    assert magic == b"zvsegm02"
    footer = struct.pack("<8s16sQQQIIQ", b"zvsegm01", uuid, epoch, sequence, frame, slots, entries, table)
    store.objects[key] = data[:-FOOTER_SIZE] + footer + xxhash.xxh3_64_digest(footer)


@pytest.mark.parametrize("lost", [1, 5, FLUSHES - 1])
def test_a_lost_segment_below_what_was_acknowledged_is_damage(
    store: Hiding, tmp_path: Path, lost: int
) -> None:
    flushed(store, tmp_path)
    del store.objects[segments(store)[lost - 1]]
    left = segments(store)
    for _ in range(2):
        with pytest.raises(ObjectDamaged, match=f"segment {lost} ") as error:
            opened(store, tmp_path)
        assert "acknowledged" in str(error.value)
        assert "check" in error.value.next
    assert segments(store) == left, "nothing beyond it is removed"
    with pytest.raises(ObjectDamaged, match=f"segment {lost} "):
        view_store_now(store, "v", workers=0)


@pytest.mark.parametrize("hidden", [{5}, {1}, {5, 6, 7}, {FLUSHES}, set(range(4, FLUSHES + 1))], ids=str)
def test_a_segment_that_a_listing_leaves_out_is_used(store: Hiding, tmp_path: Path, hidden: set[int]) -> None:
    flushed(store, tmp_path)
    store.hidden = {key for key in segments(store) if parse_key_numbers(key)[0] in hidden}
    view = view_store_now(store, "v", workers=0)
    assert view.read((FLUSHES - 1) * BLOCK_SIZE, BLOCK_SIZE) == bytes([FLUSHES]) * BLOCK_SIZE
    view.close()
    engine = opened(store, tmp_path)
    assert blocks_there(engine) == FLUSHES
    engine.write(0, bytes([1]) * BLOCK_SIZE)
    engine.flush()
    for _ in range(3):
        engine.checkpoint()
    assert blocks_there(engine) == FLUSHES
    engine.close()


def test_a_gap_that_a_crash_leaves_is_none(store: Hiding, tmp_path: Path) -> None:
    """Segments go side by side: what was on its way then was not acknowledged."""
    flushed(store, tmp_path, 4)
    engine = opened(store, tmp_path)
    for block in range(4, 7):
        engine.write(block * BLOCK_SIZE, bytes([block + 1]) * BLOCK_SIZE)
        with engine.changed:
            engine.log.seal()
    first = engine.log.waiting.popleft()
    while engine.log.upload():
        pass
    engine.log.waiting.append(first)
    died(engine, tmp_path)
    assert [parse_key_numbers(key)[0] for key in segments(store)] == [1, 2, 3, 4, 6, 7]
    told: list[str] = []
    engine = opened(store, tmp_path, told)
    assert blocks_there(engine) == 4
    assert any("2 segments" in text for text in told)
    engine.close()


def test_a_gap_before_a_writers_own_first_segment_is_damage(store: Hiding, tmp_path: Path) -> None:
    """Its first checkpoint says where it began, so all before that was there."""
    flushed(store, tmp_path, 3)
    engine = opened(store, tmp_path)
    died(engine, tmp_path)
    del store.objects[segments(store)[-1]]
    with pytest.raises(ObjectDamaged, match="segment 3 "):
        opened(store, tmp_path)


def test_a_checkpoint_that_a_later_writer_put_is_missed(store: Hiding, tmp_path: Path) -> None:
    flushed(store, tmp_path, 2)
    flushed(store, tmp_path, 3)
    newest = max(key for key in store.objects if key.startswith("v/checkpoints/"))
    store.hidden = {newest}
    left = segments(store)
    with pytest.raises(ObjectDamaged, match="checkpoint of epoch 2"):
        opened(store, tmp_path)
    assert segments(store) == left


@pytest.mark.parametrize("how", ["hidden", "removed"])
def test_a_store_without_any_checkpoint_is_not_begun_anew(store: Hiding, tmp_path: Path, how: str) -> None:
    flushed(store, tmp_path, 2)
    roots = {key for key in store.objects if key.startswith("v/checkpoints/")}
    if how == "hidden":
        store.hidden = roots
    else:
        for key in roots:
            del store.objects[key]
    before = set(store.objects)
    with pytest.raises(ObjectDamaged, match="no checkpoint"):
        opened(store, tmp_path)
    assert set(store.objects) == before


def test_a_listing_that_shows_nothing_does_not_begin_it_anew(store: Hiding, tmp_path: Path) -> None:
    flushed(store, tmp_path, 2)
    store.hidden = set(store.objects)
    with pytest.raises(ObjectDamaged, match="listing"):
        opened(store, tmp_path)


def test_objects_of_other_names_are_left_alone(store: Hiding, tmp_path: Path) -> None:
    flushed(store, tmp_path, 2)
    foreign = {
        f"v/{kind}/{name}": b"mine"
        for kind in ("segments", "checkpoints", "maps")
        for name in (
            "notes.txt",
            "0-1",
            "zzzzzzzz-zzzzzzzzzz",
            "0000000001-00000001.bak",
            "+000000001-00000001",
        )
    }
    store.objects |= foreign
    engine = opened(store, tmp_path)
    assert blocks_there(engine, 2) == 2
    for block in range(3):
        engine.write(block * BLOCK_SIZE, b"x" * BLOCK_SIZE)
        engine.flush()
        engine.checkpoint()
    engine.close()
    view_store_now(store, "v", workers=0).close()
    assert foreign.keys() <= store.objects.keys()


def test_older_segments_do_not_say_and_that_is_told(store: Hiding, tmp_path: Path) -> None:
    flushed(store, tmp_path, 6)
    for key in segments(store):
        without_watermark(store, key)
    engine = opened(store, tmp_path)
    assert blocks_there(engine, 6) == 6
    died(engine, tmp_path)
    newest = max(key for key in store.objects if key.startswith("v/checkpoints/"))
    del store.objects[newest]  # as if nobody had opened it since
    del store.objects[segments(store)[2]]
    told: list[str] = []
    engine = opened(store, tmp_path, told)
    assert blocks_there(engine, 6) == 2
    assert any("older zvault" in text and "3 segments" in text for text in told)
    engine.close()


def test_check_names_it_and_cuts_the_log_only_when_told(store: Hiding, tmp_path: Path) -> None:
    flushed(store, tmp_path)
    gone = segments(store)[4]
    del store.objects[gone]
    with ThreadPoolExecutor(2) as pool:
        (problem,) = find_store_problems(store, "v", share=1, pool=pool, settle=0).problems
        assert (problem.kind, problem.key) == ("log", gone)
        assert "acknowledged" in problem.why
        options = EngineOptions(tmp_path / "journal", uploads=0)
        left = segments(store)
        with pytest.raises(Refused, match="--cut-log") as error:
            repair_store(store, "v", RepairJob(options, "repairer"), pool)
        assert "segment 5" in str(error.value)
        assert segments(store) == left
        report = repair_store(store, "v", RepairJob(options, "repairer", cut=True), pool)
        assert report.well, report.problems
    engine = opened(store, tmp_path)
    assert blocks_there(engine) == 4
    engine.close()


def test_a_flush_costs_no_more_requests(store: Hiding, tmp_path: Path) -> None:
    from tests.unit.object_store.faulty_store import FaultyStore

    counted = FaultyStore(store)
    engine = attach_store(counted, "v", EngineOptions(tmp_path / "journal", uploads=0), "test")
    engine.write(0, b"x" * BLOCK_SIZE)
    before = len(counted.calls)
    engine.flush()
    assert [call.name for call in counted.calls[before:]] == ["put", "read"]
    engine.close()
