"""What is looked at stays of one moment, whatever its writer does meanwhile, until that removes what it needs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.examples import cases
from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore.attach import attach_store
from zvault.blockstore.engine import BlockEngine
from zvault.blockstore.format import BLOCK_SIZE, ObjectDamaged, parse_key_numbers
from zvault.blockstore.maintenance.repair import quiet_options
from zvault.blockstore.map.map_part import PART_BLOCKS
from zvault.blockstore.options import EngineOptions, ReadOptions
from zvault.blockstore.readonly_device import DeviceSuperseded, ReadOnlyDevice
from zvault.blockstore.recovery import create_store, read_superblock
from zvault.blockstore.store_view import StoreView, view_store_now
from zvault.core.errors import Busy, NotFound
from zvault.object_store.interface import ObjectMissing, StoreError

BLOCKS = 2 * PART_BLOCKS + 5
SPOTS = [0, 1, 5, 60, PART_BLOCKS - 2, PART_BLOCKS, 2 * PART_BLOCKS - 30, 2 * PART_BLOCKS + 4]
NO_MEMORY = ReadOptions(memory=1, workers=0)
"""Every read asks the store again."""

writes = st.tuples(st.just("write"), st.sampled_from(SPOTS), st.sampled_from([1, 2, 5, 33, 700]))
zeroes = st.tuples(st.just("zero"), st.sampled_from(SPOTS), st.sampled_from([1, 40, PART_BLOCKS]))
others = st.sampled_from(
    [("checkpoint", 0, 0), ("checkpoint", 0, 0), ("collect", 0, 0), ("again", 0, 0), ("look", 0, 0)]
)
steps = st.lists(st.one_of(writes, writes, zeroes, others, others), min_size=4, max_size=40)


@dataclass
class Look:
    """A device that is looked at, and what it must hold: the number of the write of each block."""

    device: ReadOnlyDevice
    state: dict[int, int]
    said: list[str]
    checkpoint: int


class World:
    """A writer, and those who look on."""

    def __init__(self, folder: Path) -> None:
        self.store = MemoryStore()
        create_store(self.store, "v", BLOCKS * BLOCK_SIZE)
        self.options = quiet_options(EngineOptions(folder / "journal", uploads=0, memory=1 << 20))
        self.engine = self.attach()
        self.state: dict[int, int] = {}
        self.tag = 0
        self.looks: list[Look] = []

    def attach(self) -> BlockEngine:
        return attach_store(self.store, "v", self.options, "writer")

    def step(self, verb: str, block: int, count: int) -> None:
        count = min(count, BLOCKS - block)
        if verb == "write":
            self.tag += 1
            self.engine.write(block * BLOCK_SIZE, content(self.tag) * count)
            self.state.update(dict.fromkeys(range(block, block + count), self.tag))
        elif verb == "zero":
            self.engine.zero(block * BLOCK_SIZE, count * BLOCK_SIZE)
            for at in range(block, block + count):
                self.state.pop(at, None)
        elif verb == "checkpoint":
            self.engine.flush()
            self.engine.checkpoint()
        elif verb == "collect":
            self.engine.collect()
        elif verb == "again":
            self.engine.close()
            self.engine = self.attach()
        else:
            self.look()

    def look(self, options: ReadOptions = NO_MEMORY) -> Look:
        """From now on; what the writer was answered is there."""
        self.engine.flush()
        said: list[str] = []
        device = ReadOnlyDevice(self.store, "v", read_superblock(self.store, "v"), options, said.append)
        self.looks.append(Look(device, dict(self.state), said, self.engine.blocks.root.number))
        return self.looks[-1]

    def close(self) -> None:
        for look in self.looks:
            look.device.close()
        self.engine.fail(StoreError("over"))
        self.engine.abandon()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    it = World(tmp_path)
    yield it
    it.close()


def content(tag: int) -> bytes:
    return tag.to_bytes(8, "little") * (BLOCK_SIZE // 8)


def right(look: Look, block: int) -> bool:
    """A block is as it was then; False where it cannot be read."""
    try:
        found = look.device.read(block * BLOCK_SIZE, BLOCK_SIZE)
    except DeviceSuperseded:
        return False
    assert found == content(look.state.get(block, 0))
    return True


@settings(max_examples=cases(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(steps)
def test_it_is_never_a_mixture(plan: list[tuple[str, int, int]]):
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        try:
            for step in [("look", 0, 0), *plan]:
                world.step(*step)
                for look in world.looks:
                    spots = (at for spot in SPOTS for at in (spot, spot + 3) if at < BLOCKS)
                    lost = [at for at in spots if not right(look, at)]
                    since = world.engine.blocks.root.number - look.checkpoint
                    assert not lost or since >= 2, "nothing is removed before the second checkpoint"
                    assert len(look.said) <= 1
        finally:
            world.close()


def run_over(world: World, checkpoints: int) -> None:
    """The writer writes all anew, so that nothing of before is needed, and takes checkpoints."""
    for _ in range(checkpoints):
        world.step("write", 0, 700)
        world.step("checkpoint", 0, 0)


def test_it_fails_when_its_writer_has_gone_on_and_says_so_once(world: World):
    world.step("write", 0, 700)
    world.step("checkpoint", 0, 0)
    world.step("write", 100, 5)
    look = world.look()
    run_over(world, 1)
    assert all(right(look, at) for at in range(0, 700, 50))
    run_over(world, 3)
    assert not any(right(look, at) for at in range(0, 600, 50)), "but what it still has in memory"
    assert right(look, PART_BLOCKS + 5), "zeroes need no object"
    (said,) = look.said
    assert "the block store in v as of 20" in said
    assert "its writer has since removed" in said
    assert "attach it anew" in said
    assert look.device.status()["trouble"] == said
    assert all(right(world.look(), at) for at in range(0, 700, 50)), "another has all"


def test_a_part_of_the_map_that_the_writer_removed_is_told_so_too(world: World):
    world.step("write", 0, 3)
    world.step("checkpoint", 0, 0)
    look = world.look()
    for key in [key for key in world.store.objects if "/maps/" in key]:
        del world.store.objects[key]
    with pytest.raises(ObjectDamaged):
        look.device.read(0, BLOCK_SIZE)
    assert look.said == []
    world.engine.blocks.stage(0, world.engine.blocks.known(0) or pytest.fail("it is not in memory"))
    run_over(world, 2)
    assert not right(look, 0)
    assert len(look.said) == 1


def test_what_is_lost_is_not_taken_for_what_its_writer_removed(world: World):
    world.step("write", 0, 3)
    look = world.look()
    run_over(world, 1)
    for key in [key for key in world.store.objects if "/segments/" in key]:
        del world.store.objects[key]
    with pytest.raises(ObjectMissing):
        look.device.read(0, BLOCK_SIZE)
    assert look.said == []
    assert look.device.status()["trouble"] is None


class Racing(MemoryStore):
    """A store whose writer does something between the look for the newest checkpoint and that for the log."""

    def __init__(self, store: MemoryStore, world: World, times: int) -> None:
        super().__init__()
        self.objects = store.objects
        self.world, self.times = world, times

    def list(self, prefix: str, after: str = ""):
        if "/segments/" in prefix and self.times:
            self.times -= 1
            self.world.step("write", 0, 700)
            run_over(self.world, 3)
        return super().list(prefix, after)


def test_a_view_is_of_now_though_checkpoints_are_taken_meanwhile(world: World):
    for _ in range(3):
        world.step("write", 0, 700)
        world.engine.flush()
    with pytest.raises(ObjectDamaged, match="segment 1 of the log is missing"):
        StoreView(Racing(world.store, world, 1), "v")
    view = view_store_now(Racing(world.store, world, 2), "v")
    assert view.read(0, BLOCK_SIZE) == content(world.tag)
    assert view.later() == (0, 0)
    view.close()
    with pytest.raises(Busy, match="could not be looked at"):
        view_store_now(Racing(world.store, world, 99), "v")


def test_one_that_nobody_wrote_to_and_none(world: World):
    store = MemoryStore()
    create_store(store, "v", BLOCKS * BLOCK_SIZE)
    device = ReadOnlyDevice(store, "v", read_superblock(store, "v"), ReadOptions())
    assert device.read(5, 10_000) == bytes(10_000)
    assert (device.size, device.shows) == (BLOCKS * BLOCK_SIZE, "0 segments of log")
    device.close()
    with pytest.raises(NotFound):
        ReadOnlyDevice(MemoryStore(), "v", read_superblock(store, "v"), ReadOptions())


def test_it_takes_nothing_and_puts_nothing(world: World):
    world.step("write", 0, 5)
    world.engine.flush()
    before = dict(world.store.objects)
    look = world.look(ReadOptions())
    assert all(right(look, at) for at in range(7))
    assert world.store.objects == before
    world.step("write", 3, 1)
    world.step("checkpoint", 0, 0)
    world.engine.fence.look()
    assert [parse_key_numbers(key)[0] for key in world.store.objects if "/checkpoints/" in key] == [1, 1]
