"""The device against a plain dictionary, with its process killed or the power cut at any call of store and journal."""

from __future__ import annotations

import gc
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.examples import EXAMPLES, cases
from tests.unit.object_store.faulty_store import WRONG, Crash, Fault, FaultyStore
from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore.attach import attach
from zvault.blockstore.engine import Engine
from zvault.blockstore.fence import Fenced
from zvault.blockstore.format import BLOCK, numbers_of
from zvault.blockstore.log.journal import NoRoom
from zvault.blockstore.map.map_part import PART
from zvault.blockstore.options import Mode, Options
from zvault.blockstore.recovery import create
from zvault.blockstore.view import View
from zvault.core.errors import Refused, ZvaultError
from zvault.object_store.interface import SMALL, Buffer, ListedObject, StoreError

STRIDE = 1 if EXAMPLES else len(WRONG)
"""Calls from one that goes wrong to the next: in an ordinary run each call goes wrong in one way, the next in another;
in a soak each goes wrong in every way."""
BLOCKS = 2 * PART + 5
SPOTS = [0, 1, 2, 3, 7, 8, 60, PART - 2, PART - 1, PART, PART + 1, 2 * PART - 1, 2 * PART, 2 * PART + 4]
"""Where writes begin: crowded, and around the borders of parts."""

State = dict[int, int]
"""What each block holds, by the number of the write; a block that is not in it is zero."""

writes = st.tuples(st.just("write"), st.sampled_from(SPOTS), st.sampled_from([1, 1, 2, 5, 33, 700]))
zeroes = st.tuples(st.just("zero"), st.sampled_from(SPOTS), st.sampled_from([1, 3, 40, PART, 2 * PART + 5]))
others = st.sampled_from([("flush", 0, 0), ("checkpoint", 0, 0), ("collect", 0, 0), ("read", 0, 0)])
ends = st.sampled_from([("kill", 0, 0), ("cut", 0, 0), ("close", 0, 0)])
steps = st.lists(st.one_of(writes, writes, zeroes, others, others, ends), min_size=1, max_size=24)
faults = st.lists(
    st.builds(Fault, st.integers(0, 120), st.sampled_from(WRONG), st.integers(1, 9)), max_size=2
)


class World:
    """One store, and the device on it as its user sees it."""

    def __init__(self, mode: Mode, wrong: list[Fault]) -> None:
        self.folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
        self.options = Options(
            journal=self.folder / "journal",
            mode=mode,
            journal_size=16 << 20,
            uploads=0,
            memory=1 << 20,
            linger=1e9,
            seen=self.folder / "seen",
        )
        self.memory = MemoryStore()
        create(self.memory, "vault", BLOCKS * BLOCK)
        self.late = any("late" in fault.wrong for fault in wrong)
        """Objects of a dead process may come to be when nobody looks for them any more."""
        self.calls = 0
        self.tag = 0
        self.state: State = {}
        self.safe: list[State] = [{}]
        """States that the device may be in after a power cut: that of the last flush, and all since."""
        self.engine: Engine | None = None
        self.store = FaultyStore(self.memory, wrong)

    def opened(self) -> Engine:
        while self.engine is None:
            try:
                self.engine = attach(self.store, "vault", self.options, "test")
            except (Crash, StoreError):
                self.end()
            else:
                self.keep_journal()
                self.look(self.engine, [self.state])
        return self.engine

    def end(self, *, cut: bool = False) -> None:
        """The process is gone; with ``cut`` all that was only in memory too."""
        journal, kept = self.options.journal, self.folder / "kept"
        if not cut and journal.exists():
            shutil.copytree(journal, kept)
        if self.engine is not None:
            self.engine.fail(StoreError("it is gone"))
            self.engine.abandon()
            self.engine = None
        if self.options.mode == "strict" or not cut:
            shutil.rmtree(journal, ignore_errors=True)
            if kept.exists():
                kept.rename(journal)
        else:
            shutil.rmtree(journal, ignore_errors=True)
            if (self.folder / "flushed").exists():
                shutil.copytree(self.folder / "flushed", journal)
        self.calls += len(self.store.calls)
        self.store = FaultyStore(self.memory)

    def lost(self, allowed: list[State], *, cut: bool) -> None:
        """The process is gone, and what is there now is one of these."""
        late = self.store
        self.end(cut=cut)
        while self.engine is None:
            try:
                self.engine = attach(self.store, "vault", self.options, "test")
            except (Crash, StoreError):
                self.end()
        self.keep_journal()
        late.settle()
        self.state = self.look(self.engine, allowed)
        self.safe = [state for state in allowed if state == self.state]

    def look(self, engine: Engine, allowed: list[State]) -> State:
        found: State = {}
        for first, count in runs(set().union(*allowed)):
            data = np.frombuffer(engine.read(first * BLOCK, count * BLOCK), np.int64).reshape(count, -1)
            assert (data == data[:, :1]).all(), "a block is a mixture"
            found |= {block: tag for block, tag in enumerate(data[:, 0].tolist(), first) if tag}
        assert found in allowed, self.told(found, allowed)
        return found

    def told(self, found: State, allowed: list[State]) -> str:
        best = min(allowed, key=lambda state: len(state.items() ^ found.items()))
        return f"of {len(allowed)}: {sorted(best.items() ^ found.items())[:10]}"

    def step(self, what: str, block: int, count: int) -> None:
        before = dict(self.state)
        after = dict(self.state)
        count = min(count, BLOCKS - block)
        if what == "write":
            self.tag += 1
            after |= dict.fromkeys(range(block, block + count), self.tag)
        elif what == "zero":
            after = {at: tag for at, tag in after.items() if not block <= at < block + count}
        try:
            self.do(what, block, count)
        except (Crash, StoreError):
            # The power may go at once with the process; what the store took since the last flush may be there.
            cut = self.tag % 2 == 0
            self.lost([*self.safe, before, after] if cut else [before, after], cut=cut)
            return
        if what in ("kill", "cut"):
            return
        self.state = after
        if what in ("write", "zero"):
            self.safe.append(after)

    def do(self, what: str, block: int, count: int) -> None:
        engine = self.opened()
        if what == "write":
            engine.write(block * BLOCK, self.tag.to_bytes(8, "little") * (count * BLOCK // 8))
        elif what == "zero":
            engine.zero(block * BLOCK, count * BLOCK)
        elif what == "flush":
            engine.flush()
            self.flushed()
        elif what == "checkpoint":
            engine.put_all()
            engine.checkpoint()
        elif what == "collect":
            engine.collect()
        elif what == "read":
            self.look(engine, [self.state])
        elif what == "close":
            engine.close()
            self.engine = None
            assert sum(file.stat().st_size for file in self.options.journal.iterdir()) < 200, (
                "frames are left"
            )
            self.flushed()
            self.seen_by_a_reader()
        else:
            self.lost(self.safe if what == "cut" else [self.state], cut=what == "cut")

    def flushed(self) -> None:
        self.safe = [self.state]
        self.keep_journal()

    def keep_journal(self) -> None:
        """As it is on the disk for sure. Strict, what it had is not looked at again after a power cut."""
        if self.options.mode == "strict":
            return
        shutil.rmtree(self.folder / "flushed", ignore_errors=True)
        shutil.copytree(self.options.journal, self.folder / "flushed")

    def seen_by_a_reader(self) -> None:
        view = View(self.memory, "vault", workers=0)
        for block in list(self.state)[::50]:
            data = view.read(block * BLOCK, BLOCK)
            assert int.from_bytes(data[:8], "little") == self.state[block]


def listed(store: MemoryStore, kind: str) -> list[str]:
    return [found.key for found in store.list(f"vault/{kind}/")]


def runs(blocks: Collection[int]) -> Iterator[tuple[int, int]]:
    """Consecutive blocks, each time as the first and how many."""
    touched = np.array(sorted(blocks), np.int64)
    for run in np.split(touched, np.flatnonzero(np.diff(touched) != 1) + 1) if len(touched) else []:
        yield int(run[0]), len(run)


def walk(mode: Mode, program: list[tuple[str, int, int]], wrong: list[Fault]) -> World:
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
    there = {sequence for sequence, _ in map(numbers_of, listed(world.memory, "segments")) if not world.late}
    assert there <= set(counted), "segments that nobody needs are still there"
    assert world.late or len(listed(world.memory, "maps")) <= len(engine.blocks.root.maps) + 2
    engine.close()
    world.engine = None


@pytest.mark.parametrize("mode", ["strict", "writeback"])
@settings(max_examples=cases(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(steps, faults)
def test_it_is_what_was_written_whatever_happens(mode: Mode, program: list[Any], wrong: list[Fault]) -> None:
    walk(mode, program, wrong)


LIFE = [
    *(("write", spot, 5) for spot in SPOTS[:8]),
    ("flush", 0, 0),
    ("write", 2, 700),
    ("checkpoint", 0, 0),
    *(("write", 3 + at, 33) for at in range(0, 600, 33)),
    ("flush", 0, 0),
    ("zero", 0, PART),
    ("collect", 0, 0),
    ("checkpoint", 0, 0),
    ("write", 8, 40),
    ("checkpoint", 0, 0),
    ("close", 0, 0),
    ("write", 1, 1),
    *(("write", 60 + at, 700) for at in (0, 600, 1200, 1800, 2400)),
    ("flush", 0, 0),
]


@pytest.mark.parametrize("mode", ["strict", "writeback"])
@pytest.mark.parametrize("wrong", WRONG)
def test_any_call_of_a_life_may_go_wrong(mode: Mode, wrong: Any) -> None:
    calls = walk(mode, LIFE, []).calls
    assert calls > 40
    for at in range(WRONG.index(wrong) % STRIDE, calls + 10, STRIDE):
        walk(mode, LIFE, [Fault(at, wrong, 3)])


@pytest.mark.parametrize("mode", ["strict", "writeback"])
def test_a_writer_that_was_shut_out_is_never_seen(tmp_path: Path, mode: Mode) -> None:
    store = MemoryStore()
    create(store, "vault", BLOCKS * BLOCK)
    old = attach(store, "vault", Options(tmp_path / "a", mode=mode, uploads=0), "a")
    old.write(0, b"a" * BLOCK)
    old.flush()
    old.put_all()
    new = attach(store, "vault", Options(tmp_path / "b", uploads=0), "b")
    old.write(0, b"x" * BLOCK)
    if mode == "strict":
        with pytest.raises(Fenced, match="b has taken it"):
            old.flush()
        with pytest.raises(Fenced):
            old.write(0, b"x" * BLOCK)
    else:
        old.flush()  # its journal has it, which nobody shuts it out of
        old.put_all()
    new.write(BLOCK, b"b" * BLOCK)
    new.flush()
    if mode == "writeback":
        with pytest.raises(Fenced, match="b has taken it"):
            old.checkpoint()
    new.close()
    again = attach(store, "vault", Options(tmp_path / "b", uploads=0), "b")
    assert again.read(0, 2 * BLOCK) == b"a" * BLOCK + b"b" * BLOCK
    for _ in range(3):
        again.checkpoint()
    assert {key[:2] for key in map(numbers_of, listed(store, "segments"))} == {(1, 1), (2, 2), (2, 1)}
    again.close()


class Interrupted(MemoryStore):
    """A store in which something else happens just before one of the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 0
        self.then: Callable[[], None] | None = None

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0 and (then := self.then) is not None:
            self.then = None
            then()

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        self._count()
        return super().get(key, start, length)

    def tail(self, key: str, length: int) -> tuple[bytes, int]:
        self._count()
        return super().tail(key, length)

    def read(self, key: str, most: int = SMALL) -> tuple[bytes, str]:
        self._count()
        return super().read(key, most)

    def put(self, key: str, data: Buffer, condition: str | None = None) -> str:
        self._count()
        return super().put(key, data, condition)

    def list(self, prefix: str, after: str = "") -> Iterator[ListedObject]:
        self._count()
        return super().list(prefix, after)


@pytest.mark.parametrize(
    ("inner", "answers"), [("flush", {True, False}), ("take", {False})], ids=["while taken", "while flushed"]
)
def test_what_a_flush_was_answered_for_is_there_whoever_took_the_store_meanwhile(
    tmp_path: Path, inner: str, answers: set[bool]
) -> None:
    answered: set[bool] = set()
    for at in range(30):
        store = Interrupted()
        create(store, "vault", BLOCKS * BLOCK)
        old = attach(store, "vault", Options(tmp_path / f"a{at}", uploads=0), "a")
        taken: list[Engine] = []
        flushed: list[bool] = []

        def flush(old: Engine = old, flushed: list[bool] = flushed) -> None:
            try:
                old.write(0, b"a" * BLOCK)
                old.flush()
            except Fenced:
                flushed.append(False)
            else:
                flushed.append(True)

        def take(store: MemoryStore = store, taken: list[Engine] = taken, at: int = at) -> None:
            taken.append(attach(store, "vault", Options(tmp_path / f"b{at}", uploads=0), "b"))

        first, store.then = (take, flush) if inner == "flush" else (flush, take)
        store.left = at
        first()
        if store.then is not None:
            break  # it was all over before
        assert taken[0].read(0, BLOCK) == b"a" * BLOCK or not flushed[0]
        answered.add(flushed[0])
    else:
        pytest.fail("it asks for more than is tried here")
    assert answered == answers


class Forgetful(MemoryStore):
    """A store whose first answer to each put is lost, behind somebody who then asks again."""

    def put(self, key: str, data: Buffer, condition: str | None = None) -> str:
        super().put(key, data, condition)
        return super().put(key, data, condition)


def test_nobody_is_shut_out_by_himself_when_an_answer_is_lost(tmp_path: Path) -> None:
    store = Forgetful()
    create(store, "vault", BLOCKS * BLOCK)
    with pytest.raises(Refused, match="something is there already"):
        create(store, "vault", BLOCKS * BLOCK)
    engine = attach(store, "vault", Options(tmp_path / "a", uploads=0), "a")
    engine.write(0, b"a" * BLOCK)
    engine.flush()
    engine.close()


def test_a_journal_that_another_host_overtook_is_not_dropped(tmp_path: Path) -> None:
    store = MemoryStore()
    create(store, "vault", BLOCKS * BLOCK)
    here = Options(tmp_path / "a", mode="writeback", uploads=0)
    old = attach(store, "vault", here, "a")
    old.write(0, b"a" * BLOCK)
    old.flush()
    old.abandon()
    there = attach(store, "vault", Options(tmp_path / "b", uploads=0), "b")
    there.write(0, b"b" * BLOCK)
    there.close()
    with pytest.raises(ZvaultError, match="writes that the store never got"):
        attach(store, "vault", here, "a")
    with pytest.raises(ZvaultError, match="writes that the store never got"):
        attach(store, "vault", here, "a")
    given_up = Options(tmp_path / "a", mode="writeback", uploads=0, give_up_journal=True)
    again = attach(store, "vault", given_up, "a")
    assert again.read(0, BLOCK) == b"b" * BLOCK
    again.close()


def test_a_map_larger_than_its_memory(tmp_path: Path) -> None:
    store = MemoryStore()
    create(store, "vault", 64 * PART * BLOCK)
    options = Options(tmp_path / "a", uploads=0, memory=0)
    engine = attach(store, "vault", options, "a")
    for part in range(1, 64):
        engine.write((part * PART - 1) * BLOCK, part.to_bytes(2, "little") * BLOCK)
    engine.close()
    engine = attach(store, "vault", options, "a")
    for part in range(1, 64):
        assert engine.read((part * PART - 1) * BLOCK, 2 * BLOCK) == part.to_bytes(2, "little") * BLOCK
    assert engine.blocks.memory_used < 9 * 300
    engine.close()


def test_who_writes_is_known_from_the_roots_too(tmp_path: Path) -> None:
    store = MemoryStore()
    create(store, "vault", PART * BLOCK)
    options = Options(tmp_path / "a", uploads=0)
    attach(store, "vault", options, "a").close()
    store.delete(["vault/epoch"])
    engine = attach(store, "vault", options, "a")
    engine.write(0, b"x" * BLOCK)
    engine.close()
    engine = attach(store, "vault", options, "a")
    assert engine.read(0, BLOCK) == b"x" * BLOCK
    engine.close()


def test_a_segment_that_is_gone_is_left_alone(tmp_path: Path) -> None:
    store = MemoryStore()
    create(store, "vault", PART * BLOCK)
    engine = attach(store, "vault", Options(tmp_path / "a", uploads=0), "a")
    engine.write(0, b"x" * (400 * BLOCK))
    engine.flush()
    engine.write(0, b"y" * (200 * BLOCK))
    engine.flush()
    engine.checkpoint()
    store.delete(listed(store, "segments")[:1])
    assert not engine.collector.clear(1)
    assert engine.read(0, BLOCK) == b"y" * BLOCK
    with pytest.raises(StoreError):
        engine.read(300 * BLOCK, BLOCK)
    assert "segments" in engine.status()["trouble"]
    engine.close()


def test_a_discard_touches_only_whole_blocks_and_asks_for_nothing(tmp_path: Path) -> None:
    store = FaultyStore(MemoryStore())
    create(store, "vault", PART * BLOCK)
    engine = attach(store, "vault", Options(tmp_path / "a", uploads=0), "a")
    engine.write(0, b"x" * (8 * BLOCK))
    engine.flush()
    asked = len(store.calls)
    engine.discard(BLOCK + 512, 4 * BLOCK)
    engine.discard(6 * BLOCK + 1, 100)
    assert len(store.calls) == asked
    assert engine.read(0, 8 * BLOCK) == b"x" * (2 * BLOCK) + bytes(3 * BLOCK) + b"x" * (3 * BLOCK)
    engine.close()


@pytest.mark.parametrize("mode", ["strict", "writeback"])
@pytest.mark.parametrize("wrong", ["crash before", "crash after"])
def test_opening_it_may_be_cut_off_again_and_again(mode: Mode, wrong: Any) -> None:
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
                world.engine = attach(store, "vault", world.options, "test")
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


def test_a_full_disk_is_told_until_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    create(store, "vault", PART * BLOCK)
    engine = attach(store, "vault", Options(tmp_path / "a", uploads=0), "a")
    told: list[str | None] = []
    append = engine.journal.append

    def full_once(*frame: Any) -> None:
        told.append(engine.status()["trouble"])
        if len(told) == 1:
            raise NoRoom("the journal's disk is full")
        append(*frame)

    monkeypatch.setattr(engine.journal, "append", full_once)
    engine.write(0, b"x" * BLOCK)
    assert told == [None, "the journal's disk is full"]
    assert engine.status()["trouble"] is None
    assert engine.read(0, BLOCK) == b"x" * BLOCK
    engine.close()
