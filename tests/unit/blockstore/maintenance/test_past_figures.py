"""Moments that are kept, as people and checks see them: listed, checked, spared by every repair and collection."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.object_store.faulty_store import Crash, Fault, FaultyStore
from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore.attach import attach_store
from zvault.blockstore.format import (
    BLOCK_SIZE,
    SLOT_SIZE,
    make_checkpoint_key,
    make_map_key,
    make_segment_key,
)
from zvault.blockstore.kept_moments import find_moment_up_to
from zvault.blockstore.maintenance.check import find_store_problems
from zvault.blockstore.maintenance.check_advice import advise_on_check
from zvault.blockstore.maintenance.info import read_store_info
from zvault.blockstore.maintenance.offline_gc import collect_all_garbage
from zvault.blockstore.maintenance.past_figures import read_past_figures
from zvault.blockstore.maintenance.repair import RepairJob, quiet_options, repair_store
from zvault.blockstore.maintenance.rewind import rewind_store
from zvault.blockstore.map.map_part import PART_BLOCKS
from zvault.blockstore.map.root import CheckpointRoot
from zvault.blockstore.options import EngineOptions
from zvault.blockstore.recovery import create_store, read_newest_root, read_superblock
from zvault.blockstore.store_view import StoreView
from zvault.core.errors import NotFound
from zvault.core.policy.retention import KeepRules
from zvault.object_store.interface import StoreError

NOON = 1_700_049_600.0
BLOCKS = 64


class Old:
    """A store of six hours, each of which wrote over all that the one before had; three are kept."""

    def __init__(self, folder: Path) -> None:
        self.store, self.pool = MemoryStore(), ThreadPoolExecutor(4)
        ticks = iter(range(10_000))
        self.options = EngineOptions(
            folder / "journal",
            uploads=0,
            history=KeepRules(hourly=3),
            clock=lambda: NOON + next(ticks) * 1200,
        )
        create_store(self.store, "v", 1 << 20)
        engine = attach_store(self.store, "v", self.options, "test")
        for hour in range(12):
            engine.write(0, bytes([hour + 1]) * (BLOCKS * BLOCK_SIZE))
            engine.put_all()
            engine.checkpoint()
        engine.close()

    @property
    def root(self) -> CheckpointRoot:
        return read_newest_root(self.store, "v", read_superblock(self.store, "v"))

    def seen(self) -> list[set[int]]:
        """What each moment holds, by moment."""
        found = []
        for moment in self.root.past:
            view = StoreView(self.store, "v", workers=0, at=moment)
            found.append(set(view.read(0, BLOCKS * BLOCK_SIZE)))
            view.close()
        return found

    def check(self) -> list[str]:
        report = find_store_problems(self.store, "v", share=1, pool=self.pool, settle=0)
        assert [one.key for one in report.strays] == []
        return [one.kind for one in report.problems]

    def needed(self) -> set[str]:
        """Objects that the device of now and the moments need; the newest checkpoint is told by the one before it."""
        found = {"v/store", *(make_checkpoint_key("v", one.number, one.epoch) for one in self.root.past)}
        for moment in (None, *self.root.past):
            view = StoreView(self.store, "v", workers=0, at=moment)
            found |= {make_map_key("v", *key) for key in view.root.maps}
            sequences = {one.sequence for one in view.blocks.locate(0, BLOCKS)}
            found |= {make_segment_key("v", one, view.root.epoch_of(one)) for one in sequences}
            view.close()
        return found


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Old]:
    it = Old(tmp_path)
    yield it
    it.pool.shutdown()


def test_what_only_the_past_needs_is_neither_a_stray_nor_damage(old: Old) -> None:
    assert old.check() == []
    assert [len(one) for one in old.seen()] == [1, 1, 1]


def test_whatever_is_missing_is_found(old: Old) -> None:
    kinds = set()
    for key in [one.key for one in old.store.list("v/") if one.key != "v/epoch"]:
        before, needed = copy.deepcopy(old.store.objects), key in old.needed()
        old.store.delete([key])
        found = find_store_problems(old.store, "v", share=0, pool=old.pool, settle=0)
        old.store.objects = before
        assert found.well == (not needed), key
        kinds |= {one.kind for one in found.problems}
    assert "past" in kinds
    assert old.check() == []


def test_a_moment_that_is_damaged_is_named_and_no_repair_is_advised(old: Old) -> None:
    moment = old.root.past[0]
    key = make_checkpoint_key("v", moment.number, moment.epoch)
    old.store.put(key, b"damaged")
    report = find_store_problems(old.store, "v", share=1, pool=old.pool, settle=0)
    assert [(one.kind, one.key) for one in report.problems] == [("past", key)]
    assert "--repair" not in advise_on_check(report)
    assert "a moment of the past is lost" in advise_on_check(report)
    assert [one.live_bytes for one in read_past_figures(old.store, "v", old.pool).moments].count(None) == 1


def test_collecting_garbage_spares_the_past(old: Old, tmp_path: Path) -> None:
    before, kept = old.seen(), old.root.past
    collect_all_garbage(old.store, "v", EngineOptions(tmp_path / "other", uploads=0), "gc", pool=old.pool)
    assert (old.seen(), old.root.past) == (before, kept)
    assert old.check() == []


def test_a_repair_spares_the_past(old: Old, tmp_path: Path) -> None:
    before, kept = old.seen(), old.root.past
    newest = old.root
    for number, epoch in newest.maps:
        old.store.delete([f"v/maps/{number:010x}-{epoch:08x}"])
    options = quiet_options(replace(old.options, journal=tmp_path / "other", history=None))
    repair_store(old.store, "v", RepairJob(options, "repair", doubtful="data"), old.pool)
    assert [one for one in old.root.past if one in kept] == kept
    assert old.seen()[: len(before)] == before
    assert old.check() == []


def test_what_each_keeps_is_told(old: Old) -> None:
    told = read_past_figures(old.store, "v", old.pool)
    assert [one.live_bytes for one in told.moments] == [BLOCKS * BLOCK_SIZE] * 3
    # The last of them is what the device still is.
    alone = [one.alone_bytes for one in told.moments]
    assert all(size > BLOCKS * SLOT_SIZE for size in alone[:2])
    assert told.past_bytes == sum(alone)


def test_what_the_past_costs_is_no_garbage(old: Old, tmp_path: Path) -> None:
    found, told = read_store_info(old.store, "v", old.pool), read_past_figures(old.store, "v", old.pool)
    assert (found.moments, found.past_bytes) == (3, told.past_bytes)
    assert (
        found.dead_bytes == found.stored_bytes - found.live_bytes // BLOCK_SIZE * SLOT_SIZE - told.past_bytes
    )
    done = collect_all_garbage(
        old.store, "v", EngineOptions(tmp_path / "other", uploads=0), "gc", pool=old.pool
    )
    assert (done.past, done.moved) == (told.past_bytes, 0)


def test_a_time_finds_the_last_moment_up_to_it(old: Old) -> None:
    past = old.root.past
    assert find_moment_up_to(past, past[1].taken, "here") == past[1]
    assert find_moment_up_to(past, past[2].taken - 1, "here") == past[1]
    with pytest.raises(NotFound, match="the oldest that is kept is of 2023-11-1"):
        find_moment_up_to(past, past[0].taken - 1, "here")
    with pytest.raises(NotFound, match="no moment of its past is kept"):
        find_moment_up_to([], NOON, "here")


def test_a_moment_of_unknown_time_is_not_older_than_any(old: Old) -> None:
    past = old.root.past
    unknown = replace(past[0], taken=0.0)
    assert find_moment_up_to([unknown, *past[1:]], past[1].taken, "here") == past[1]
    with pytest.raises(NotFound, match="the oldest that is kept is of 2023-11-1"):
        find_moment_up_to([unknown, *past[1:]], 1_000_000_000.0, "here")
    with pytest.raises(NotFound, match="no time is known of those that are kept"):
        find_moment_up_to([unknown], NOON, "here")


def test_a_rewound_store_is_what_it_was_and_can_be_taken_back(old: Old, tmp_path: Path) -> None:
    options = replace(old.options, journal=tmp_path / "other")
    before, past = old.seen(), old.root.past
    now = StoreView(old.store, "v", workers=0).read(0, BLOCKS * BLOCK_SIZE)
    until = rewind_store(old.store, "v", options, past[0], owner="rewind", pool=old.pool)
    assert set(StoreView(old.store, "v", workers=0).read(0, BLOCKS * BLOCK_SIZE)) == before[0]
    assert old.root.past == [*past, until]
    assert old.seen()[:3] == before
    assert StoreView(old.store, "v", workers=0, at=until).read(0, BLOCKS * BLOCK_SIZE) == now
    assert old.check() == []
    rewind_store(old.store, "v", options, until, owner="rewind", pool=old.pool)
    assert StoreView(old.store, "v", workers=0).read(0, BLOCKS * BLOCK_SIZE) == now
    assert old.check() == []


def test_a_rewound_store_is_written_to_as_any(old: Old, tmp_path: Path) -> None:
    options = replace(old.options, journal=tmp_path / "other", history=None)
    rewind_store(old.store, "v", options, old.root.past[0], owner="rewind", pool=old.pool)
    before, past = old.seen(), old.root.past
    engine = attach_store(old.store, "v", options, "test")
    for tag in (100, 101, 102):
        engine.write(BLOCK_SIZE, bytes([tag]) * (9 * BLOCK_SIZE))
        engine.put_all()
        engine.checkpoint()
        engine.collect()
    assert set(engine.read(0, BLOCK_SIZE)) == before[0]
    assert set(engine.read(BLOCK_SIZE, 9 * BLOCK_SIZE)) == {102}
    engine.close()
    assert (old.root.past, old.seen()) == (past, before)
    assert old.check() == []


def test_a_moment_that_is_not_kept_is_not_rewound_to(old: Old, tmp_path: Path) -> None:
    gone = replace(old.root.past[0], number=1)
    epoch = old.root.epoch
    with pytest.raises(NotFound, match="is not kept"):
        rewind_store(
            old.store, "v", replace(old.options, journal=tmp_path / "j"), gone, owner="rewind", pool=old.pool
        )
    assert old.root.epoch == epoch, "it is not taken"


@pytest.mark.parametrize("at", range(0, 60, 2))
def test_a_rewind_that_is_cut_off_leaves_what_was_or_what_is_to_be(old: Old, tmp_path: Path, at: int) -> None:
    before, past = old.seen(), old.root.past
    now = StoreView(old.store, "v", workers=0).read(0, BLOCKS * BLOCK_SIZE)
    options = replace(old.options, journal=tmp_path / "other")
    with contextlib.suppress(Crash, StoreError):
        faulty = FaultyStore(old.store, [Fault(at, "crash", 1)])
        rewind_store(faulty, "v", options, past[0], owner="rewind", pool=old.pool)
    found = StoreView(old.store, "v", workers=0).read(0, BLOCKS * BLOCK_SIZE)
    assert found == now or set(found) == before[0]
    engine = attach_store(old.store, "v", replace(options, history=None), "again")
    for _ in range(3):
        engine.checkpoint()
    assert engine.read(0, BLOCKS * BLOCK_SIZE) == found
    engine.close()
    assert old.seen()[:3] == before


def test_a_repair_keeps_what_the_past_needs_of_the_map(tmp_path: Path) -> None:
    """The repaired root does not need the counts that it made anew; the moment before it does."""
    store, pool = MemoryStore(), ThreadPoolExecutor(4)
    options = EngineOptions(tmp_path / "journal", uploads=0, history=KeepRules(last=9))
    create_store(store, "v", 3 * PART_BLOCKS * BLOCK_SIZE)
    engine = attach_store(store, "v", options, "test")
    for part in range(2):
        engine.write(part * PART_BLOCKS * BLOCK_SIZE, bytes([part + 1]) * BLOCK_SIZE)
        engine.put_all()
        engine.checkpoint()
    engine.close()
    attach_store(store, "v", options, "killed").abandon()
    root = read_newest_root(store, "v", read_superblock(store, "v"))
    assert root.past[-1].applied == root.applied
    ref = root.parts[1]
    lost = make_map_key("v", int(ref["map"]), int(ref["epoch"]))
    store.delete([lost])
    options = quiet_options(replace(options, journal=tmp_path / "other"))
    after = repair_store(store, "v", RepairJob(options, "repair", doubtful="data"), pool)
    pool.shutdown()
    (told,) = after.problems
    assert (told.kind, told.key) == (
        "past",
        make_checkpoint_key("v", root.past[-1].number, root.past[-1].epoch),
    )
    assert "and 1 of " in told.why
    assert told.why.endswith(f"as {lost}")
