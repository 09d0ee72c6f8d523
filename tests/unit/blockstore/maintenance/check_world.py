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
from zvault.blockstore.attach import attach_store
from zvault.blockstore.engine import BlockEngine
from zvault.blockstore.format import BLOCK_SIZE, make_checkpoint_key, make_map_key
from zvault.blockstore.maintenance.check import find_store_problems
from zvault.blockstore.maintenance.check_report import CheckReport
from zvault.blockstore.maintenance.repair import RepairJob, quiet_options, repair_store
from zvault.blockstore.map.blockmap import fetch_references
from zvault.blockstore.map.map_part import PART_BLOCKS, MapPart
from zvault.blockstore.options import EngineOptions
from zvault.blockstore.recovery import create_store, read_newest_root, read_superblock
from zvault.object_store.interface import ListedObject, StoreError

BLOCKS = 2 * PART_BLOCKS + 100
SPOTS = [0, 5, 700, PART_BLOCKS - 3, PART_BLOCKS, PART_BLOCKS + 900, 2 * PART_BLOCKS + 3]


class World:
    """A store with a history: parts, a log after the checkpoint, segments that were cleared, and what it must hold."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = MemoryStore()
        self.pool = ThreadPoolExecutor(4)
        self.options = quiet_options(EngineOptions(folder / "journal", uploads=0, memory=1 << 20))
        self.truth: dict[int, int] = {}
        create_store(self.store, "v", BLOCKS * BLOCK_SIZE)
        self.tag = 0

    def attach(self) -> BlockEngine:
        return attach_store(self.store, "v", self.options, "test")

    def write(self, engine: BlockEngine, block: int, count: int) -> None:
        self.tag += 1
        engine.write(block * BLOCK_SIZE, self.tag.to_bytes(8, "little") * (count * BLOCK_SIZE // 8))
        self.truth |= dict.fromkeys(range(block, block + count), self.tag)

    def zero(self, engine: BlockEngine, block: int, count: int) -> None:
        engine.zero(block * BLOCK_SIZE, count * BLOCK_SIZE)
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
        self.write(engine, PART_BLOCKS + 3, 4)
        engine.flush()
        self.end(engine)

    def end(self, engine: BlockEngine) -> None:
        engine.fail(StoreError("it is gone"))
        engine.abandon()
        shutil.rmtree(self.options.journal)

    def check(self, share: float = 1.0) -> CheckReport:
        return find_store_problems(self.store, "v", share=share, pool=self.pool, settle=0)

    def repair(self, **how: object) -> tuple[CheckReport, RepairJob]:
        job = RepairJob(self.options, "repairer", **how)  # type: ignore[arg-type]
        return repair_store(self.store, "v", job, self.pool), job

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
                    data = engine.read(block * BLOCK_SIZE, BLOCK_SIZE)
                except StoreError:
                    assert lost_is_fine(block), block
                    failed += 1
                    continue
                assert data == self.truth.get(block, 0).to_bytes(8, "little") * (BLOCK_SIZE // 8), block
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


def blocks_of(report: CheckReport) -> set[int]:
    return {
        at
        for start, length in report.lost
        for at in range(start // BLOCK_SIZE, (start + length) // BLOCK_SIZE)
    }


def put_second_part(world: World, change_it: Callable[[np.ndarray], None]) -> np.ndarray:
    """A checkpoint with that part changed, all checksums right, as after a fault of the writer's own; its runs."""
    root = read_newest_root(world.store, "v", read_superblock(world.store, "v"))
    runs = MapPart.of_bytes(fetch_references(world.store, "v", [root.parts[1]])[0]).runs.copy()
    change_it(runs)
    data = MapPart(runs).as_bytes()
    root.number, root.map_number = root.number + 1, root.map_number + 1
    world.store.objects[make_map_key("v", root.map_number, root.epoch)] = data
    root.parts[1] = (root.map_number, root.epoch, 0, len(data), xxhash.xxh3_64_intdigest(data))
    world.store.objects[make_checkpoint_key("v", root.number, root.epoch)] = root.as_bytes()
    return runs


def segments_of(world: World) -> list[str]:
    return world.keys("segments")


def world_parts(world: World) -> list[ListedObject]:
    """The object that has the first part of the map."""
    root = read_newest_root(world.store, "v", read_superblock(world.store, "v"))
    return [ListedObject(make_map_key("v", int(ref["map"]), int(ref["epoch"])), 0) for ref in root.parts[:1]]
