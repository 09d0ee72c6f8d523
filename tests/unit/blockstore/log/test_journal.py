"""Whatever happens to a journal, it gives back a prefix of what was appended, with all that was flushed in it."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.unit.examples import cases
from zvault.blockstore.format import BLOCK, Damaged
from zvault.blockstore.log.journal import FILES, Frame, Full, Journal, JournalFailed, NoRoom
from zvault.blockstore.log.journal_format import FRAME, HEADER
from zvault.core.errors import Busy, Refused

STORE, OTHER = bytes(range(16)), bytes(16)
CAPACITY = 64 * BLOCK * FILES


def content(number: int, count: int) -> bytes:
    return random.Random(number).randbytes(16) * (count * BLOCK // 16)


def write(journal: Journal, number: int, count: int = 1) -> Frame:
    frame = Frame(number, number * 7, count, content(number, count))
    journal.append(number, frame.block, count, memoryview(frame.data or b""))
    return frame


def fill(journal: Journal, number: int = 1) -> int:
    """Append from this number on until it is full; the last one."""
    with contextlib.suppress(Full):
        while True:
            write(journal, number)
            number += 1
    return number - 1


@pytest.fixture(params=[True, False], ids=["durable", "quick"])
def durable(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@contextlib.contextmanager
def opened(folder: Path, durable: bool = True, capacity: int = CAPACITY) -> Iterator[Journal]:
    journal = Journal(folder, STORE, capacity=capacity, durable=durable)
    try:
        yield journal
    finally:
        journal.close()


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.journal"))


def test_frames_come_back_after_another_process_opens_it(tmp_path: Path, durable: bool) -> None:
    with opened(tmp_path / "j", durable) as journal:
        assert journal.epoch == 0
        assert list(journal.frames(0)) == []
        journal.begin(3, 10)
        wrote = [write(journal, number, 1 + number % 5) for number in range(10, 200)]
        journal.append(200, 5, 1 << 40, None)
        wrote.append(Frame(200, 5, 1 << 40, None))
        assert list(journal.frames(9)) == wrote
    assert (tmp_path / "j").stat().st_mode & 0o777 == 0o700
    assert len(files(tmp_path / "j")) > 3
    with opened(tmp_path / "j", durable) as journal:
        assert journal.epoch == 3
        assert list(journal.frames(9)) == wrote
        assert list(journal.frames(150)) == wrote[141:]
        assert list(journal.frames(200)) == []


def test_a_killed_writer_loses_nothing(tmp_path: Path) -> None:
    script = f"""
from pathlib import Path
from zvault.blockstore.log.journal import Journal
journal = Journal(Path({str(tmp_path)!r}), {STORE!r}, capacity={CAPACITY}, durable=False)
journal.begin(1, 1)
for number in range(1, 10**9):
    if journal.fill > 0.5:
        journal.release(number - 100)
    journal.append(number, 0, 1, bytes([number % 256]) * {BLOCK})
    print(number, flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    for line in child.stdout:
        if int(line) == 3000:
            break
    child.send_signal(signal.SIGKILL)
    told = [int(line), *map(int, child.stdout.read().split("\n")[:-1])][-1]
    child.wait()
    with opened(tmp_path, durable=False) as journal:
        after = told - 50
        found = list(journal.frames(after))
    assert [frame.number for frame in found] == list(range(after + 1, after + 1 + len(found)))
    assert found[-1].number in (told, told + 1)
    assert all(frame.data == bytes([frame.number % 256]) * BLOCK for frame in found)


def test_of_two_processes_one_is_told_that_it_is_busy(tmp_path: Path) -> None:
    script = f"""
from pathlib import Path
from zvault.blockstore.log.journal import Journal
from zvault.core.errors import Busy
try:
    Journal(Path({str(tmp_path)!r}), {STORE!r}, capacity=1 << 20, durable=False)
except Busy as error:
    print("busy", error)
"""

    def other() -> str:
        return subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        ).stdout

    with opened(tmp_path):
        assert other().startswith("busy")
    assert other() == ""


def test_another_stores_frames_are_refused_and_kept(tmp_path: Path, durable: bool) -> None:
    with opened(tmp_path, durable) as journal:
        journal.begin(1, 1)
        wrote = write(journal, 1)
    with pytest.raises(Refused, match="another store"):
        Journal(tmp_path, OTHER, capacity=CAPACITY, durable=durable)
    with opened(tmp_path, durable) as journal:
        assert list(journal.frames(0)) == [wrote]
        journal.begin(2, 2)
        write(journal, 2)
        journal.release(2)
    # What was released leaves nothing to refuse.
    journal = Journal(tmp_path, OTHER, capacity=CAPACITY, durable=durable)
    assert journal.epoch == 0
    assert files(tmp_path) == []
    journal.close()


def test_space_comes_back_file_by_file_and_an_idle_journal_is_small(tmp_path: Path, durable: bool) -> None:
    with opened(tmp_path, durable) as journal:
        journal.begin(1, 1)
        number = fill(journal)
        assert journal.fill > 0.95
        assert sum(path.stat().st_size for path in files(tmp_path)) == journal.used <= CAPACITY
        with pytest.raises(Full):
            write(journal, number + 1)
        journal.release(number // 2)
        assert 0.4 < journal.fill < 0.6
        assert [frame.number for frame in journal.frames(number // 2)] == list(
            range(number // 2 + 1, number + 1)
        )
        write(journal, number + 1)
        journal.flush()
        journal.release(number + 1)
        assert journal.used == 0
        assert sum(path.stat().st_size for path in files(tmp_path)) < CAPACITY // FILES
        wrote = write(journal, number + 2)
        assert list(journal.frames(number + 1)) == [wrote]
    with opened(tmp_path, durable) as journal:
        assert list(journal.frames(number + 1)) == [wrote]
        journal.begin(2, number + 3)
        for last in range(number + 3, number + 23):
            write(journal, last)
        journal.release(last)
        # Twenty blocks are more than a quarter of a file.
        assert sum(path.stat().st_size for path in files(tmp_path)) == HEADER
        write(journal, last + 1)
        journal.release(last + 1)
    assert sum(path.stat().st_size for path in files(tmp_path)) == HEADER


def test_the_folder_is_kept_while_another_thread_removes_files_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removing, go_on = threading.Event(), threading.Event()
    unlink = Path.unlink

    def slowly(path: Path, missing_ok: bool = False) -> None:
        if threading.current_thread() is threads[0]:
            removing.set()
            assert go_on.wait(60)
        unlink(path, missing_ok)

    journal = Journal(tmp_path, STORE, capacity=CAPACITY, durable=False)
    journal.begin(1, 1)
    last = fill(journal)
    monkeypatch.setattr(Path, "unlink", slowly)
    threads = [threading.Thread(target=journal.release, args=(last,), daemon=True)]
    threads[0].start()
    assert removing.wait(60)
    threads.append(threading.Thread(target=journal.close, daemon=True))
    threads[1].start()
    threads[1].join(0.2)
    with pytest.raises(Busy):
        Journal(tmp_path, STORE, capacity=CAPACITY, durable=False)
    go_on.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    journal.release(last)  # what comes late does nothing in a folder that is another's
    Journal(tmp_path, STORE, capacity=CAPACITY, durable=False).close()


def test_a_frame_larger_than_a_file_or_all_of_an_empty_journal_is_taken(tmp_path: Path) -> None:
    with opened(tmp_path, capacity=32 * BLOCK) as journal:
        journal.begin(1, 1)
        wrote = [write(journal, 1), write(journal, 2, 20), write(journal, 3)]
        assert list(journal.frames(0)) == wrote
        with pytest.raises(Full):
            write(journal, 4, 40)
        journal.release(3)
        assert list(journal.frames(3)) == []
        assert write(journal, 4, 40) in list(journal.frames(3))


def test_begin_drops_what_was_there_even_under_the_same_number(tmp_path: Path, durable: bool) -> None:
    with opened(tmp_path, durable) as journal:
        journal.begin(1, 1)
        for number in range(1, 300):
            write(journal, number)
    with opened(tmp_path, durable) as journal:
        journal.begin(2, 1)
        assert list(journal.frames(0)) == []
        journal.append(1, 9, 1, None)
    assert len(files(tmp_path)) == 1
    with opened(tmp_path, durable) as journal:
        assert (journal.epoch, list(journal.frames(0))) == (2, [Frame(1, 9, 1, None)])
        with pytest.raises(ValueError, match="epoch"):
            journal.begin(2, 1)


def test_begin_is_all_or_nothing_wherever_it_breaks_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break off at the first, second, … call that changes the folder, by an error that nothing expects."""
    real = {name: getattr(os, name) for name in ("open", "pwrite", "fsync", "rename", "unlink")}
    for stop in range(1, 30):
        folder, left = tmp_path / str(stop), [10**9]
        with opened(folder) as journal:
            journal.begin(1, 1)
            wrote = [write(journal, number) for number in range(1, 200)]

        class Cut(BaseException):
            pass

        def counted(name: str, left: list[int] = left, cut: type[BaseException] = Cut) -> object:
            def call(*args: object, **more: object) -> object:
                left[0] -= 1
                if left[0] < 0:
                    raise cut
                return real[name](*args, **more)

            return call

        journal = Journal(folder, STORE, capacity=CAPACITY, durable=True)
        with monkeypatch.context() as patch:
            for name in real:
                patch.setattr(os, name, counted(name))
            left[0] = stop - 1
            try:
                journal.begin(2, 100)
                done = True
            except Cut:
                done = False
        os.close(journal._folder)
        with opened(folder) as journal:
            if journal.epoch == 1:
                assert list(journal.frames(0)) == wrote
            else:
                assert journal.epoch == 2
                assert list(journal.frames(99)) == []
                assert len(files(folder)) == 1
        if done:
            assert stop > 5
            return
    pytest.fail("begin never came to its end")


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """The kernel lets no file grow beyond this: as a full disk, it takes a part and then refuses."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_whole_frames_and_goes_on_when_there_is_room(
    tmp_path: Path, durable: bool
) -> None:
    with opened(tmp_path, durable) as journal:
        journal.begin(1, 1)
        wrote = [write(journal, 1), write(journal, 2)]
        for room in (0, 20, FRAME + 100, FRAME + 3 * BLOCK):
            before = files(tmp_path)[0].stat().st_size
            with largest_file(before + room), pytest.raises(NoRoom):
                write(journal, 3, 4)
            assert files(tmp_path)[0].stat().st_size == before
        wrote.append(write(journal, 3, 2))
        with largest_file(10), pytest.raises(NoRoom):
            write(journal, 4)
        journal.flush()
        wrote += [write(journal, number) for number in range(len(wrote) + 1, len(wrote) + 100)]
    with opened(tmp_path, durable) as journal:
        assert list(journal.frames(0)) == wrote


def test_a_full_disk_when_the_next_file_is_made(tmp_path: Path) -> None:
    with opened(tmp_path, capacity=BLOCK * 64) as journal:
        journal.begin(1, 1)
        wrote = [write(journal, 1)]
        with largest_file(10), pytest.raises(NoRoom):
            write(journal, 2)
        assert len(files(tmp_path)) == 1
        wrote.append(write(journal, 2))
        assert list(journal.frames(0)) == wrote


def test_a_short_write_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a signal comes in a large write."""
    real = os.pwritev
    with opened(tmp_path) as journal:
        journal.begin(1, 1)
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwritev", lambda fd, pieces, at: real(fd, [b"".join(pieces)[:1000]], at))
            wrote = [write(journal, 1, 3), write(journal, 2)]
        assert list(journal.frames(0)) == wrote


def test_after_a_flush_failed_it_fails_for_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with opened(tmp_path) as journal:
        journal.begin(1, 1)
        write(journal, 1)
        journal.flush()
        write(journal, 2)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", broken)
            with pytest.raises(JournalFailed, match="Input/output"):
                journal.flush()
        for _ in range(2):
            with pytest.raises(JournalFailed, match="Input/output"):
                journal.flush()


def test_after_a_flush_failed_nothing_is_appended_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with opened(tmp_path) as journal:
        journal.begin(1, 1)
        write(journal, 1)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", broken)
            with pytest.raises(JournalFailed):
                journal.flush()
        with pytest.raises(JournalFailed, match="not trusted any more"):
            write(journal, 2)


def test_after_a_write_failed_a_flush_that_succeeds_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(fd: int, pieces: object, at: int) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with opened(tmp_path) as journal:
        journal.begin(1, 1)
        write(journal, 1)
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwritev", broken)
            with pytest.raises(JournalFailed, match="Input/output"):
                write(journal, 2)
        for fails in (lambda: write(journal, 2), journal.flush):
            with pytest.raises(JournalFailed, match="Input/output"):
                fails()


def test_a_full_disk_does_not_keep_frames_from_being_released(tmp_path: Path, durable: bool) -> None:
    with opened(tmp_path, durable) as journal:
        journal.begin(1, 1)
        for number in range(1, 41):
            write(journal, number)
        journal.flush()
        with largest_file(10):
            journal.release(40)
        assert len(files(tmp_path)) == 1, "there is no room for another one"
        write(journal, 41)
        journal.release(41)
        assert sum(path.stat().st_size for path in files(tmp_path)) == HEADER, "and now there is"


def test_what_is_not_durable_never_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(fd: int) -> None:
        raise AssertionError("synced")

    monkeypatch.setattr(os, "fdatasync", never)
    monkeypatch.setattr(os, "fsync", never)
    with opened(tmp_path, durable=False) as journal:
        journal.begin(1, 1)
        for number in range(1, 300):
            write(journal, number)
        journal.flush()
        journal.release(250)


def name_of(fd: int) -> str:
    return str(Path(f"/proc/self/fd/{fd}").readlink())


def test_a_flush_covers_every_file_and_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[str] = set()
    data, whole = os.fdatasync, os.fsync
    monkeypatch.setattr(os, "fdatasync", lambda fd: (synced.add(name_of(fd)), data(fd))[1])
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.add(name_of(fd)), whole(fd))[1])
    with opened(tmp_path) as journal:
        journal.begin(1, 1)
        synced.clear()
        for number in range(1, 300):
            write(journal, number)
        assert not synced
        journal.flush()
        assert synced == {str(path) for path in files(tmp_path)} | {str(tmp_path)}
        synced.clear()
        journal.flush()
        assert not synced
        write(journal, 300)
        journal.flush()
        assert synced == {str(files(tmp_path)[-1])}


def test_damage_to_what_was_flushed_is_told_and_a_torn_end_is_not(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        journal.begin(1, 1)
        wrote = [write(journal, number) for number in range(1, 11)]
        journal.flush()
        wrote += [write(journal, number) for number in range(11, 21)]
    (path,) = files(tmp_path)
    whole = path.read_bytes()

    def damaged(number: int, inside: int) -> None:
        spoiled = bytearray(whole)
        spoiled[HEADER + (number - 1) * (FRAME + BLOCK) + inside] ^= 1
        path.write_bytes(spoiled)

    for number in (1, 5, 10):
        for inside in (0, 8, FRAME - 1, FRAME + 4000):
            damaged(number, inside)
            with opened(tmp_path) as journal:
                frames = journal.frames(0)
                assert [next(frames) for _ in range(number - 1)] == wrote[: number - 1]
                with pytest.raises(Damaged, match=f"frame {number} is missing"):
                    next(frames)
                # What is damaged is not needed.
                assert list(journal.frames(10)) == wrote[10:]
    for number in (11, 15, 20):
        damaged(number, 100)
        with opened(tmp_path) as journal:
            assert list(journal.frames(0)) == wrote[: number - 1]


def test_a_lost_file_and_lost_headers_are_damage(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        journal.begin(1, 1)
        for number in range(1, 300):
            write(journal, number)
            journal.flush()
    first, second, *_ = files(tmp_path)
    kept = second.read_bytes()
    second.unlink()
    with opened(tmp_path) as journal, pytest.raises(Damaged):
        list(journal.frames(0))
    # A header alone costs nothing: frames tell by themselves whose they are.
    second.write_bytes(bytes(HEADER) + kept[HEADER:])
    with opened(tmp_path) as journal:
        assert len(list(journal.frames(0))) == 299
    for path in files(tmp_path):
        path.write_bytes(bytes(HEADER) + path.read_bytes()[HEADER:])
    with pytest.raises(Damaged, match="header"):
        Journal(tmp_path, STORE, capacity=CAPACITY, durable=True)
    assert first.exists()


def test_what_is_kept_is_safe_before_other_files_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power cut some file must have a whole header, or the journal could not tell damage from nothing."""
    synced: set[str] = set()
    data, whole, unlink = os.fdatasync, os.fsync, os.unlink
    monkeypatch.setattr(os, "fdatasync", lambda fd: (synced.add(name_of(fd)), data(fd))[1])
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.add(name_of(fd)), whole(fd))[1])
    gone: list[str] = []

    def checked(path: Path) -> None:
        left = {str(one) for one in files(tmp_path)} - {*gone, str(path)}
        assert left & synced
        assert str(tmp_path) in synced
        gone.append(str(path))
        unlink(path)

    with opened(tmp_path) as journal:
        journal.begin(1, 1)
        synced.clear()
        for number in range(1, 300):
            write(journal, number)
        with monkeypatch.context() as patch:
            patch.setattr(os, "unlink", checked)
            journal.release(64)
            journal.release(299)
        assert len(gone) == 5


def test_an_older_epochs_frames_are_never_taken(tmp_path: Path, durable: bool) -> None:
    """As when a begin() was cut short, and the header of what it left went bad too."""
    with opened(tmp_path, durable) as journal:
        journal.begin(1, 1)
        for number in range(1, 10):
            write(journal, number)
    old = files(tmp_path)[0].read_bytes()
    with opened(tmp_path, durable) as journal:
        journal.begin(2, 1)
        wrote = write(journal, 1)
    for left in (old, bytes(HEADER) + old[HEADER:]):
        (tmp_path / "000000000002.journal").write_bytes(left)
        with opened(tmp_path, durable) as journal:
            assert list(journal.frames(0)) == [wrote]
            assert list(journal.frames(1)) == []


def test_flushes_and_releases_beside_appends(tmp_path: Path) -> None:
    told: list[int] = []
    errors: list[BaseException] = []
    stop = threading.Event()
    before = len(list(Path("/proc/self/fd").iterdir()))

    with opened(tmp_path, capacity=CAPACITY // 4) as journal:
        journal.begin(1, 1)

        def flusher() -> None:
            try:
                while not stop.is_set():
                    last = journal._last
                    journal.flush()
                    assert journal._flushed >= last
                    told.append(last)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=flusher) for _ in range(3)]
        for thread in threads:
            thread.start()
        end, number = time.monotonic() + 1.5, 0
        while time.monotonic() < end:
            try:
                write(journal, number + 1)
                number += 1
            except Full:
                journal.release(number - 20)
        stop.set()
        for thread in threads:
            thread.join()
        assert not errors
        assert len(told) > 10
        assert [frame.number for frame in journal.frames(number - 20)] == list(range(number - 19, number + 1))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


class Crashes(RuleBasedStateMachine):
    """A durable journal and what it was given; crashes copy the folder as it might be found."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp())
        self.crashes = self.epoch = self.released = 0
        self.flushed = 0
        self.frames: dict[int, Frame] = {}
        self.safe: dict[str, int] = {}
        """Bytes of each file that are surely on the disk."""
        self.last = 0

    @property
    def folder(self) -> Path:
        return self.place / str(self.crashes)

    @initialize()
    def open(self) -> None:
        self.journal = Journal(self.folder, STORE, capacity=40 * BLOCK, durable=True)
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
        frame = Frame(number, count, count, None if zero else content(number, count))
        try:
            self.journal.append(
                number, frame.block, count, None if frame.data is None else memoryview(frame.data)
            )
        except Full:
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
        self.safe = {path.name: self.safe.get(path.name, HEADER) for path in here}
        assert sum(path.stat().st_size for path in here) <= 40 * BLOCK

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
        self.journal = Journal(self.folder, STORE, capacity=40 * BLOCK, durable=True)
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
