"""Moments that are kept: what they need stays, and is what it was; what nothing needs goes."""

from __future__ import annotations

import gc
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.unit.blockstore.engine_world import World, faults, listed, others, writes, zeroes
from tests.unit.examples import cases
from tests.unit.object_store.faulty_store import Fault
from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore.attach import attach_store
from zvault.blockstore.format import (
    BLOCK_SIZE,
    ObjectDamaged,
    find_key_numbers,
    make_checkpoint_key,
    parse_key_numbers,
)
from zvault.blockstore.kept_moments import (
    KeptMoment,
    MomentNeeds,
    add_moment,
    count_kept_bytes,
    select_kept_moments,
)
from zvault.blockstore.map.root import CheckpointRoot
from zvault.blockstore.options import EngineOptions, ReadOptions
from zvault.blockstore.readonly_device import DeviceSuperseded, ReadOnlyDevice
from zvault.blockstore.recovery import create_store, read_newest_root, read_superblock
from zvault.blockstore.store_view import StoreView
from zvault.core.errors import NotFound
from zvault.core.policy.retention import KeepRules
from zvault.object_store.interface import StoreError

HOUR = 3600.0
RULES = KeepRules(last=1, hourly=3, daily=2)
NOON = 1_700_049_600.0

moments = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=8)


def made(steps: list[tuple[int, int]]) -> list[KeptMoment]:
    """Roots one after another, each with so many segments more."""
    found, number, applied = [], 0, 0
    for more, gap in steps:
        number, applied = number + 1 + gap, applied + more
        found.append(KeptMoment(1, number, float(number), applied, applied))
    return found


@settings(max_examples=cases(300))
@given(moments, st.lists(st.tuples(st.integers(1, 25), st.integers(0, 25)), max_size=12))
def test_what_is_needed_is_what_lived_at_one_of_the_moments(
    steps: list[tuple[int, int]], dead: list[tuple[int, int]]
) -> None:
    some = made(steps)
    sequences = np.array([made_at for made_at, _ in dead], np.int64)
    died = np.array([root for _, root in dead], np.uint32)
    found = MomentNeeds(some).segments(sequences, died)
    for (sequence, root), needed in zip(dead, found.tolist(), strict=True):
        lived = [one for one in some if one.applied >= sequence and (root == 0 or one.number < root)]
        assert needed == bool(lived)
        assert MomentNeeds(some).map_object(sequence, root) == bool(lived)
    alone = count_kept_bytes(some, np.ones(30, np.int64), sequences, died)
    for one, size in zip(some, alone, strict=True):
        without = MomentNeeds([other for other in some if other != one]).segments(sequences, died)
        assert size == int((found & ~without).sum())


def test_a_root_that_has_nothing_new_is_no_moment() -> None:
    one = KeptMoment(1, 1, NOON, 5, 1)
    assert add_moment([], replace(one, applied=0)) == []
    assert add_moment([one], KeptMoment(2, 2, NOON + 9, 5, 1)) == [one]
    assert add_moment([one], KeptMoment(2, 2, NOON + 9, 6, 1)) == [one, KeptMoment(2, 2, NOON + 9, 6, 1)]


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=60))
def test_thinned_at_each_root_the_same_is_kept_as_at_once(minutes: list[int]) -> None:
    """Only by the rules of periods: how many there were in between plays no part."""
    rules = KeepRules(hourly=3, daily=2)
    now, every, thinned = NOON, list[KeptMoment](), list[KeptMoment]()
    for number, more in enumerate(minutes, 1):
        now += more * 60
        newest = KeptMoment(1, number, now, number, number)
        every, thinned = [*every, newest], select_kept_moments(add_moment(thinned, newest), rules, now)
    assert thinned == select_kept_moments(every, rules, now)


def test_a_clock_that_was_ahead_does_not_cost_the_history() -> None:
    some = [KeptMoment(1, at, NOON + at * HOUR, at, at) for at in range(1, 4)]
    ahead = [KeptMoment(1, at, NOON + 1000 * HOUR, at, at) for at in range(4, 8)]
    now = NOON + 8 * HOUR
    found = select_kept_moments([*some, *ahead, KeptMoment(1, 8, now, 8, 8)], RULES, now)
    assert set(some[1:]) < set(found)


class HistoryWorld(World):
    """A device whose history is kept, by a clock that goes on by a third of an hour a step."""

    def __init__(self, wrong: list[Fault]) -> None:
        super().__init__("strict", wrong)
        self.now = NOON
        self.options = replace(self.options, history=RULES, clock=lambda: self.now)
        self.by_segment: dict[tuple[int, int], dict[int, int]] = {}

    def step(self, what: str, block: int, count: int) -> None:
        self.now += HOUR / 3
        super().step(what, block, count)

    def do(self, what: str, block: int, count: int) -> None:
        if what in ("checkpoint", "close"):
            engine = self.opened()
            engine.put_all()
            last = engine.log.uploaded
            self.by_segment[engine.blocks.root.epoch_of(last), last] = dict(self.state)
        super().do(what, block, count)

    def root(self) -> CheckpointRoot:
        return read_newest_root(self.memory, "vault", read_superblock(self.memory, "vault"))

    def check_past(self) -> None:
        """Each moment that is kept can be read whole, and is what the device was."""
        for moment in self.root().past:
            view = StoreView(self.memory, "vault", workers=0, at=moment)
            state = self.by_segment[view.root.epoch_of(moment.applied), moment.applied]
            for block in sorted({*state, 0, 1, 700}):
                data = view.read(block * BLOCK_SIZE, BLOCK_SIZE)
                assert int.from_bytes(data[:8], "little") == state.get(block, 0), (moment, block)
            view.close()

    def check_nothing_is_left(self) -> None:
        """What is in the bucket is what a root points to that is kept."""
        root = self.root()
        kept_roots = {(one.epoch, one.number) for one in root.past}
        segments, maps = set[tuple[int, int]](), set[tuple[int, int]]()
        for key in listed(self.memory, "checkpoints"):
            one = CheckpointRoot.of_bytes(self.memory.read(key)[0], root.identity, key)
            assert (one.epoch, one.number) in kept_roots or one.number >= root.number - 1, key
            view = StoreView(self.memory, "vault", workers=0, at=one.moment)
            for extent in view.blocks.locate(0, view.size // BLOCK_SIZE):
                if extent.sequence:
                    segments.add((extent.sequence, one.epoch_of(extent.sequence)))
            maps |= set(one.maps)
            view.close()
        assert kept_roots <= {parse_key_numbers(key) for key in listed(self.memory, "checkpoints")}
        assert segments == set(map(parse_key_numbers, listed(self.memory, "segments")))
        # What was rewritten between two moments may wait for the later of them.
        assert maps <= set(map(find_key_numbers, listed(self.memory, "maps")))
        assert len(listed(self.memory, "maps")) <= len(maps) + 3 * (len(kept_roots) + 2)


def live(program: list[tuple[str, int, int]], wrong: list[Fault]) -> HistoryWorld:
    world = HistoryWorld(wrong)
    try:
        for what, block, count in program:
            world.step(what, block, count)
            if what == "checkpoint":
                world.check_past()
        world.step("cut", 0, 0)
        for _ in range(3):
            world.step("checkpoint", 0, 0)
        world.check_past()
        if not world.late:
            world.check_nothing_is_left()
        world.opened().close()
        world.engine = None
    finally:
        if world.engine is not None:
            world.engine.abandon()
        shutil.rmtree(world.folder)
        gc.collect(1)  # an engine is a circle of objects, with megabytes in it
    return world


ends = st.sampled_from([("kill", 0, 0), ("cut", 0, 0), ("close", 0, 0), ("checkpoint", 0, 0)])
steps = st.lists(st.one_of(writes, writes, zeroes, others, ends, ends), min_size=1, max_size=30)


@settings(max_examples=cases(50), deadline=None, suppress_health_check=list(HealthCheck))
@given(steps, faults)
@example([("write", 0, 33), ("checkpoint", 0, 0), ("zero", 0, 40), *[("checkpoint", 0, 0)] * 4], [])
def test_the_past_is_what_was(program: list[Any], wrong: list[Fault]) -> None:
    live(program, wrong)


LIFE = [
    step
    for at in range(7)
    for step in (("write", at % 4, 33), ("checkpoint", 0, 0), ("zero", 3, 9), ("collect", 0, 0))
]


def test_the_past_is_what_was_whatever_call_goes_wrong() -> None:
    world = live(LIFE, [])
    assert len(world.root().past) == 3
    for at in range(0, world.calls, 3):
        live(LIFE, [Fault(at, "crash", 1)])


def filled(store: MemoryStore, options: EngineOptions, hours: int) -> None:
    """Write and take a checkpoint each hour."""
    engine = attach_store(store, "vault", options, "test")
    for hour in range(hours):
        engine.write(0, hour.to_bytes(8, "little") * (64 * BLOCK_SIZE // 8))
        engine.put_all()
        engine.checkpoint()
    engine.close()


@pytest.fixture
def clocked(tmp_path: Path) -> EngineOptions:
    ticks = iter(range(10_000))
    return EngineOptions(
        tmp_path / "journal", uploads=0, history=KeepRules(hourly=4), clock=lambda: NOON + next(ticks) * 1200
    )


def past(store: MemoryStore) -> list[KeptMoment]:
    return read_newest_root(store, "vault", read_superblock(store, "vault")).past


def test_without_rules_what_is_kept_stays_and_rules_of_nothing_drop_it(clocked: EngineOptions) -> None:
    store = MemoryStore()
    create_store(store, "vault", 1 << 20)
    filled(store, clocked, 12)
    before = past(store)
    assert len(before) == 4
    filled(store, replace(clocked, history=None), 5)
    assert past(store) == before
    assert StoreView(store, "vault", workers=0, at=before[0]).read(0, BLOCK_SIZE)
    filled(store, replace(clocked, history=KeepRules()), 5)
    assert past(store) == []
    assert len(listed(store, "segments")) <= 2
    with pytest.raises(NotFound, match="is not there"):
        StoreView(store, "vault", workers=0, at=before[0])


def test_a_damaged_newest_root_is_never_passed_over_for_one_of_the_past(clocked: EngineOptions) -> None:
    store = MemoryStore()
    create_store(store, "vault", 1 << 20)
    filled(store, clocked, 8)
    root = read_newest_root(store, "vault", read_superblock(store, "vault"))
    for number in (root.number, root.number - 1):
        store.put(make_checkpoint_key("vault", number, root.epoch), b"damaged")
    with pytest.raises(ObjectDamaged):
        read_newest_root(store, "vault", read_superblock(store, "vault"))


def test_a_newest_root_that_is_gone_by_now_is_looked_for_anew(clocked: EngineOptions) -> None:
    """Its listing was old: what comes before it there may be of last year."""
    store = MemoryStore()
    create_store(store, "vault", 1 << 20)
    filled(store, clocked, 8)
    root = read_newest_root(store, "vault", read_superblock(store, "vault"))
    for number in (root.number, root.number - 1):
        store.delete([make_checkpoint_key("vault", number, root.epoch)])
    stale = [*past_keys(root), make_checkpoint_key("vault", root.number, root.epoch)]
    assert stale[0] in listed(store, "checkpoints")

    class Stale(MemoryStore):
        def list(self, prefix: str, after: str = "") -> Any:
            yield from store.list(prefix, after)
            yield replace(next(iter(store.list("vault/checkpoints/"))), key=stale[-1])

        def read(self, key: str, most: int = 1 << 30) -> tuple[bytes, str]:
            return store.read(key, most)

    with pytest.raises(ObjectDamaged, match="no checkpoint"):
        read_newest_root(Stale(), "vault", read_superblock(store, "vault"))


def past_keys(root: CheckpointRoot) -> list[str]:
    return [make_checkpoint_key("vault", one.number, one.epoch) for one in root.past]


def test_a_device_of_the_past_says_what_it_is_and_when_it_is_gone(clocked: EngineOptions) -> None:
    store = MemoryStore()
    create_store(store, "vault", 1 << 20)
    filled(store, clocked, 6)
    moment, what = past(store)[0], read_superblock(store, "vault")
    device = ReadOnlyDevice(store, "vault", what, ReadOptions(workers=0), at=moment)
    assert device.shows == f"checkpoint {moment.number} of epoch {moment.epoch}, which is kept"
    assert device.status()["as_of"] == moment.taken
    filled(store, replace(clocked, history=KeepRules()), 5)
    with pytest.raises(DeviceSuperseded, match="has passed"):
        device.read(0, BLOCK_SIZE)
    device.close()


def test_what_is_missing_of_a_moment_that_is_kept_is_lost_and_not_past(clocked: EngineOptions) -> None:
    store = MemoryStore()
    create_store(store, "vault", 1 << 20)
    filled(store, clocked, 6)
    moment = past(store)[0]
    device = ReadOnlyDevice(
        store, "vault", read_superblock(store, "vault"), ReadOptions(workers=0), at=moment
    )
    store.delete(listed(store, "segments"))
    with pytest.raises(StoreError) as found:
        device.read(0, BLOCK_SIZE)
    assert not isinstance(found.value, DeviceSuperseded)
    device.close()


def test_collecting_does_not_wait_for_ever_for_what_the_past_keeps(clocked: EngineOptions) -> None:
    """Idle, nothing is due: what only the past needs is not dying."""
    store = MemoryStore()
    create_store(store, "vault", 1 << 20)
    filled(store, clocked, 6)
    engine = attach_store(store, "vault", clocked, "test")
    for _ in range(3):
        engine.checkpoint()
    assert engine.remover.dying == []
    assert engine.status()["moments"] == 4
    assert engine.status()["past_bytes"] > 3 * 64 * BLOCK_SIZE
    taken = engine.checkpoints.taken
    engine.tend(1e9)
    assert engine.checkpoints.taken == taken
    engine.close()
