"""The engine with all its threads: many writers, a store that dawdles and fails, checkpoints and garbage beside them.

Each writer has blocks of its own, and knows what they must hold.
"""

from __future__ import annotations

import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar

import pytest

from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore import block_writer as writing
from zvault.blockstore.attach import attach_store
from zvault.blockstore.engine import BlockEngine
from zvault.blockstore.engine_state import DeviceClosed
from zvault.blockstore.format import BLOCK_SIZE
from zvault.blockstore.map.map_part import PART_BLOCKS
from zvault.blockstore.options import EngineOptions, WriteMode
from zvault.blockstore.recovery import create_store
from zvault.object_store.interface import SMALL_OBJECT, Buffer, ListedObject, StoreError, StoreUnreachable
from zvault.object_store.retrying_store import RetryingStore

T = TypeVar("T")

WRITERS = 5
REGION = 700
"""Blocks that a writer has; each region lies across a border of two parts."""
BLOCKS = (WRITERS + 1) * PART_BLOCKS
LONGEST = 60.0
"""Seconds for anything here; what takes longer hangs."""

MODES = pytest.mark.parametrize("mode", ["strict", "writeback"])


class Dawdling:
    """A store that takes its time, sometimes does not answer, and not at all while it is ``gone``."""

    def __init__(self, store: MemoryStore, *, seconds: float = 0.004, fails: float = 0.05) -> None:
        self.store = store
        self.seconds = seconds
        self.fails = fails
        self.gone = threading.Event()
        self.failed = 0
        self.most = 0
        """Bytes of the largest put."""
        self._random = random.Random(6)

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        return self._do(lambda: self.store.get(key, start, length))

    def tail(self, key: str, length: int) -> tuple[bytes, int]:
        return self._do(lambda: self.store.tail(key, length))

    def read(self, key: str, most: int = SMALL_OBJECT) -> tuple[bytes, str]:
        return self._do(lambda: self.store.read(key, most))

    def put(self, key: str, data: Buffer, condition: str | None = None) -> str:
        self.most = max(self.most, len(data))
        return self._do(lambda: self.store.put(key, data, condition))

    def list(self, prefix: str, after: str = "") -> Iterator[ListedObject]:
        yield from self._do(lambda: list(self.store.list(prefix, after)))

    def delete(self, keys: Sequence[str]) -> None:
        self._do(lambda: self.store.delete(keys))

    def _do(self, call: Callable[[], T]) -> T:
        time.sleep(self._random.random() * self.seconds)
        chance = self._random.random()
        if self.gone.is_set() or chance < self.fails / 2:
            self.failed += 1
            raise StoreUnreachable("it did not answer")
        found = call()
        if chance < self.fails:
            self.failed += 1
            raise StoreUnreachable("its answer was lost")
        return found


class World:
    """One store and the device on it. Nothing may end a thread but its own end."""

    def __init__(self, folder: Path, mode: WriteMode, **sizes: float) -> None:
        self.memory = MemoryStore()
        create_store(self.memory, "vault", BLOCKS * BLOCK_SIZE)
        self.slow = Dawdling(self.memory)
        self.stopping = threading.Event()
        self.store = RetryingStore(
            self.slow,
            stopping=self.stopping,
            say=lambda _: None,
            sleep=lambda seconds: time.sleep(min(seconds, 0.02)),
        )
        options = EngineOptions(
            journal=folder / "journal",
            mode=mode,
            journal_size=64 << 20,
            cache=folder / "cache",
            cache_size=4 << 20,
            memory=1 << 20,
            checkpoint_segments=6,
            linger=0.1,
            idle=0.5,
            collect_rate=1e9,
        )
        self.options = replace(options, **sizes)  # type: ignore[arg-type]
        self.engine = self.attach()
        self.writers = [Writer(self, number) for number in range(WRITERS)]

    def attach(self, **other: int) -> BlockEngine:
        return attach_store(self.store, "vault", replace(self.options, **other), "test")  # type: ignore[arg-type]

    def run(self, *beside: Callable[[], None], operations: int = 150) -> None:
        """Have all write, and ``beside`` called again and again meanwhile."""
        over = threading.Event()
        with threads_that_must_not_fail():
            writers = [
                threading.Thread(target=writer.work, args=(operations,), name=f"writer-{writer.number}")
                for writer in self.writers
            ]
            others = [
                threading.Thread(target=again, args=(call, over), name="beside", daemon=True)
                for call in beside
            ]
            for thread in writers + others:
                thread.daemon = True
                thread.start()
            ended(writers)
            over.set()
            ended(others)
            assert self.engine.failure is None

    def tidy(self) -> None:
        """A checkpoint, and segments cleared that nobody would clear yet, while their blocks are written anew."""
        engine = self.engine
        with engine._care:
            engine.checkpoint()
            live = engine.usage.live[: engine.blocks.root.applied + 1].nonzero()[0].tolist()
            for number in live[-4:]:
                engine.cleaner.clear(number)

    def killed(self) -> None:
        """The process is gone; what it had answered is in the journal or in the store."""
        self.engine.fail(DeviceClosed("it was killed"))
        self.engine.abandon()

    def check(self) -> None:
        """All blocks are what they should be, and counted so."""
        for writer in self.writers:
            writer.check(self.engine)
        with self.engine._care:  # or garbage would be moved meanwhile
            self.engine.put_all()
            self.engine.checkpoint()
            usage = self.engine.usage
            live = {number: int(usage.live[number]) for number in usage.live.nonzero()[0].tolist()}
            counted: dict[int, int] = {}
            for writer in self.writers:
                for extent in self.engine.blocks.locate(writer.first, REGION):
                    if extent.sequence:
                        counted[extent.sequence] = counted.get(extent.sequence, 0) + extent.count
        assert live == counted


class Writer:
    """One that writes, and what it has written: block by block the number that fills it, 0 for zeroes."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.first = (number + 1) * PART_BLOCKS - REGION // 2
        self.blocks = [0] * REGION
        self.random = random.Random(number)
        self.tag = number << 40
        self.longest = 0.0

    def work(self, operations: int) -> None:
        engine = self.world.engine
        for _ in range(operations):
            at = self.random.randrange(REGION)
            count = min(self.random.choice([1, 1, 2, 9, 64, 300]), REGION - at)
            began = time.monotonic()
            match self.random.choice(["write"] * 6 + ["zero", "flush", "read", "read"]):
                case "write":
                    self.tag += 1
                    engine.write((self.first + at) * BLOCK_SIZE, filled(self.tag) * count)
                    self.blocks[at : at + count] = [self.tag] * count
                case "zero":
                    engine.zero((self.first + at) * BLOCK_SIZE, count * BLOCK_SIZE)
                    self.blocks[at : at + count] = [0] * count
                case "flush":
                    engine.flush()
                case _:
                    self.same(engine.read((self.first + at) * BLOCK_SIZE, count * BLOCK_SIZE), at)
            self.longest = max(self.longest, time.monotonic() - began)

    def check(self, engine: BlockEngine) -> None:
        self.same(engine.read(self.first * BLOCK_SIZE, REGION * BLOCK_SIZE), 0)

    def same(self, data: bytes, at: int) -> None:
        for index in range(len(data) // BLOCK_SIZE):
            found = data[index * BLOCK_SIZE : (index + 1) * BLOCK_SIZE]
            wanted = self.blocks[at + index]
            assert found == filled(wanted), (
                f"block {self.first + at + index} has {found[:8].hex()}, not {wanted:x}"
            )


def filled(tag: int) -> bytes:
    return tag.to_bytes(8, "little") * (BLOCK_SIZE // 8)


def again(call: Callable[[], None], over: threading.Event) -> None:
    while not over.wait(0.02):
        call()


def ended(threads: Sequence[threading.Thread]) -> None:
    """Wait for threads; says what hangs where."""
    give_up = time.monotonic() + LONGEST
    for thread in threads:
        thread.join(max(0.0, give_up - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        frames = sys._current_frames().items()
        told = [
            f"{names.get(ident)}:\n{''.join(traceback.format_stack(frame)[-6:])}" for ident, frame in frames
        ]
        raise AssertionError("these hang:\n" + "\n".join(told))


@contextmanager
def threads_that_must_not_fail() -> Iterator[None]:
    """An exception that ends any thread fails the test."""
    said: list[str] = []
    before = threading.excepthook
    threading.excepthook = lambda args: said.append(
        f"{args.thread and args.thread.name}: "
        + "".join(traceback.format_exception(args.exc_type, args.exc_value, args.exc_traceback))
    )
    try:
        yield
    finally:
        threading.excepthook = before
    assert not said, "\n".join(said)


@pytest.fixture
def worlds() -> Iterator[list[World]]:
    made: list[World] = []
    yield made
    for world in made:
        world.stopping.set()
        world.slow.gone.clear()
        world.killed()


@MODES
def test_what_many_write_at_once_is_there_after_a_close(
    worlds: list[World], tmp_path: Path, mode: WriteMode
) -> None:
    worlds.append(world := World(tmp_path, mode))
    world.run(world.tidy, operations=250)
    world.check()
    assert world.engine.cleaner.moved_bytes > 0
    assert world.slow.failed > 2
    assert world.engine.checkpoints.taken > 1
    with threads_that_must_not_fail():
        world.engine.close()
        world.engine = world.attach(uploads=0)
        world.check()


@MODES
def test_what_was_answered_outlives_a_kill(worlds: list[World], tmp_path: Path, mode: WriteMode) -> None:
    worlds.append(world := World(tmp_path, mode))
    for _ in range(3):
        world.run(operations=60)
        with threads_that_must_not_fail():
            world.killed()
            world.engine = world.attach()
            for writer in world.writers:
                writer.check(world.engine)
    world.check()


@MODES
def test_a_small_journal_slows_writers_and_fails_none(
    worlds: list[World], tmp_path: Path, mode: WriteMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    worlds.append(world := World(tmp_path, mode, journal_size=8 << 20, linger=0.5))
    world.slow.seconds = 0.1
    slowed = list[float]()
    monkeypatch.setattr(writing, "time", SimpleNamespace(sleep=lambda s: (slowed.append(s), time.sleep(s))))
    most = 0

    def look() -> None:
        nonlocal most
        most = max(most, len(world.engine.log.memory))

    world.run(look, operations=120)
    assert slowed, "the journal was never so full that anybody was slowed down"
    assert max(slowed) <= writing.LONGEST_HOLD_BACK
    assert most <= world.engine.log.limit
    assert max(writer.longest for writer in world.writers) < LONGEST
    world.check()


@MODES
def test_a_store_that_is_gone_for_a_while_is_waited_for(
    worlds: list[World], tmp_path: Path, mode: WriteMode
) -> None:
    worlds.append(world := World(tmp_path, mode, journal_size=12 << 20))
    world.slow.gone.set()
    seen: list[list[int]] = []

    def look() -> None:
        """It is back once nobody has written anything for some time, as nobody can any more."""
        seen.append([writer.tag for writer in world.writers])
        if world.slow.failed and len(seen) > 50 and seen[-50] == seen[-1]:
            world.slow.gone.clear()

    world.run(look, operations=80)
    assert max(writer.longest for writer in world.writers) > 0.5, "nobody had to wait"
    world.killed()
    world.engine = world.attach()
    world.check()


def test_it_can_be_closed_in_the_middle_of_a_checkpoint(worlds: list[World], tmp_path: Path) -> None:
    worlds.append(world := World(tmp_path, "strict", checkpoint_segments=1))
    with threads_that_must_not_fail():
        for writer in world.writers:
            writer.work(30)
        world.engine.flush()
        world.slow.seconds = 0.3
        time.sleep(0.7)
        world.engine.close()
        with pytest.raises(StoreError):
            world.engine.read(0, BLOCK_SIZE)
        world.slow.seconds = 0.0
        world.engine = world.attach(uploads=0)
        world.check()
