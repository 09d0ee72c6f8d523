"""Whatever happens to a journal, it gives back a prefix of what was appended, with all that was flushed in it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.unit.blockstore.log.journals import (
    BOTH_WAYS,
    CAPACITY,
    OTHER,
    STORE,
    files,
    fill,
    name_of,
    opened,
    write,
)
from zvault.blockstore.format import BLOCK_SIZE
from zvault.blockstore.log.journal import FILES, Journal, JournalFrame, JournalFull
from zvault.blockstore.log.journal_format import FILE_HEADER_SIZE
from zvault.core.errors import Busy, Refused


@BOTH_WAYS
def test_frames_come_back_after_another_process_opens_it(tmp_path: Path, durable: bool) -> None:
    with opened(tmp_path / "j", durable) as journal:
        assert journal.epoch == 0
        assert list(journal.frames(0)) == []
        journal.begin(3, 10)
        wrote = [write(journal, number, 1 + number % 5) for number in range(10, 200)]
        journal.append(200, 5, 1 << 40, None)
        wrote.append(JournalFrame(200, 5, 1 << 40, None))
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
    journal.append(number, 0, 1, bytes([number % 256]) * {BLOCK_SIZE})
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
    assert all(frame.data == bytes([frame.number % 256]) * BLOCK_SIZE for frame in found)


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


@BOTH_WAYS
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


@BOTH_WAYS
def test_space_comes_back_file_by_file_and_an_idle_journal_is_small(tmp_path: Path, durable: bool) -> None:
    with opened(tmp_path, durable) as journal:
        journal.begin(1, 1)
        number = fill(journal)
        assert journal.fill > 0.95
        assert sum(path.stat().st_size for path in files(tmp_path)) == journal.used <= CAPACITY
        with pytest.raises(JournalFull):
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
        assert sum(path.stat().st_size for path in files(tmp_path)) == FILE_HEADER_SIZE
        write(journal, last + 1)
        journal.release(last + 1)
    assert sum(path.stat().st_size for path in files(tmp_path)) == FILE_HEADER_SIZE


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
    with opened(tmp_path, capacity=32 * BLOCK_SIZE) as journal:
        journal.begin(1, 1)
        wrote = [write(journal, 1), write(journal, 2, 20), write(journal, 3)]
        assert list(journal.frames(0)) == wrote
        with pytest.raises(JournalFull):
            write(journal, 4, 40)
        journal.release(3)
        assert list(journal.frames(3)) == []
        assert write(journal, 4, 40) in list(journal.frames(3))


@BOTH_WAYS
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
        assert (journal.epoch, list(journal.frames(0))) == (2, [JournalFrame(1, 9, 1, None)])
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


@BOTH_WAYS
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
    for left in (old, bytes(FILE_HEADER_SIZE) + old[FILE_HEADER_SIZE:]):
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
        number = 0
        while number < 12_000 or len(told) <= 10:
            assert not errors
            try:
                write(journal, number + 1)
                number += 1
            except JournalFull:
                journal.release(number - 20)
        stop.set()
        for thread in threads:
            thread.join()
        assert not errors
        assert [frame.number for frame in journal.frames(number - 20)] == list(range(number - 19, number + 1))
    assert len(list(Path("/proc/self/fd").iterdir())) == before
