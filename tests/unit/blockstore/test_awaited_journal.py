"""A journal that holds what was answered, and is not there when its store is to be served: nothing is begun."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.unit.blockstore.engine_world import BLOCKS
from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore.attach import attach_store
from zvault.blockstore.awaited_journal import (
    FoundJournal,
    JournalMark,
    JournalNote,
    find_missing_journal,
)
from zvault.blockstore.engine import BlockEngine
from zvault.blockstore.format import BLOCK_SIZE, ObjectDamaged
from zvault.blockstore.log.journal import Journal
from zvault.blockstore.options import EngineOptions
from zvault.blockstore.recovery import WriterEpoch, create_store
from zvault.core.errors import JournalMissing, Refused
from zvault.object_store.interface import Buffer, StoreError

MARK = JournalMark(7, "filer1", "/mnt/ssd/journal", 1.8e9)
BOOT, LATER_BOOT = b"b" * 16, b"c" * 16


@pytest.mark.parametrize(
    ("mark", "note", "found", "newest", "kind"),
    [
        # Nothing is waited for: never, or no more.
        (None, None, (0, 0), 7, None),
        (None, JournalNote(0), (0, 0), 7, None),
        (None, JournalNote(0), (7, 9), 7, None),
        # It is there.
        (MARK, None, (7, 9), 7, None),
        (MARK, JournalNote(7, 9), (7, 9), 7, None),
        (MARK, JournalNote(7, 5), (7, 9), 7, None),
        # The next one was begun by whoever found it, and that server ended before it could say so.
        (MARK, JournalNote(7, 9), (8, 9), 8, None),
        # A server that found it took the store, and ended before it began its own.
        (MARK, JournalNote(7, 9), (7, 9), 8, None),
        (MARK, JournalNote(7, 9), (0, 0), 8, "none"),
        # The folder is empty, or is another's: the bucket says so, or this host.
        (MARK, None, (0, 0), 7, "none"),
        (MARK, JournalNote(7, 9), (0, 0), 7, "none"),
        (None, JournalNote(7, 9), (0, 0), 7, "none"),
        (MARK, None, (5, 3), 7, "another"),
        (MARK, JournalNote(3, 3), (3, 3), 7, "another"),
        (None, JournalNote(7, 9), (3, 3), 7, "another"),
        # A copy of it from before.
        (MARK, JournalNote(7, 9), (7, 8), 7, "older"),
        (None, JournalNote(7, 9), (7, 8), 7, "older"),
        # Another host went on without it: this one's can never be applied.
        (None, JournalNote(7, 9), (0, 0), 8, None),
        (replace(MARK, epoch=8), JournalNote(7, 9), (7, 9), 8, "another"),
        # One in memory: what was answered outlives its server, and not the boot.
        (None, JournalNote(7, 9, BOOT), (0, 0), 7, "none"),
        (None, JournalNote(7, 9, BOOT), (7, 9), 7, None),
        (None, JournalNote(7, 9, LATER_BOOT), (0, 0), 7, None),
    ],
)
def test_what_is_missing(
    mark: JournalMark | None,
    note: JournalNote | None,
    found: tuple[int, int],
    newest: int,
    kind: str | None,
) -> None:
    missing = find_missing_journal(mark, note, FoundJournal(*found), newest, BOOT)
    assert (missing.kind if missing is not None else None) == kind
    if missing is not None:
        error = missing.error("zv/cold", "/mnt/ssd/journal")
        assert "zvaultctl blockstore give-up-journal" in error.next
        assert error.retryable, "it may be mounted in a moment"
        if mark is not None:
            assert f"epoch {mark.epoch} in /mnt/ssd/journal of filer1" in error.why


def test_a_mark_that_cannot_be_is_damage() -> None:
    store = MemoryStore()
    for wrong in ("{}", '{"epoch": 0}', "3", '{"epoch": 1, "host": "a", "folder": "b", "since": 1e300}'):
        text = f'{{"epoch": 1, "owner": "a", "since": 1.0, "journal": {wrong}}}'
        store.objects["v/epoch"] = text.encode()
        with pytest.raises(ObjectDamaged, match="does not say who writes"):
            WriterEpoch.read(store, "v")


@dataclass
class Host:
    """One host with its folder of positions, and a journal on a disk of its own."""

    store: MemoryStore
    options: EngineOptions

    @property
    def journal(self) -> Path:
        return self.options.journal

    def begin(self, **changes: object) -> BlockEngine:
        return attach_store(
            self.store, "v", replace(self.options, **changes), f"{self.journal.parent.name}, process 1"
        )  # type: ignore[arg-type]

    def die_with(self, *blocks: int, engine: BlockEngine | None = None) -> None:
        """Write and flush these blocks, none of which reaches the bucket, and lose the power."""
        engine = engine or self.begin()
        for block in blocks:
            engine.write(block * BLOCK_SIZE, bytes([block]) * BLOCK_SIZE)
        engine.flush()
        self.kill(engine)

    def kill(self, engine: BlockEngine) -> None:
        engine.fail(StoreError("it is gone"))
        engine.abandon()

    def refused(self, words: str) -> None:
        """Refused again and again, and nothing is changed by that."""
        before = dict(self.store.objects)
        for _ in range(2):
            with pytest.raises(JournalMissing, match=words):
                self.begin()
        assert self.store.objects == before

    def holds(self, *blocks: int) -> None:
        engine = self.begin()
        for block in blocks:
            assert engine.read(block * BLOCK_SIZE, BLOCK_SIZE) == bytes([block]) * BLOCK_SIZE
        engine.close()


def a_host(store: MemoryStore, folder: Path) -> Host:
    journal = folder / "journal"
    options = EngineOptions(journal, mode="writeback", uploads=0, linger=1e9, seen=folder / "seen")
    return Host(store, options)


@pytest.fixture
def store() -> MemoryStore:
    it = MemoryStore()
    create_store(it, "v", BLOCKS * BLOCK_SIZE)
    return it


@pytest.fixture
def host(store: MemoryStore, tmp_path: Path) -> Host:
    return a_host(store, tmp_path / "attic")


def empty(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


@pytest.mark.parametrize("remove", [empty, shutil.rmtree], ids=["folder empty", "folder missing"])
@pytest.mark.parametrize("remembers", ["both", "the bucket", "this host"])
def test_a_store_is_not_begun_without_its_journal_and_goes_on_when_that_is_back(
    host: Host, tmp_path: Path, remove: Callable[[Path], None], remembers: str
) -> None:
    host.die_with(1, 2)
    shutil.copytree(host.journal, tmp_path / "disk")
    remove(host.journal)
    if remembers == "the bucket":
        shutil.rmtree(tmp_path / "attic" / "seen")
    if remembers == "this host":
        del host.store.objects["v/epoch"]
    host.refused(f"is not in {host.journal}")
    shutil.rmtree(host.journal)
    (tmp_path / "disk").rename(host.journal)
    host.holds(1, 2)


def test_another_host_is_told_where_the_journal_is(host: Host, tmp_path: Path) -> None:
    host.die_with(1)
    other = a_host(host.store, tmp_path / "cellar")
    other.refused(f"{host.journal} of attic, in use since")
    host.holds(1)
    other.holds(1)


def test_a_journal_that_was_given_up_is_refused_when_it_comes_back(host: Host, tmp_path: Path) -> None:
    host.die_with(1)
    shutil.copytree(host.journal, tmp_path / "disk")
    empty(host.journal)
    host.begin(give_up_journal=True).close()
    host.begin().close()
    empty(host.journal)
    shutil.copytree(tmp_path / "disk", host.journal, dirs_exist_ok=True)
    with pytest.raises(
        Refused, match="1 writes that the store never got: the store went on without it"
    ) as error:
        host.begin()
    assert "--give-up-journal FOLDER" in error.value.next


def test_a_journal_of_before_is_not_the_one_that_is_waited_for(host: Host, tmp_path: Path) -> None:
    host.die_with(1)
    shutil.copytree(host.journal, tmp_path / "old")
    host.die_with(2)
    shutil.rmtree(host.journal)
    shutil.copytree(tmp_path / "old", host.journal)
    host.refused("is not the one that the block store v waits for.*the journal there is of epoch 1")


def test_an_older_copy_of_the_journal_is_noticed(host: Host, tmp_path: Path) -> None:
    engine = host.begin()
    engine.write(0, b"a" * BLOCK_SIZE)
    engine.flush()
    shutil.copytree(host.journal, tmp_path / "old")
    host.die_with(1, 2, engine=engine)
    host.journal.rename(tmp_path / "new")
    (tmp_path / "old").rename(host.journal)
    host.refused("is an older copy .* it ends with write 1, and write 3 had been on its disk")
    shutil.rmtree(host.journal)
    (tmp_path / "new").rename(host.journal)
    host.holds(1, 2)


def test_the_journal_of_another_store_is_no_substitute(
    host: Host, store: MemoryStore, tmp_path: Path
) -> None:
    host.die_with(1)
    other = MemoryStore()
    create_store(other, "v", BLOCKS * BLOCK_SIZE)
    stranger = a_host(other, tmp_path / "other")
    stranger.die_with(2)
    shutil.copytree(host.journal, tmp_path / "disk")
    shutil.rmtree(host.journal)
    shutil.copytree(stranger.journal, host.journal)
    with pytest.raises(Refused, match="another store"):
        host.begin()
    shutil.rmtree(host.journal)
    (tmp_path / "disk").rename(host.journal)
    host.holds(1)
    stranger.holds(2)


def test_whoever_leaves_writeback_has_to_bring_its_journal_along(host: Host, tmp_path: Path) -> None:
    host.die_with(1)
    strict = replace(host.options, mode="strict", journal=tmp_path / "run")
    with pytest.raises(JournalMissing):
        attach_store(host.store, "v", strict, "attic")
    strict = replace(strict, journal=host.journal)
    engine = attach_store(host.store, "v", strict, "attic")
    assert engine.read(BLOCK_SIZE, 1) == b"\1"
    host.kill(engine)
    empty(host.journal)
    attach_store(host.store, "v", strict, "attic").close()


def test_a_store_that_was_closed_waits_for_nothing(host: Host, tmp_path: Path) -> None:
    for _ in range(2):
        engine = host.begin()
        engine.write(BLOCK_SIZE, b"\1" * BLOCK_SIZE)
        engine.flush()
        engine.close()
        shutil.rmtree(host.journal)
    a_host(host.store, tmp_path / "cellar").holds(1)


def test_a_journal_in_memory_is_waited_for_as_long_as_its_boot_lasts(host: Host) -> None:
    """A pool that is imported takes for written what its dead server had answered, flushed or not."""
    strict: dict[str, object] = {"mode": "strict", "boot": BOOT}
    engine = host.begin(**strict)
    engine.write(0, b"a" * BLOCK_SIZE)
    host.kill(engine)
    kept = {file.name: file.read_bytes() for file in host.journal.iterdir()}
    empty(host.journal)
    with pytest.raises(JournalMissing):
        host.begin(**strict)
    host.begin(**strict | {"boot": LATER_BOOT}).close()
    engine = host.begin(**strict)
    assert engine.read(0, 1) == b"\0"
    engine.close()
    assert kept


class Dying(MemoryStore):
    """A store whose process dies at one of its puts, before or after it."""

    def __init__(self, objects: dict[str, bytes], left: int, *, before: bool) -> None:
        super().__init__()
        self.objects, self.left, self.before = dict(objects), left, before

    def put(self, key: str, data: Buffer, condition: str | None = None) -> str:
        self.left -= 1
        if self.left < 0 and self.before:
            raise StoreError("the power is gone")
        done = super().put(key, data, condition)
        if self.left < 0:
            raise StoreError("the power is gone")
        return done


@pytest.mark.parametrize("before", [True, False])
def test_wherever_the_power_goes_while_it_is_begun_nothing_is_lost_and_nothing_is_refused(
    host: Host, tmp_path: Path, before: bool
) -> None:
    host.die_with(1, 2)
    shutil.copytree(tmp_path / "attic", tmp_path / "was")
    for left in range(12):
        dying = Dying(host.store.objects, left, before=before)
        then = a_host(dying, tmp_path / "attic")
        try:
            engine = then.begin()
        except StoreError:
            pass
        else:
            then.kill(engine)
            break
        after = MemoryStore()
        after.objects = dying.objects
        shutil.copytree(then.journal, tmp_path / "disk")
        empty(then.journal)
        lost = a_host(after, tmp_path / "attic")
        lost.refused("waits for|is not in")
        shutil.copytree(tmp_path / "disk", then.journal, dirs_exist_ok=True)
        a_host(after, tmp_path / "attic").holds(1, 2)
        shutil.rmtree(tmp_path / "disk")
        shutil.rmtree(tmp_path / "attic")
        shutil.copytree(tmp_path / "was", tmp_path / "attic")
    else:
        pytest.fail("it puts more than is tried here")
    assert left > 3


def test_its_cost_is_no_put_for_a_write(host: Host) -> None:
    puts = [0]

    class Counting(MemoryStore):
        def put(self, key: str, data: Buffer, condition: str | None = None) -> str:
            puts[0] += key == "v/epoch"
            return super().put(key, data, condition)

    counting = Counting()
    create_store(counting, "v", BLOCKS * BLOCK_SIZE)
    engine = Host(counting, host.options).begin()
    for block in range(50):
        engine.write(block * BLOCK_SIZE, b"a" * BLOCK_SIZE)
        engine.flush()
    engine.close()
    assert puts == [3]


def test_the_last_frame_of_a_journal_is_read_from_its_files(tmp_path: Path) -> None:
    identity = bytes(range(16))
    journal = Journal(tmp_path / "j", identity, capacity=1 << 20, durable=True)
    assert journal.find_last() == 0
    journal.begin(1, 5)
    for number in range(5, 60):
        journal.append(number, 0, 1, bytes(BLOCK_SIZE))
    journal.flush()
    journal.release(40)
    journal.close()
    again = Journal(tmp_path / "j", identity, capacity=1 << 20, durable=True)
    assert again.find_last() == 59
    again.close()
