"""An engine with its store and its journal, beside a dictionary that says what it must hold."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from tests.unit.object_store.faulty_store import WRONG, Crash, Fault, FaultyStore
from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore.attach import attach_store
from zvault.blockstore.engine import BlockEngine
from zvault.blockstore.format import BLOCK_SIZE
from zvault.blockstore.map.map_part import PART_BLOCKS
from zvault.blockstore.options import EngineOptions, WriteMode
from zvault.blockstore.recovery import create_store
from zvault.blockstore.store_view import StoreView
from zvault.core.errors import JournalMissing
from zvault.object_store.interface import StoreError

BLOCKS = 2 * PART_BLOCKS + 5
SPOTS = [
    0,
    1,
    2,
    3,
    7,
    8,
    60,
    PART_BLOCKS - 2,
    PART_BLOCKS - 1,
    PART_BLOCKS,
    PART_BLOCKS + 1,
    2 * PART_BLOCKS - 1,
    2 * PART_BLOCKS,
    2 * PART_BLOCKS + 4,
]
"""Where writes begin: crowded, and around the borders of parts."""
State = dict[int, int]
"""What each block holds, by the number of the write; a block that is not in it is zero."""
writes = st.tuples(st.just("write"), st.sampled_from(SPOTS), st.sampled_from([1, 1, 2, 5, 33, 700]))
zeroes = st.tuples(
    st.just("zero"), st.sampled_from(SPOTS), st.sampled_from([1, 3, 40, PART_BLOCKS, 2 * PART_BLOCKS + 5])
)
others = st.sampled_from([("flush", 0, 0), ("checkpoint", 0, 0), ("collect", 0, 0), ("read", 0, 0)])
faults = st.lists(
    st.builds(Fault, st.integers(0, 120), st.sampled_from(WRONG), st.integers(1, 9)), max_size=2
)


class World:
    """One store, and the device on it as its user sees it."""

    def __init__(self, mode: WriteMode, wrong: list[Fault]) -> None:
        self.folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
        self.options = EngineOptions(
            journal=self.folder / "journal",
            mode=mode,
            journal_size=16 << 20,
            uploads=0,
            memory=1 << 20,
            linger=1e9,
            seen=self.folder / "seen",
            boot=bytes(15) + b"\1",
        )
        self.memory = MemoryStore()
        create_store(self.memory, "vault", BLOCKS * BLOCK_SIZE)
        self.late = any("late" in fault.wrong for fault in wrong)
        """Objects of a dead process may come to be when nobody looks for them any more."""
        self.calls = 0
        self.tag = 0
        self.state: State = {}
        self.safe: list[State] = [{}]
        """States that the device may be in after a power cut: that of the last flush, and all since."""
        self.engine: BlockEngine | None = None
        self.store = FaultyStore(self.memory, wrong)

    def opened(self) -> BlockEngine:
        while self.engine is None:
            try:
                self.engine = attach_store(self.store, "vault", self.options, "test")
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
        if cut:
            boot = int.from_bytes(self.options.boot) + 1
            self.options = replace(self.options, boot=boot.to_bytes(16))
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
                self.engine = attach_store(self.store, "vault", self.options, "test")
            except (Crash, StoreError):
                self.end()
        self.keep_journal()
        late.settle()
        self.state = self.look(self.engine, allowed)
        self.safe = [state for state in allowed if state == self.state]

    def look(self, engine: BlockEngine, allowed: list[State]) -> State:
        found: State = {}
        for first, count in runs(set().union(*allowed)):
            data = np.frombuffer(engine.read(first * BLOCK_SIZE, count * BLOCK_SIZE), np.int64).reshape(
                count, -1
            )
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
        if what in ("kill", "cut", "vanish"):
            return
        self.state = after
        if what in ("write", "zero"):
            self.safe.append(after)

    def do(self, what: str, block: int, count: int) -> None:
        engine = self.opened()
        if what == "write":
            engine.write(block * BLOCK_SIZE, self.tag.to_bytes(8, "little") * (count * BLOCK_SIZE // 8))
        elif what == "zero":
            engine.zero(block * BLOCK_SIZE, count * BLOCK_SIZE)
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
        elif what == "vanish":
            self.begin_without_journal()
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

    def begin_without_journal(self) -> None:
        """The process is gone, and so is its journal: that is refused, or nothing was in it alone."""
        late = self.store
        self.end()
        late.settle()
        away = self.folder / "away"
        self.options.journal.rename(away)
        try:
            self.engine = attach_store(self.store, "vault", self.options, "test")
        except JournalMissing:
            shutil.rmtree(self.options.journal)
            away.rename(self.options.journal)
        else:
            shutil.rmtree(away)
            self.keep_journal()
            self.look(self.engine, [self.state])

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
        view = StoreView(self.memory, "vault", workers=0)
        for block in list(self.state)[::50]:
            data = view.read(block * BLOCK_SIZE, BLOCK_SIZE)
            assert int.from_bytes(data[:8], "little") == self.state[block]


def listed(store: MemoryStore, kind: str) -> list[str]:
    return [found.key for found in store.list(f"vault/{kind}/")]


def runs(blocks: Collection[int]) -> Iterator[tuple[int, int]]:
    """Consecutive blocks, each time as the first and how many."""
    touched = np.array(sorted(blocks), np.int64)
    for run in np.split(touched, np.flatnonzero(np.diff(touched) != 1) + 1) if len(touched) else []:
        yield int(run[0]), len(run)
