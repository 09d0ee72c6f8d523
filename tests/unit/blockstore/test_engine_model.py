"""The device against a plain dictionary, with its process killed or the power cut at any call of store and journal."""

from __future__ import annotations

import functools
import gc
import shutil
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.blockstore.engine_world import SPOTS, World, faults, listed, others, runs, writes, zeroes
from tests.unit.examples import EXAMPLES, cases
from tests.unit.object_store.faulty_store import WRONG, Crash, Fault, FaultyStore
from zvault.blockstore.attach import attach_store
from zvault.blockstore.format import parse_key_numbers
from zvault.blockstore.map.map_part import PART_BLOCKS
from zvault.blockstore.options import WriteMode

STRIDE = 1 if EXAMPLES else len(WRONG)
"""Calls from one that goes wrong to the next: in an ordinary run each call goes wrong in one way, the next in another;
in a soak each goes wrong in every way."""
ends = st.sampled_from([("kill", 0, 0), ("cut", 0, 0), ("close", 0, 0), ("vanish", 0, 0)])
steps = st.lists(st.one_of(writes, writes, zeroes, others, others, ends), min_size=1, max_size=24)


def walk(mode: WriteMode, program: list[tuple[str, int, int]], wrong: list[Fault]) -> World:
    world = World(mode, wrong)
    try:
        for what, block, count in program:
            world.step(what, block, count)
        world.step("cut", 0, 0)
        world.step("close", 0, 0)
        check_nothing_is_amiss(world)
    finally:
        if world.engine is not None:
            world.engine.abandon()
        shutil.rmtree(world.folder)
        # An engine is a circle of objects: until the collector comes, which counts objects, its megabytes stay.
        gc.collect(1)
    return world


def check_nothing_is_amiss(world: World) -> None:
    """Live counts are those of the map, and two checkpoints later nothing is left that nobody needs."""
    engine = world.opened()
    for _ in range(3):
        engine.checkpoint()
    counted: dict[int, int] = {}
    for first, count in runs(world.state):
        for extent in engine.blocks.locate(first, count):
            counted[extent.sequence] = counted.get(extent.sequence, 0) + extent.count
    live = {number: int(engine.usage.live[number]) for number in engine.usage.live.nonzero()[0].tolist()}
    assert live == counted
    there = {
        sequence for sequence, _ in map(parse_key_numbers, listed(world.memory, "segments")) if not world.late
    }
    assert there <= set(counted), "segments that nobody needs are still there"
    assert world.late or len(listed(world.memory, "maps")) <= len(engine.blocks.root.maps) + 2
    engine.close()
    world.engine = None


@pytest.mark.parametrize("mode", ["strict", "writeback"])
@settings(max_examples=cases(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(steps, faults)
def test_it_is_what_was_written_whatever_happens(
    mode: WriteMode, program: list[Any], wrong: list[Fault]
) -> None:
    walk(mode, program, wrong)


LIFE = [
    *(("write", spot, 5) for spot in SPOTS[:8]),
    ("flush", 0, 0),
    ("write", 2, 700),
    ("checkpoint", 0, 0),
    *(("write", 3 + at, 33) for at in range(0, 600, 33)),
    ("flush", 0, 0),
    ("zero", 0, PART_BLOCKS),
    ("collect", 0, 0),
    ("checkpoint", 0, 0),
    ("write", 8, 40),
    ("checkpoint", 0, 0),
    ("close", 0, 0),
    ("write", 1, 1),
    *(("write", 60 + at, 700) for at in (0, 600, 1200, 1800, 2400)),
    ("flush", 0, 0),
]


@functools.cache
def count_calls(mode: WriteMode) -> int:
    """The calls of a life in which nothing goes wrong, counted once."""
    calls = walk(mode, LIFE, []).calls
    assert calls > 40
    return calls


@pytest.mark.parametrize("mode", ["strict", "writeback"])
@pytest.mark.parametrize("wrong", WRONG)
def test_any_call_of_a_life_may_go_wrong(mode: WriteMode, wrong: Any) -> None:
    for at in range(WRONG.index(wrong) % STRIDE, count_calls(mode) + 10, STRIDE):
        walk(mode, LIFE, [Fault(at, wrong, 3)])


@pytest.mark.parametrize("mode", ["strict", "writeback"])
@pytest.mark.parametrize("wrong", ["crash before", "crash after"])
def test_opening_it_may_be_cut_off_again_and_again(mode: WriteMode, wrong: Any) -> None:
    world = World(mode, [])
    try:
        for spot in (0, 700, 1400, 2100, 2800, 3500):
            world.step("write", spot, 700)
        world.flushed()
        world.end()
        calls = 1
        while world.engine is None:
            store = FaultyStore(world.memory, [Fault(calls, wrong)])
            kept = world.folder / "again"
            try:
                world.engine = attach_store(store, "vault", world.options, "test")
            except Crash:
                shutil.copytree(
                    world.options.journal, kept
                )  # what is there now, not what it tidies when it is told
                shutil.rmtree(world.options.journal)
                kept.rename(world.options.journal)
            calls += 1
        assert calls > 8
        store._faults.clear()
        world.look(world.engine, [world.state])
    finally:
        if world.engine is not None:
            world.engine.abandon()
        shutil.rmtree(world.folder)
