"""Checking and repairing the segments and the log of a block store: what is lost, told, cut and removed."""

from __future__ import annotations

import pytest

from tests.unit.blockstore.maintenance.check_world import (
    WAYS,
    World,
    blocks_of,
    change,
    segments_of,
    world_for_test,  # noqa: F401
)
from zvault.blockstore.format import BLOCK_SIZE, SLOT_SIZE
from zvault.blockstore.map.map_part import PART_BLOCKS
from zvault.core.errors import Refused


@pytest.mark.parametrize("how", [*WAYS, "swapped"])
@pytest.mark.parametrize("which", range(8))
def test_a_damaged_segment_loses_its_own_blocks_only(world: World, how: str, which: int):
    keys = segments_of(world)
    if which >= len(keys) - 2:
        pytest.skip("of the log")
    live = set(world.truth)
    change(world, keys[which], how, keys[(which + 1) % (len(keys) - 2)])
    report = world.check()
    assert keys[which] in {problem.key for problem in report.problems}
    lost = blocks_of(report)
    assert lost < live
    assert lost or how in ("flipped", "cut"), "only what was dead in it"
    report, _ = world.repair()
    failed = world.read(lost_is_fine=lost.__contains__)
    assert failed == len(lost)
    assert blocks_of(report) <= lost, "no more is lost than was"
    assert not world.check().of("usage", "part", "position", "log", "epoch", "checkpoint")


def test_a_flipped_byte_of_a_table_loses_nothing(world: World):
    key = segments_of(world)[0]
    data = bytearray(world.store.objects[key])
    data[-80] ^= 1
    world.store.objects[key] = bytes(data)
    report = world.check(0)
    assert [problem.kind for problem in report.problems] == ["segment"]
    assert report.lost == []
    report, job = world.repair()
    assert report.well
    assert "wrote" in " ".join(job.done)
    assert world.read() == 0
    engine = world.attach()
    for _ in range(3):
        engine.checkpoint()
    world.end(engine)
    assert key not in world.store.objects


def test_a_flipped_byte_of_a_slot_is_found_by_reading_it(world: World):
    key = segments_of(world)[0]
    data = bytearray(world.store.objects[key])
    data[2 * SLOT_SIZE + 99] ^= 1
    world.store.objects[key] = bytes(data)
    assert world.check(0).well
    report = world.check()
    (problem,) = report.problems
    assert (problem.kind, problem.key) == ("slots", key)
    assert [length for _, length in report.lost] == [BLOCK_SIZE]


@pytest.mark.parametrize("how", ["flipped", "cut"])
def test_a_log_that_cannot_be_read_is_cut_only_when_told(world: World, how: str):
    key = segments_of(world)[-2]
    if how == "flipped":
        data = bytearray(world.store.objects[key])
        data[-80] ^= 1
        world.store.objects[key] = bytes(data)
    else:
        change(world, key, how)
    report = world.check()
    assert [(one.kind, one.key) for one in report.problems] == [("log", key)]
    objects = dict(world.store.objects)
    with pytest.raises(Refused, match="log"):
        world.repair()
    assert {k: v for k, v in world.store.objects.items() if k != "v/epoch"} == {
        k: v for k, v in objects.items() if k != "v/epoch"
    }
    report, _ = world.repair(cut=True)
    assert report.well, report.problems
    for block in (*range(3, 7), *range(PART_BLOCKS + 3, PART_BLOCKS + 7)):
        world.truth[block] = {3: 1, 4: 1}.get(block, 11 if block < PART_BLOCKS else 5)
    engine = world.attach()
    assert (
        engine.read(PART_BLOCKS * BLOCK_SIZE, BLOCK_SIZE)
        == world.truth[PART_BLOCKS].to_bytes(8, "little") * 512
    )
    world.end(engine)


def test_a_segment_of_the_log_that_is_missing_is_told(world: World):
    key = segments_of(world)[-2]
    change(world, key, "removed")
    (problem,) = world.check().problems
    assert (problem.kind, problem.key) == ("log", key)


def test_strays_are_listed_and_removed(world: World):
    strays = {
        "v/segments/0000000001-000000ff": b"xx",
        "v/maps/0000000001-00000000": b"yyy",
        "v/checkpoints/00000000-0000000001": b"z",
        "v/notes.txt": b"mine",
    }
    strays.pop("v/segments/0000000001-000000ff")
    strays["v/segments/0000000001-00000000"] = b"xx"
    world.store.objects |= strays
    world.store.objects["v.lease"] = b"not below it"
    report = world.check()
    assert report.well
    assert {one.key: one.size for one in report.strays} == {key: len(data) for key, data in strays.items()}
    report, _ = world.repair()
    assert report.strays == []
    assert not strays.keys() & world.store.objects.keys()
    assert "v.lease" in world.store.objects
