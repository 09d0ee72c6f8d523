"""A block store in memory, with what each block holds, and the ways to damage its objects."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import xxhash

from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore.attach import attach
from zvault.blockstore.engine import Engine
from zvault.blockstore.format import BLOCK, checkpoint_key, map_key
from zvault.blockstore.maintenance.check import check
from zvault.blockstore.maintenance.findings import Report
from zvault.blockstore.maintenance.repair import RepairJob, quiet, repair
from zvault.blockstore.map.blockmap import fetched
from zvault.blockstore.map.map_part import PART, MapPart
from zvault.blockstore.options import Options
from zvault.blockstore.recovery import create, newest_root, superblock
from zvault.object_store.interface import ListedObject, StoreError

BLOCKS = 2 * PART + 100
SPOTS = [0, 5, 700, PART - 3, PART, PART + 900, 2 * PART + 3]


class World:
    """A store with a history: parts, a log after the checkpoint, segments that were cleared, and what it must hold."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = MemoryStore()
        self.pool = ThreadPoolExecutor(4)
        self.options = quiet(Options(folder / "journal", uploads=0, memory=1 << 20))
        self.truth: dict[int, int] = {}
        create(self.store, "v", BLOCKS * BLOCK)
        self.tag = 0

    def attach(self) -> Engine:
        return attach(self.store, "v", self.options, "test")

    def write(self, engine: Engine, block: int, count: int) -> None:
        self.tag += 1
        engine.write(block * BLOCK, self.tag.to_bytes(8, "little") * (count * BLOCK // 8))
        self.truth |= dict.fromkeys(range(block, block + count), self.tag)

    def zero(self, engine: Engine, block: int, count: int) -> None:
        engine.zero(block * BLOCK, count * BLOCK)
        for at in range(block, block + count):
            self.truth.pop(at, None)

    def live_through(self, *, zeroes: bool = False) -> None:
        """Checkpoints, garbage, and a log after the last checkpoint."""
        engine = self.attach()
        for spot in SPOTS:
            self.write(engine, spot, 60)
            engine.flush()
        engine.checkpoint()
        if zeroes:
            self.zero(engine, 10, 20)
            engine.flush()
        for spot in SPOTS[2:5]:
            self.write(engine, spot + 10, 30)
        engine.flush()
        self.write(engine, 5, 60)  # kills what was in the second segment
        engine.flush()
        for _ in range(3):
            engine.checkpoint()
        engine.flush()
        engine.abandon()
        self.end(engine)

    def zeroed(self, *written: range, zeroes: range) -> None:
        """Blocks that were written in one segment, and zeroed in one of their own, which was removed as dead."""
        engine = self.attach()
        for blocks in written:
            self.write(engine, blocks.start, len(blocks))
        engine.flush()
        self.zero(engine, zeroes.start, len(zeroes))
        engine.flush()
        self.write(engine, 700, 5)
        engine.flush()
        for _ in range(5):
            engine.checkpoint()
        engine.close()
        assert len(self.keys("segments")) == 2, "the zeroes' own segment is gone"

    def log(self) -> None:
        """Segments that no checkpoint has."""
        engine = self.attach()
        self.write(engine, 3, 4)
        engine.flush()
        self.write(engine, PART + 3, 4)
        engine.flush()
        self.end(engine)

    def end(self, engine: Engine) -> None:
        engine.fail(StoreError("it is gone"))
        engine.abandon()
        shutil.rmtree(self.options.journal)

    def check(self, share: float = 1.0) -> Report:
        return check(self.store, "v", share=share, pool=self.pool, settle=0)

    def repair(self, **how: object) -> tuple[Report, RepairJob]:
        job = RepairJob(self.options, "repairer", **how)  # type: ignore[arg-type]
        return repair(self.store, "v", job, self.pool), job

    def keys(self, kind: str) -> list[str]:
        return sorted(key for key in self.store.objects if key.startswith(f"v/{kind}"))

    def read(self, *, lost_is_fine: Callable[[int], bool] = lambda _: False) -> int:
        """Every block that was ever written is right, or fails where it may; how many failed."""
        engine, failed = self.attach(), 0
        try:
            for block in sorted(set(self.truth) | {at for spot in SPOTS for at in range(spot, spot + 97)}):
                if block >= BLOCKS:
                    continue
                try:
                    data = engine.read(block * BLOCK, BLOCK)
                except StoreError:
                    assert lost_is_fine(block), block
                    failed += 1
                    continue
                assert data == self.truth.get(block, 0).to_bytes(8, "little") * (BLOCK // 8), block
        finally:
            self.end(engine)
        return failed


@pytest.fixture(name="world")
def world_for_test(tmp_path: Path) -> Iterator[World]:
    it = World(tmp_path)
    it.live_through()
    it.log()
    yield it
    it.pool.shutdown()


def flip(data: bytes) -> bytes:
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def change(world: World, key: str, how: str, other: str = "") -> None:
    objects = world.store.objects
    if how == "removed":
        del objects[key]
    elif how == "swapped":
        objects[key], objects[other] = objects[other], objects[key]
    else:
        objects[key] = {"flipped": flip, "cut": cut}[how](objects[key])


WAYS = ["flipped", "cut", "removed"]


def blocks_of(report: Report) -> set[int]:
    return {at for start, length in report.lost for at in range(start // BLOCK, (start + length) // BLOCK)}


def put_second_part(world: World, change_it: Callable[[np.ndarray], None]) -> np.ndarray:
    """A checkpoint with that part changed, all checksums right, as after a fault of the writer's own; its runs."""
    root = newest_root(world.store, "v", superblock(world.store, "v"))
    runs = MapPart.of_bytes(fetched(world.store, "v", [root.parts[1]])[0]).runs.copy()
    change_it(runs)
    data = MapPart(runs).as_bytes()
    root.number, root.map_number = root.number + 1, root.map_number + 1
    world.store.objects[map_key("v", root.map_number, root.epoch)] = data
    root.parts[1] = (root.map_number, root.epoch, 0, len(data), xxhash.xxh3_64_intdigest(data))
    world.store.objects[checkpoint_key("v", root.number, root.epoch)] = root.as_bytes()
    return runs


def segments_of(world: World) -> list[str]:
    return world.keys("segments")


def world_parts(world: World) -> list[ListedObject]:
    """The object that has the first part of the map."""
    root = newest_root(world.store, "v", superblock(world.store, "v"))
    return [ListedObject(map_key("v", int(ref["map"]), int(ref["epoch"])), 0) for ref in root.parts[:1]]
