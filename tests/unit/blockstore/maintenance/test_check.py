"""Checking and repairing: each kind of object damaged in each way: found, named, repaired or told."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.unit.examples import cases
from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore.attach import attach
from zvault.blockstore.engine import Engine
from zvault.blockstore.format import BLOCK, SLOT, SLOTS, checkpoint_key, map_key
from zvault.blockstore.maintenance.check import check
from zvault.blockstore.maintenance.findings import Report, merged, runs_of
from zvault.blockstore.maintenance.repair import RepairJob, quiet, repair
from zvault.blockstore.map.blockmap import fetched
from zvault.blockstore.map.map_part import PART, MapPart
from zvault.blockstore.options import Options
from zvault.blockstore.recovery import create, newest_root, superblock
from zvault.core.errors import NotFound, Refused
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


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
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
        check(world.store, "other", share=1, pool=world.pool)


@pytest.mark.parametrize("how", WAYS)
def test_the_first_object_is_made_anew_with_its_size(world: World, how: str):
    if how == "flipped":  # each byte of its uuid and its size
        first = world.store.objects["v/store"]
        for at in range(first.index(b'"uuid"'), first.index(b'"created"')):
            world.store.objects["v/store"] = first[:at] + bytes([first[at] ^ 8]) + first[at + 1 :]
            assert world.check(0).of("store") or superblock(world.store, "v").blocks // PART == 2
        world.store.objects["v/store"] = first.replace(b'"uuid"', b'"muid"')
    else:
        change(world, "v/store", how)
    (problem,) = world.check().problems
    assert (problem.kind, problem.key) == ("store", "v/store")
    with pytest.raises(Refused, match="made anew"):
        world.repair()
    with pytest.raises(Refused, match="made anew"):
        world.repair(size=PART * BLOCK)
    report, job = world.repair(size=BLOCKS * BLOCK)
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
        assert not lost & {3, 4, 5, 6, PART + 3, PART + 6}, "the log tells of these"
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


def test_a_map_that_says_what_cannot_be_is_made_anew(world: World):
    def beyond(runs: np.ndarray) -> None:
        runs["slot"][0] = SLOTS + 900

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
    first = PART + int(runs["start"][0])
    assert lost == set(range(first, first + int(runs["less"][0]) + 1)) - {
        PART + 3,
        PART + 4,
        PART + 5,
        PART + 6,
    }
    world.truth.pop(first + len(lost), None)
    engine = world.attach()
    with pytest.raises(StoreError, match="cannot be read"):
        engine.read(first * BLOCK, BLOCK)
    world.end(engine)


def segments_of(world: World) -> list[str]:
    return world.keys("segments")


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
    data[2 * SLOT + 99] ^= 1
    world.store.objects[key] = bytes(data)
    assert world.check(0).well
    report = world.check()
    (problem,) = report.problems
    assert (problem.kind, problem.key) == ("slots", key)
    assert [length for _, length in report.lost] == [BLOCK]


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
    for block in (*range(3, 7), *range(PART + 3, PART + 7)):
        world.truth[block] = {3: 1, 4: 1}.get(block, 11 if block < PART else 5)
    engine = world.attach()
    assert engine.read(PART * BLOCK, BLOCK) == world.truth[PART].to_bytes(8, "little") * 512
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
            assert world.read(lost_is_fine=lambda block: not 700 <= block < 705 and block < PART) > 60
            # Of what no segment tells of nobody knows whether the one that is gone had it.
            assert report.lost == [(0, 700 * BLOCK), (705 * BLOCK, (PART - 705) * BLOCK)]
            engine = world.attach()
            world.write(engine, 0, 60)
            world.zero(engine, 60, 640)
            world.zero(engine, 705, PART - 705)
            engine.close()
            assert world.check().well, "written anew, they are there again"
            assert world.read() == 0
        else:
            assert report.well
            engine = world.attach()
            assert engine.read(15 * BLOCK, 1) == b"\1"
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
    world.zeroed(range(60), range(PART + 5, PART + 11), zeroes=range(60))
    assert world.keys("checkpoints")
    (key,) = {one.key for one in world_parts(world)}
    world.store.objects[key] = bytes([world.store.objects[key][0] ^ 1]) + world.store.objects[key][1:]
    report, _ = world.repair()
    assert report.well
    assert world.read() == 0


def world_parts(world: World) -> list[ListedObject]:
    """The object that has the first part of the map."""
    root = newest_root(world.store, "v", superblock(world.store, "v"))
    return [ListedObject(map_key("v", int(ref["map"]), int(ref["epoch"])), 0) for ref in root.parts[:1]]


def test_a_writer_may_be_at_work(world: World):
    """Between any two requests of a check its writer may clear, checkpoint and remove."""
    engine = world.attach()
    engine.checkpoint()
    store = BusyStore(world, engine)
    for seed in range(12):
        store.random = random.Random(seed)
        report = check(store, "v", share=1, pool=ThreadPoolExecutor(1), settle=0)
        assert report.well, report.problems
        assert report.strays == []
    assert store.moves > 20
    world.end(engine)
    assert world.check().well


class BusyStore(MemoryStore):
    """The same objects; before each request their writer may do something."""

    def __init__(self, world: World, engine: Engine) -> None:
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
    assert merged([runs_of([(5, 2, 1, 0), (9, 1, 1, 0)]), runs_of([(7, 1, 2, 9)])]) == [
        (5 * BLOCK, 3 * BLOCK),
        (9 * BLOCK, BLOCK),
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
