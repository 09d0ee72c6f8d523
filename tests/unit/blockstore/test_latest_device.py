"""What lies below a pool that is given up answers each read, whatever the store's writer and the store do."""

from __future__ import annotations

import tempfile
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.unit.blockstore.test_readonly_device import (
    BLOCKS,
    NO_MEMORY,
    SPOTS,
    World,
    content,
    run_over,
    steps,
)
from tests.unit.examples import cases
from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore import latest_device as latest_module
from zvault.blockstore.format import BLOCK_SIZE
from zvault.blockstore.latest_device import READ_TRIES, LatestDevice
from zvault.blockstore.map.map_part import PART_BLOCKS
from zvault.core.errors import NotFound
from zvault.object_store.interface import StoreDenied, StoreError, StoreUnreachable


class Troubled(MemoryStore):
    """A store whose reads fail with ``error`` where there is one, once they may go on; ``asked`` counts them."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__()
        self.objects, self.asked = objects, 0
        self.error: StoreError | None = None
        self.may = threading.Event()
        self.may.set()

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        self.asked += 1
        assert self.may.wait(60)
        if self.error is not None:
            raise self.error
        return super().get(key, start, length)


@pytest.fixture
def world(tmp_path: Path):
    it = World(tmp_path)
    yield it
    it.close()


def latest(world: World, said: list[str] | None = None, store: MemoryStore | None = None) -> LatestDevice:
    world.engine.flush()
    say = said.append if said is not None else lambda _: None
    return LatestDevice(store or world.store, "v", NO_MEMORY, say)


@settings(max_examples=cases(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(steps)
def test_each_read_is_answered_with_what_was_there_since(plan: list[tuple[str, int, int]]):
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        device = latest(world)
        ever: dict[int, set[int]] = defaultdict(lambda: {0})
        try:
            for step in plan:
                world.step(*step)
                for at, tag in world.state.items():
                    ever[at].add(tag)
                for at in (at for spot in SPOTS for at in (spot, spot + 3) if at < BLOCKS):
                    assert device.read(at * BLOCK_SIZE, BLOCK_SIZE) in {content(tag) for tag in ever[at]}
            assert device.zeroes == 0
            assert device.status()["trouble"] is None
        finally:
            device.close()
            world.close()


def test_what_its_writer_removed_is_read_as_it_is_now(world: World):
    world.step("write", 0, 700)
    world.step("checkpoint", 0, 0)
    said: list[str] = []
    device = latest(world, said)
    run_over(world, 4)
    assert device.read(600 * BLOCK_SIZE, BLOCK_SIZE) == content(world.tag)
    assert device.read(0, BLOCK_SIZE) == content(world.tag)
    assert [line for line in said if "its writer went on" in line] == said
    assert len(said) == 1
    assert (device.zeroes, device.status()["trouble"]) == (0, None)
    assert device.status()["checkpoint"] == world.engine.blocks.root.number
    device.close()


def test_what_is_lost_is_zeroes_and_that_is_told_once(world: World):
    world.step("write", 0, 3)
    world.step("checkpoint", 0, 0)
    said: list[str] = []
    device = latest(world, said)
    for key in [key for key in world.store.objects if "/segments/" in key]:
        del world.store.objects[key]
    for count in range(1, 4):
        assert device.read(BLOCK_SIZE, 2 * BLOCK_SIZE) == bytes(2 * BLOCK_SIZE)
        assert device.zeroes == count
    assert len(said) == 1
    assert "answered with zeroes" in said[0], "its writer did not go on"
    assert "answered with zeroes" in (device.status()["trouble"] or "")
    device.close()


def test_a_store_that_does_not_answer_is_not_looked_at_anew(world: World):
    world.step("write", 0, 3)
    world.engine.flush()
    store = Troubled(world.store.objects)
    device = latest(world, store=store)
    store.error, before = StoreUnreachable("it cannot be read", "no answer", "wait"), store.asked
    assert device.read(0, BLOCK_SIZE) == bytes(BLOCK_SIZE)
    assert store.asked - before < READ_TRIES, "each takes as long as the store is waited for"
    assert device.zeroes == 1
    store.error = None
    assert device.read(0, BLOCK_SIZE) == content(world.state[0])
    assert device.read(PART_BLOCKS * BLOCK_SIZE, BLOCK_SIZE) == bytes(BLOCK_SIZE)
    device.close()


def test_a_read_is_answered_in_time_whatever_the_store_needs(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(latest_module, "READ_SECONDS", 0.2)
    world.step("write", 0, 3)
    world.engine.flush()
    store = Troubled(world.store.objects)
    device = latest(world, store=store)
    store.may.clear()
    try:
        with ThreadPoolExecutor(16) as many:
            began = time.monotonic()
            assert set(many.map(lambda _: device.read(0, BLOCK_SIZE), range(16))) == {bytes(BLOCK_SIZE)}
            assert time.monotonic() - began < 30, "all at once, not one after another"
        assert device.zeroes >= 16
    finally:
        store.may.set()
    device.close()


def test_who_is_refused_does_not_look_again_and_again(world: World):
    world.step("write", 0, 3)
    world.engine.flush()
    store = Troubled(world.store.objects)
    device = latest(world, store=store)
    store.error, before = StoreDenied("it cannot be read", "the key was revoked", ""), store.asked
    for _ in range(8):
        assert device.read(0, BLOCK_SIZE) == bytes(BLOCK_SIZE)
    assert store.asked - before <= 8
    device.close()


def test_there_has_to_be_a_store():
    with pytest.raises(NotFound):
        LatestDevice(MemoryStore(), "v", NO_MEMORY)
