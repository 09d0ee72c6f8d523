"""Locked objects: what is needed stays locked, an attacker changes nothing of what was, garbage goes in time."""

from __future__ import annotations

import gc
import shutil
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.unit.blockstore.engine_world import BLOCKS, faults, others, writes, zeroes
from tests.unit.blockstore.locked_store import LOCK, POOL
from tests.unit.blockstore.test_kept_moments import HistoryWorld
from tests.unit.examples import cases
from tests.unit.object_store.faulty_store import Fault, FaultyStore
from tests.unit.object_store.locking_store import LockingStore
from zvault.blockstore.attach import load_usage
from zvault.blockstore.format import BLOCK_SIZE, make_checkpoint_key
from zvault.blockstore.maintenance.recover import list_needed_objects
from zvault.blockstore.maintenance.version_gc import remove_versions
from zvault.blockstore.map.usage import SegmentUsage
from zvault.blockstore.needed_objects import NeededObjects
from zvault.blockstore.recovery import create_store, read_newest_root, read_root, read_superblock
from zvault.core.policy.object_lock import ObjectLock

DAY = 86400.0


class LockWorld(HistoryWorld):
    """A device with history in a bucket with locks, some hours a step; days go by where a step says so."""

    def __init__(
        self, wrong: list[Fault], lock: ObjectLock | None = LOCK, *, elsewhere: bool = False
    ) -> None:
        super().__init__(wrong)
        self.options = replace(self.options, lock=lock, gc_elsewhere=elsewhere)
        self.bucket = LockingStore(lambda: self.now, lock)
        self.memory = self.bucket
        create_store(self.memory, "vault", BLOCKS * BLOCK_SIZE)
        self.store = FaultyStore(self.memory, wrong)
        if elsewhere:
            self.bucket.may = {"retain"}

    def do(self, what: str, block: int, count: int) -> None:
        if what == "days":
            self.now += count * DAY
            engine = self.opened()
            engine.put_all()
            last = engine.log.uploaded
            self.by_segment[engine.blocks.root.epoch_of(last), last] = dict(self.state)
            engine.keep_locked()
            return
        if what == "gc":
            self.gc()
            return
        super().do(what, block, count)
        if what == "checkpoint":
            self.opened().keep_locked()

    def gc(self) -> None:
        """With another key, on another host, whatever the writer is at."""
        before, self.bucket.may = self.bucket.may, {"delete"}
        try:
            remove_versions(self.bucket, "vault", POOL, do=True)
        finally:
            self.bucket.may = before

    def needed(self) -> NeededObjects:
        what = read_superblock(self.memory, "vault")
        root, usage = read_newest_root(self.memory, "vault", what), SegmentUsage()
        load_usage(usage, self.memory, "vault", root, None)
        return NeededObjects("vault", root, usage)

    def check_locks(self) -> None:
        """All that the newest root and its moments point to is locked until then, as it says."""
        root = read_newest_root(self.memory, "vault", read_superblock(self.memory, "vault"))
        for key in [make_checkpoint_key("vault", one.number, one.epoch) for one in (root, *root.past)]:
            for name in [key, *self.points_to(key), "vault/store"] if root.number else []:
                first = self.bucket.kept[name][0]
                assert first.until >= root.lock.until, (name, first.until - self.now, root.lock)

    def check_fallback(self) -> None:
        """All is there that the root before the newest needs, of the same writer: it is taken if that is damaged."""
        root = read_newest_root(self.memory, "vault", read_superblock(self.memory, "vault"))
        key = make_checkpoint_key("vault", root.number - 1, root.epoch)
        if key in self.bucket.objects:
            assert [one for one in self.points_to(key) if one not in self.bucket.objects] == []

    def points_to(self, key: str) -> list[str]:
        root, usage = read_root(self.memory, key, read_superblock(self.memory, "vault")), SegmentUsage()
        load_usage(usage, self.memory, "vault", root, None)
        return list(list_needed_objects("vault", root, usage))

    def check_nothing_is_left(self) -> None:
        """Of what nobody needs but what is locked still."""
        needed = self.needed()
        garbage = [key for key in self.bucket.kept if needed.verdict(key) == "garbage"]
        assert [key for key in garbage if self.bucket.kept[key][0].until <= self.now] == []
        assert not any("segments" in key for key in garbage)


def live(
    program: list[tuple[str, int, int]],
    wrong: list[Fault],
    lock: ObjectLock | None = LOCK,
    *,
    elsewhere: bool = False,
) -> LockWorld:
    world = LockWorld(wrong, lock, elsewhere=elsewhere)
    try:
        for what, block, count in program:
            world.step(what, block, count)
            if what in ("checkpoint", "days", "gc"):
                world.check_past()
                world.check_locks()
                world.check_fallback()
        world.step("cut", 0, 0)
        world.step("checkpoint", 0, 0)
        world.step("days", 0, 1)
        for _ in range(3):
            world.step("checkpoint", 0, 0)
        world.check_past()
        world.check_locks()
        # What is garbage by now was locked for so long at most.
        world.step("days", 0, 16)
        world.step("checkpoint", 0, 0)
        world.step("days", 0, 2)
        if elsewhere:
            world.step("gc", 0, 0)
        world.check_fallback()
        if not world.late:
            world.check_nothing_is_left()
        engine = world.opened()
        assert engine.keeper is not None
        assert engine.keeper.trouble is None
        world.look(engine, [world.state])
        engine.close()
        world.engine = None
    finally:
        if world.engine is not None:
            world.engine.abandon()
        shutil.rmtree(world.folder)
        gc.collect(1)  # an engine is a circle of objects, with megabytes in it
    return world


days = st.tuples(st.just("days"), st.just(0), st.sampled_from([1, 2, 5, 9]))
ends = st.sampled_from([("kill", 0, 0), ("cut", 0, 0), ("close", 0, 0), ("checkpoint", 0, 0)])
steps = st.lists(st.one_of(writes, writes, zeroes, others, ends, days), min_size=1, max_size=24)
with_gc = st.lists(
    st.one_of(writes, zeroes, others, ends, days, st.just(("gc", 0, 0))), min_size=1, max_size=24
)


@settings(max_examples=cases(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(steps, faults)
@example([("write", 0, 33), ("checkpoint", 0, 0), ("days", 0, 9), ("zero", 0, 40), ("days", 0, 9)], [])
def test_what_is_needed_is_locked_and_what_is_not_goes(program: list[Any], wrong: list[Fault]) -> None:
    live(program, wrong)


@settings(max_examples=cases(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(with_gc, faults, st.booleans())
def test_a_writer_that_may_not_remove_and_gc_elsewhere(
    program: list[Any], wrong: list[Fault], locked: bool
) -> None:
    """Without a lock nothing but its own sense keeps it from removing what is needed."""
    live(program, wrong, LOCK if locked else None, elsewhere=True)


def test_gc_after_each_step_of_an_unlocked_life() -> None:
    steps = [one for step in LIFE for one in (step, ("gc", 0, 0), ("read", 0, 0))]
    world = live(steps, [], None, elsewhere=True)
    assert len(world.root().past) == 3
    for at in range(0, world.calls, 11):
        live(steps, [Fault(at, "crash after", 1)], None, elsewhere=True)


LIFE = [
    step
    for at in range(5)
    for step in (
        ("write", at % 4, 33),
        ("checkpoint", 0, 0),
        ("days", 0, 4),
        ("zero", 3, 9),
        ("collect", 0, 0),
    )
]


def test_whatever_call_of_a_locked_life_goes_wrong() -> None:
    world = live(LIFE, [])
    assert world.bucket.retained > 20
    for at in range(0, world.calls, 7):
        live(LIFE, [Fault(at, "crash after", 1)])
        live(LIFE, [Fault(at, "refused", 1)])
