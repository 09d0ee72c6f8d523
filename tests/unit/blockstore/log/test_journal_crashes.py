"""A journal after any steps and a power cut: it gives back a prefix of what was appended, with all that was flushed."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.unit.blockstore.log.journals import (
    STORE,
    content,
    files,
)
from tests.unit.examples import cases
from zvault.blockstore.format import BLOCK_SIZE
from zvault.blockstore.log.journal import Journal, JournalFrame, JournalFull
from zvault.blockstore.log.journal_format import FILE_HEADER_SIZE


class Crashes(RuleBasedStateMachine):
    """A durable journal and what it was given; crashes copy the folder as it might be found."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp())
        self.crashes = self.epoch = self.released = 0
        self.flushed = 0
        self.frames: dict[int, JournalFrame] = {}
        self.safe: dict[str, int] = {}
        """Bytes of each file that are surely on the disk."""
        self.last = 0

    @property
    def folder(self) -> Path:
        return self.place / str(self.crashes)

    @initialize()
    def open(self) -> None:
        self.journal = Journal(self.folder, STORE, capacity=40 * BLOCK_SIZE, durable=True)
        self._begin()

    def _begin(self) -> None:
        self.epoch += 1
        self.journal.begin(self.epoch, self.last + 1)
        self.frames, self.released, self.flushed = {}, self.last, self.last
        self._all_is_safe()

    def _all_is_safe(self) -> None:
        self.safe = {path.name: path.stat().st_size for path in files(self.folder)}

    @rule(count=st.integers(1, 5), zero=st.booleans())
    def append(self, count: int, zero: bool) -> None:
        number = self.last + 1
        frame = JournalFrame(number, count, count, None if zero else content(number, count))
        try:
            self.journal.append(
                number, frame.block, count, None if frame.data is None else memoryview(frame.data)
            )
        except JournalFull:
            assert self.journal.fill > 0.5
            return
        self.last = number
        self.frames[number] = frame

    @rule()
    def flush(self) -> None:
        self.journal.flush()
        self.flushed = self.last
        self._all_is_safe()

    @precondition(lambda self: self.last > self.released)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        upto = data.draw(st.integers(self.released, self.last))
        self.journal.release(upto)
        self.released = upto
        self.flushed = max(self.flushed, upto)
        here = files(self.folder)
        self.safe = {path.name: self.safe.get(path.name, FILE_HEADER_SIZE) for path in here}
        assert sum(path.stat().st_size for path in here) <= 40 * BLOCK_SIZE

    @rule()
    def kill(self) -> None:
        """The kernel keeps what was written."""
        shutil.copytree(self.folder, self.place / str(self.crashes + 1))
        self.journal.close()
        self.crashes += 1
        self._reopen()
        found = list(self.journal.frames(self.released))
        assert found == [self.frames[number] for number in range(self.released + 1, self.last + 1)]
        self._begin()

    @rule(seed=st.integers(0, 2**32))
    def power_cut(self, seed: int) -> None:
        """The disk has all that was flushed; of the rest, anything."""
        chance = random.Random(seed)
        left = self.place / str(self.crashes + 1)
        shutil.copytree(self.folder, left)
        self.journal.close()
        for path in files(left):
            if path.name not in self.safe and chance.random() < 0.3:
                path.unlink()
                continue
            spoil(path, self.safe.get(path.name, 0), chance)
        self.crashes += 1
        self._reopen()
        found = list(self.journal.frames(self.released))
        numbers = [frame.number for frame in found]
        assert numbers == list(range(self.released + 1, self.released + 1 + len(found)))
        assert found == [self.frames[number] for number in numbers]
        assert self.released + len(found) >= self.flushed
        self.last = self.released + len(found)
        self._begin()

    def _reopen(self) -> None:
        self.journal = Journal(self.folder, STORE, capacity=40 * BLOCK_SIZE, durable=True)
        assert self.journal.epoch == self.epoch

    def teardown(self) -> None:
        if hasattr(self, "journal"):
            self.journal.close()
        shutil.rmtree(self.place)


def spoil(path: Path, safe: int, chance: random.Random) -> None:
    """After its first ``safe`` bytes: cut off, filled with zeroes or garbage, or with a few pages lost."""
    data = bytearray(path.read_bytes())
    if len(data) <= safe:
        return
    cut = chance.randint(safe, len(data))
    match chance.randrange(4):
        case 0:
            del data[cut:]
        case 1:
            data[cut:] = bytes(len(data) - cut)
        case 2:
            data[cut:] = chance.randbytes(len(data) - cut)
        case 3:
            for at in range(safe, len(data), 512):
                if chance.random() < 0.1:
                    data[at : at + 512] = bytes(len(data[at : at + 512]))
    path.write_bytes(data)


TestCrashes = Crashes.TestCase
TestCrashes.settings = settings(max_examples=cases(100), stateful_step_count=30, deadline=None)
