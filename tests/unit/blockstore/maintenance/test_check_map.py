"""Checking and repairing the map of a block store: rebuilt from the segments, and what it must not say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.unit.blockstore.maintenance.check_world import (
    WAYS,
    World,
    blocks_of,
    change,
    flip,
    put_second_part,
    world_for_test,  # noqa: F401
    world_parts,
)
from zvault.blockstore.format import BLOCK_SIZE, SEGMENT_SLOTS
from zvault.blockstore.map.map_part import PART_BLOCKS
from zvault.core.errors import Refused
from zvault.object_store.interface import StoreError


@pytest.mark.parametrize("how", [*WAYS, "swapped"])
def test_each_object_of_the_map_is_rebuilt_from_the_segments(tmp_path: Path, how: str):
    first = World(tmp_path / "all")
    first.live_through()
    first.log()
    damaged = 0
    for number, _ in enumerate(first.keys("maps")):
        world = World(tmp_path / str(number))
        world.live_through()
        world.log()
        key = world.keys("maps")[number]
        others = [one for one in world.keys("maps") if one != key]
        change(world, key, how, others[0])
        report = world.check()
        if report.well:
            continue  # only the checkpoint before needs it
        damaged += 1
        assert {problem.key for problem in report.of("part", "usage")} & {key, others[0]}
        lost = blocks_of(report)
        assert not lost & {3, 4, 5, 6, PART_BLOCKS + 3, PART_BLOCKS + 6}, "the log tells of these"
        assert not report.of("part") or len(lost) > 50
        doubtful = ""
        if report.of("part") and report.of("usage"):
            with pytest.raises(Refused, match="nobody can tell"):
                world.repair()  # a segment that was cleared might as well be lost
            doubtful = "data"
        report, _ = world.repair(doubtful=doubtful)
        assert report.well, report.problems
        assert world.read() == 0
        assert world.check().well
    assert damaged


def test_a_map_that_says_what_cannot_be_is_made_anew(world: World):
    def beyond(runs: np.ndarray) -> None:
        runs["slot"][0] = SEGMENT_SLOTS + 900

    put_second_part(world, beyond)
    (problem,) = world.check(0).problems
    assert (problem.kind, "what cannot be" in problem.why) == ("part", True)
    report, _ = world.repair()
    assert report.well
    assert world.read() == 0


def test_a_map_that_points_elsewhere_is_told_and_not_read(world: World):
    def elsewhere(runs: np.ndarray) -> None:
        runs["slot"][0] += 1
        runs["less"][0] -= 1

    runs = put_second_part(world, elsewhere)
    report = world.check(0)
    assert {problem.kind for problem in report.problems} == {"position", "usage"}
    lost = blocks_of(report)
    first = PART_BLOCKS + int(runs["start"][0])
    assert lost == set(range(first, first + int(runs["less"][0]) + 1)) - {
        PART_BLOCKS + 3,
        PART_BLOCKS + 4,
        PART_BLOCKS + 5,
        PART_BLOCKS + 6,
    }
    world.truth.pop(first + len(lost), None)
    engine = world.attach()
    with pytest.raises(StoreError, match="cannot be read"):
        engine.read(first * BLOCK_SIZE, BLOCK_SIZE)
    world.end(engine)


def test_zeroes_whose_segment_is_gone_do_not_come_back(tmp_path: Path):
    """Blocks 10 to 29 were written, zeroed in a segment of their own, and the segment was removed as dead."""
    for doubtful in ("", "fail", "data"):
        world = World(tmp_path / (doubtful or "none"))
        world.zeroed(range(60), zeroes=range(10, 30))
        for key in world.keys("maps"):
            data = world.store.objects[key]
            world.store.objects[key] = flip(data) if len(data) < 60 else data
        for key in world.keys("maps"):
            world.store.objects[key] = bytes(40) + world.store.objects[key][40:]
        if not doubtful:
            with pytest.raises(Refused, match="zeroed since"):
                world.repair()
            continue
        report, _ = world.repair(doubtful=doubtful)
        if doubtful == "fail":
            assert world.read(lost_is_fine=lambda block: not 700 <= block < 705 and block < PART_BLOCKS) > 60
            # Of what no segment tells of nobody knows whether the one that is gone had it.
            assert report.lost == [
                (0, 700 * BLOCK_SIZE),
                (705 * BLOCK_SIZE, (PART_BLOCKS - 705) * BLOCK_SIZE),
            ]
            engine = world.attach()
            world.write(engine, 0, 60)
            world.zero(engine, 60, 640)
            world.zero(engine, 705, PART_BLOCKS - 705)
            engine.close()
            assert world.check().well, "written anew, they are there again"
            assert world.read() == 0
        else:
            assert report.well
            engine = world.attach()
            assert engine.read(15 * BLOCK_SIZE, 1) == b"\1"
            world.end(engine)


def test_the_checkpoint_before_knows_what_was_zeroed(tmp_path: Path):
    world = World(tmp_path)
    engine = world.attach()
    world.write(engine, 0, 60)
    engine.flush()
    world.zero(engine, 10, 20)
    engine.flush()
    for _ in range(4):
        engine.checkpoint()
    world.write(engine, 700, 5)
    engine.flush()
    engine.checkpoint()
    engine.close()
    assert len(world.keys("segments")) == 2
    (key,) = {one.key for one in world_parts(world)}
    change(world, key, "removed")
    report, _ = world.repair()
    assert report.well, report.problems
    assert world.read() == 0


def test_counts_tell_that_nothing_came_back(tmp_path: Path):
    """All of a segment was zeroed: where none of it is live, what its table says is zero."""
    world = World(tmp_path)
    world.zeroed(range(60), range(PART_BLOCKS + 5, PART_BLOCKS + 11), zeroes=range(60))
    assert world.keys("checkpoints")
    (key,) = {one.key for one in world_parts(world)}
    world.store.objects[key] = bytes([world.store.objects[key][0] ^ 1]) + world.store.objects[key][1:]
    report, _ = world.repair()
    assert report.well
    assert world.read() == 0
