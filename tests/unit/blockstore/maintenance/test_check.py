"""Checking and repairing: each kind of object damaged in each way: found, named, repaired or told."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.unit.blockstore.maintenance.check_world import (
    BLOCKS,
    SPOTS,
    WAYS,
    World,
    blocks_of,
    change,
    world_for_test,  # noqa: F401
)
from tests.unit.examples import cases
from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore.engine import BlockEngine
from zvault.blockstore.format import BLOCK_SIZE
from zvault.blockstore.maintenance.check import find_store_problems
from zvault.blockstore.maintenance.check_report import make_runs, merge_ranges
from zvault.blockstore.map.map_part import PART_BLOCKS
from zvault.blockstore.recovery import read_superblock
from zvault.core.errors import NotFound, Refused


def test_a_sound_store_is_well(world: World):
    report = world.check()
    assert report.well, report.problems
    assert (report.strays, report.lost) == ([], [])
    assert (report.parts, report.log) == (3, 2)
    assert report.segments == report.read_segments > 5
    before = dict(world.store.objects)
    assert world.check(0).read_segments == 0
    assert world.store.objects == before, "a check changes nothing"


def test_a_fresh_store_is_well_and_none_is_not_found(tmp_path: Path):
    world = World(tmp_path)
    assert world.check().well
    with pytest.raises(NotFound, match="no block store"):
        find_store_problems(world.store, "other", share=1, pool=world.pool)


@pytest.mark.parametrize("how", WAYS)
def test_the_first_object_is_made_anew_with_its_size(world: World, how: str):
    if how == "flipped":  # each byte of its uuid and its size
        first = world.store.objects["v/store"]
        for at in range(first.index(b'"uuid"'), first.index(b'"created"')):
            world.store.objects["v/store"] = first[:at] + bytes([first[at] ^ 8]) + first[at + 1 :]
            assert world.check(0).of("store") or read_superblock(world.store, "v").blocks // PART_BLOCKS == 2
        world.store.objects["v/store"] = first.replace(b'"uuid"', b'"muid"')
    else:
        change(world, "v/store", how)
    (problem,) = world.check().problems
    assert (problem.kind, problem.key) == ("store", "v/store")
    with pytest.raises(Refused, match="made anew"):
        world.repair()
    with pytest.raises(Refused, match="made anew"):
        world.repair(size=PART_BLOCKS * BLOCK_SIZE)
    report, job = world.repair(size=BLOCKS * BLOCK_SIZE)
    assert report.well
    assert any("v/store" in one for one in job.done)
    assert world.read() == 0


@pytest.mark.parametrize("how", WAYS)
def test_the_epoch_is_made_anew_after_all_that_were(world: World, how: str):
    if how == "flipped":
        world.store.objects["v/epoch"] = b"[" + world.store.objects["v/epoch"][1:]
    else:
        change(world, "v/epoch", how)
    report = world.check()
    assert {(one.kind, one.key) for one in report.problems} == {("epoch", "v/epoch")}
    report, _ = world.repair()
    assert report.well
    assert world.read() == 0
    assert world.check().well


@pytest.mark.parametrize("how", WAYS)
def test_a_newest_checkpoint_gives_way_to_the_one_before(world: World, how: str):
    engine = world.attach()
    engine.checkpoint()
    engine.checkpoint()
    world.end(engine)
    newest = world.keys("checkpoints")[-1]
    change(world, newest, how)
    report = world.check()
    assert [one.key for one in report.problems] == ([] if how == "removed" else [newest])
    report, _ = world.repair()
    assert report.well, report.problems
    assert world.read() == 0
    assert newest not in world.store.objects


def test_a_checkpoint_under_another_name_is_told(world: World):
    engine = world.attach()
    engine.checkpoint()
    world.end(engine)
    one, other = world.keys("checkpoints")[-2:]
    change(world, one, "swapped", other)
    assert {problem.key for problem in world.check().of("checkpoint")} == {one, other}


def test_without_any_checkpoint_nothing_is_repaired(world: World):
    for key in world.keys("checkpoints"):
        del world.store.objects[key]
    report = world.check()
    assert [problem.kind for problem in report.problems] == ["checkpoint"]
    before = {key for key in world.store.objects if key != "v/epoch"}
    with pytest.raises(Refused, match="cannot be repaired"):
        world.repair()
    assert {key for key in world.store.objects if key != "v/epoch"} == before


def test_a_writer_may_be_at_work(world: World):
    """Between any two requests of a check its writer may clear, checkpoint and remove."""
    engine = world.attach()
    engine.checkpoint()
    store = BusyStore(world, engine)
    for seed in range(12):
        store.random = random.Random(seed)
        report = find_store_problems(store, "v", share=1, pool=ThreadPoolExecutor(1), settle=0)
        assert report.well, report.problems
        assert report.strays == []
    assert store.moves > 20
    world.end(engine)
    assert world.check().well


class BusyStore(MemoryStore):
    """The same objects; before each request their writer may do something."""

    def __init__(self, world: World, engine: BlockEngine) -> None:
        super().__init__()
        self.objects = world.store.objects
        self.world, self.engine = world, engine
        self.random = random.Random(0)
        self.moves = 0

    def _find(self, key: str) -> bytes:
        if self.random.random() < 0.25:
            self.moves += 1
            self.world.write(self.engine, self.random.choice(SPOTS), 40)
            self.engine.flush()
            self.engine.checkpoint()
        return super()._find(key)


def test_what_is_lost_is_told_by_bytes():
    assert merge_ranges([make_runs([(5, 2, 1, 0), (9, 1, 1, 0)]), make_runs([(7, 1, 2, 9)])]) == [
        (5 * BLOCK_SIZE, 3 * BLOCK_SIZE),
        (9 * BLOCK_SIZE, BLOCK_SIZE),
    ]


damages = st.lists(
    st.tuples(st.integers(0, 200), st.sampled_from(WAYS), st.integers(0, 1 << 20)), min_size=1, max_size=3
)


@settings(max_examples=cases(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(damages, st.booleans())
@example(
    [(1, "removed", 0), (13, "flipped", 0), (3, "removed", 0)], False
)  # part, usage and segment of a block
def test_whatever_is_damaged_nothing_is_read_wrongly(tmp_path_factory, program, zeroes):
    world = World(tmp_path_factory.mktemp("w"))
    world.live_through(zeroes=zeroes)
    for number, how, at in program:
        keys = [key for key in sorted(world.store.objects) if key.startswith(("v/maps", "v/segments"))]
        key = keys[number % len(keys)]
        data = world.store.objects[key]
        if how == "removed":
            del world.store.objects[key]
        elif how == "cut":
            world.store.objects[key] = data[: at % (len(data) + 1)]
        elif data:
            flipped = bytearray(data)
            flipped[at % len(data)] ^= 1 << at % 8
            world.store.objects[key] = bytes(flipped)
    report = world.check()
    lost = blocks_of(report)
    try:
        world.repair(doubtful="fail")
    except Refused:
        return
    world.read(lost_is_fine=lambda block: block in lost or bool(report.of("part")))
    world.pool.shutdown()
