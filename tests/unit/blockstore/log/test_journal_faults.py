"""A journal on a disk that is full, writes less, fails, or damages what it has."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.blockstore.log.journals import (
    BOTH_WAYS,
    CAPACITY,
    STORE,
    files,
    name_of,
    opened,
    write,
)
from zvault.blockstore.format import BLOCK_SIZE, ObjectDamaged
from zvault.blockstore.log.journal import Journal, JournalDiskFull, JournalFailed
from zvault.blockstore.log.journal_format import FILE_HEADER_SIZE, FRAME_HEAD_SIZE


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """The kernel lets no file grow beyond this: as a full disk, it takes a part and then refuses."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@BOTH_WAYS
def test_a_full_disk_leaves_whole_frames_and_goes_on_when_there_is_room(
    tmp_path: Path, durable: bool
) -> None:
    with opened(tmp_path, durable) as journal:
        journal.begin(1, 1)
        wrote = [write(journal, 1), write(journal, 2)]
        for room in (0, 20, FRAME_HEAD_SIZE + 100, FRAME_HEAD_SIZE + 3 * BLOCK_SIZE):
            before = files(tmp_path)[0].stat().st_size
            with largest_file(before + room), pytest.raises(JournalDiskFull):
                write(journal, 3, 4)
            assert files(tmp_path)[0].stat().st_size == before
        wrote.append(write(journal, 3, 2))
        with largest_file(10), pytest.raises(JournalDiskFull):
            write(journal, 4)
        journal.flush()
        wrote += [write(journal, number) for number in range(len(wrote) + 1, len(wrote) + 100)]
    with opened(tmp_path, durable) as journal:
        assert list(journal.frames(0)) == wrote


def test_a_full_disk_when_the_next_file_is_made(tmp_path: Path) -> None:
    with opened(tmp_path, capacity=BLOCK_SIZE * 64) as journal:
        journal.begin(1, 1)
        wrote = [write(journal, 1)]
        with largest_file(10), pytest.raises(JournalDiskFull):
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


@BOTH_WAYS
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
        assert sum(path.stat().st_size for path in files(tmp_path)) == FILE_HEADER_SIZE, "and now there is"


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
        spoiled[FILE_HEADER_SIZE + (number - 1) * (FRAME_HEAD_SIZE + BLOCK_SIZE) + inside] ^= 1
        path.write_bytes(spoiled)

    for number in (1, 5, 10):
        for inside in (0, 8, FRAME_HEAD_SIZE - 1, FRAME_HEAD_SIZE + 4000):
            damaged(number, inside)
            with opened(tmp_path) as journal:
                frames = journal.frames(0)
                assert [next(frames) for _ in range(number - 1)] == wrote[: number - 1]
                with pytest.raises(ObjectDamaged, match=f"frame {number} is missing"):
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
    with opened(tmp_path) as journal, pytest.raises(ObjectDamaged):
        list(journal.frames(0))
    # A header alone costs nothing: frames tell by themselves whose they are.
    second.write_bytes(bytes(FILE_HEADER_SIZE) + kept[FILE_HEADER_SIZE:])
    with opened(tmp_path) as journal:
        assert len(list(journal.frames(0))) == 299
    for path in files(tmp_path):
        path.write_bytes(bytes(FILE_HEADER_SIZE) + path.read_bytes()[FILE_HEADER_SIZE:])
    with pytest.raises(ObjectDamaged, match="header"):
        Journal(tmp_path, STORE, capacity=CAPACITY, durable=True)
    assert first.exists()
