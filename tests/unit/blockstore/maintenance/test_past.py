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
from zvault.blockstore.attach import attach
from zvault.blockstore.format import BLOCK, SLOT, checkpoint_key, map_key, segment_key
from zvault.blockstore.history import up_to
from zvault.blockstore.maintenance.check import check
from zvault.blockstore.maintenance.check_advice import advice
from zvault.blockstore.maintenance.info import info
from zvault.blockstore.maintenance.offline_gc import sweep
from zvault.blockstore.maintenance.past import look_back
from zvault.blockstore.maintenance.repair import RepairJob, quiet, repair
from zvault.blockstore.maintenance.rewind import rewind
from zvault.blockstore.map.map_part import PART
from zvault.blockstore.map.root import Root
from zvault.blockstore.options import Options
from zvault.blockstore.recovery import create, newest_root, superblock
from zvault.blockstore.view import View
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
        self.options = Options(
            folder / "journal",
            uploads=0,
            history=KeepRules(hourly=3),
            clock=lambda: NOON + next(ticks) * 1200,
        )
        create(self.store, "v", 1 << 20)
        engine = attach(self.store, "v", self.options, "test")
        for hour in range(12):
            engine.write(0, bytes([hour + 1]) * (BLOCKS * BLOCK))
            engine.put_all()
            engine.checkpoint()
        engine.close()

    @property
    def root(self) -> Root:
        return newest_root(self.store, "v", superblock(self.store, "v"))

    def seen(self) -> list[set[int]]:
        """What each moment holds, by moment."""
        found = []
        for moment in self.root.past:
            view = View(self.store, "v", workers=0, at=moment)
            found.append(set(view.read(0, BLOCKS * BLOCK)))
            view.close()
        return found

    def check(self) -> list[str]:
        report = check(self.store, "v", share=1, pool=self.pool, settle=0)
        assert [one.key for one in report.strays] == []
        return [one.kind for one in report.problems]

    def needed(self) -> set[str]:
        """Objects that the device of now and the moments need; the newest checkpoint is told by the one before it."""
        found = {"v/store", *(checkpoint_key("v", one.number, one.epoch) for one in self.root.past)}
        for moment in (None, *self.root.past):
            view = View(self.store, "v", workers=0, at=moment)
            found |= {map_key("v", *key) for key in view.root.maps}
            sequences = {one.sequence for one in view.blocks.locate(0, BLOCKS)}
            found |= {segment_key("v", one, view.root.epoch_of(one)) for one in sequences}
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
        found = check(old.store, "v", share=0, pool=old.pool, settle=0)
        old.store.objects = before
        assert found.well == (not needed), key
        kinds |= {one.kind for one in found.problems}
    assert "past" in kinds
    assert old.check() == []


def test_a_moment_that_is_damaged_is_named_and_no_repair_is_advised(old: Old) -> None:
    moment = old.root.past[0]
    key = checkpoint_key("v", moment.number, moment.epoch)
    old.store.put(key, b"damaged")
    report = check(old.store, "v", share=1, pool=old.pool, settle=0)
    assert [(one.kind, one.key) for one in report.problems] == [("past", key)]
    assert "--repair" not in advice(report)
    assert "a moment of the past is lost" in advice(report)
    assert [one.live_bytes for one in look_back(old.store, "v", old.pool).moments].count(None) == 1


def test_collecting_garbage_spares_the_past(old: Old, tmp_path: Path) -> None:
    before, kept = old.seen(), old.root.past
    sweep(old.store, "v", Options(tmp_path / "other", uploads=0), "gc", pool=old.pool)
    assert (old.seen(), old.root.past) == (before, kept)
    assert old.check() == []


def test_a_repair_spares_the_past(old: Old, tmp_path: Path) -> None:
    before, kept = old.seen(), old.root.past
    newest = old.root
    for number, epoch in newest.maps:
        old.store.delete([f"v/maps/{number:010x}-{epoch:08x}"])
    options = quiet(replace(old.options, journal=tmp_path / "other", history=None))
    repair(old.store, "v", RepairJob(options, "repair", doubtful="data"), old.pool)
    assert [one for one in old.root.past if one in kept] == kept
    assert old.seen()[: len(before)] == before
    assert old.check() == []


def test_what_each_keeps_is_told(old: Old) -> None:
    told = look_back(old.store, "v", old.pool)
    assert [one.live_bytes for one in told.moments] == [BLOCKS * BLOCK] * 3
    # The last of them is what the device still is.
    alone = [one.alone_bytes for one in told.moments]
    assert all(size > BLOCKS * SLOT for size in alone[:2])
    assert told.past_bytes == sum(alone)


def test_what_the_past_costs_is_no_garbage(old: Old, tmp_path: Path) -> None:
    found, told = info(old.store, "v", old.pool), look_back(old.store, "v", old.pool)
    assert (found.moments, found.past_bytes) == (3, told.past_bytes)
    assert found.dead_bytes == found.stored_bytes - found.live_bytes // BLOCK * SLOT - told.past_bytes
    done = sweep(old.store, "v", Options(tmp_path / "other", uploads=0), "gc", pool=old.pool)
    assert (done.past, done.moved) == (told.past_bytes, 0)


def test_a_time_finds_the_last_moment_up_to_it(old: Old) -> None:
    past = old.root.past
    assert up_to(past, past[1].taken, "here") == past[1]
    assert up_to(past, past[2].taken - 1, "here") == past[1]
    with pytest.raises(NotFound, match="the oldest that is kept is of 2023-11-1"):
        up_to(past, past[0].taken - 1, "here")
    with pytest.raises(NotFound, match="no moment of its past is kept"):
        up_to([], NOON, "here")


def test_a_moment_of_unknown_time_is_not_older_than_any(old: Old) -> None:
    past = old.root.past
    unknown = replace(past[0], taken=0.0)
    assert up_to([unknown, *past[1:]], past[1].taken, "here") == past[1]
    with pytest.raises(NotFound, match="the oldest that is kept is of 2023-11-1"):
        up_to([unknown, *past[1:]], 1_000_000_000.0, "here")
    with pytest.raises(NotFound, match="no time is known of those that are kept"):
        up_to([unknown], NOON, "here")


def test_a_rewound_store_is_what_it_was_and_can_be_taken_back(old: Old, tmp_path: Path) -> None:
    options = replace(old.options, journal=tmp_path / "other")
    before, past = old.seen(), old.root.past
    now = View(old.store, "v", workers=0).read(0, BLOCKS * BLOCK)
    until = rewind(old.store, "v", options, past[0], owner="rewind", pool=old.pool)
    assert set(View(old.store, "v", workers=0).read(0, BLOCKS * BLOCK)) == before[0]
    assert old.root.past == [*past, until]
    assert old.seen()[:3] == before
    assert View(old.store, "v", workers=0, at=until).read(0, BLOCKS * BLOCK) == now
    assert old.check() == []
    rewind(old.store, "v", options, until, owner="rewind", pool=old.pool)
    assert View(old.store, "v", workers=0).read(0, BLOCKS * BLOCK) == now
    assert old.check() == []


def test_a_rewound_store_is_written_to_as_any(old: Old, tmp_path: Path) -> None:
    options = replace(old.options, journal=tmp_path / "other", history=None)
    rewind(old.store, "v", options, old.root.past[0], owner="rewind", pool=old.pool)
    before, past = old.seen(), old.root.past
    engine = attach(old.store, "v", options, "test")
    for tag in (100, 101, 102):
        engine.write(BLOCK, bytes([tag]) * (9 * BLOCK))
        engine.put_all()
        engine.checkpoint()
        engine.collect()
    assert set(engine.read(0, BLOCK)) == before[0]
    assert set(engine.read(BLOCK, 9 * BLOCK)) == {102}
    engine.close()
    assert (old.root.past, old.seen()) == (past, before)
    assert old.check() == []


def test_a_moment_that_is_not_kept_is_not_rewound_to(old: Old, tmp_path: Path) -> None:
    gone = replace(old.root.past[0], number=1)
    epoch = old.root.epoch
    with pytest.raises(NotFound, match="is not kept"):
        rewind(
            old.store, "v", replace(old.options, journal=tmp_path / "j"), gone, owner="rewind", pool=old.pool
        )
    assert old.root.epoch == epoch, "it is not taken"


@pytest.mark.parametrize("at", range(0, 60, 2))
def test_a_rewind_that_is_cut_off_leaves_what_was_or_what_is_to_be(old: Old, tmp_path: Path, at: int) -> None:
    before, past = old.seen(), old.root.past
    now = View(old.store, "v", workers=0).read(0, BLOCKS * BLOCK)
    options = replace(old.options, journal=tmp_path / "other")
    with contextlib.suppress(Crash, StoreError):
        faulty = FaultyStore(old.store, [Fault(at, "crash", 1)])
        rewind(faulty, "v", options, past[0], owner="rewind", pool=old.pool)
    found = View(old.store, "v", workers=0).read(0, BLOCKS * BLOCK)
    assert found == now or set(found) == before[0]
    engine = attach(old.store, "v", replace(options, history=None), "again")
    for _ in range(3):
        engine.checkpoint()
    assert engine.read(0, BLOCKS * BLOCK) == found
    engine.close()
    assert old.seen()[:3] == before


def test_a_repair_keeps_what_the_past_needs_of_the_map(tmp_path: Path) -> None:
    """The repaired root does not need the counts that it made anew; the moment before it does."""
    store, pool = MemoryStore(), ThreadPoolExecutor(4)
    options = Options(tmp_path / "journal", uploads=0, history=KeepRules(last=9))
    create(store, "v", 3 * PART * BLOCK)
    engine = attach(store, "v", options, "test")
    for part in range(2):
        engine.write(part * PART * BLOCK, bytes([part + 1]) * BLOCK)
        engine.put_all()
        engine.checkpoint()
    engine.close()
    attach(store, "v", options, "killed").abandon()
    root = newest_root(store, "v", superblock(store, "v"))
    assert root.past[-1].applied == root.applied
    ref = root.parts[1]
    lost = map_key("v", int(ref["map"]), int(ref["epoch"]))
    store.delete([lost])
    options = quiet(replace(options, journal=tmp_path / "other"))
    after = repair(store, "v", RepairJob(options, "repair", doubtful="data"), pool)
    pool.shutdown()
    (told,) = after.problems
    assert (told.kind, told.key) == ("past", checkpoint_key("v", root.past[-1].number, root.past[-1].epoch))
    assert "and 1 of " in told.why
    assert told.why.endswith(f"as {lost}")
