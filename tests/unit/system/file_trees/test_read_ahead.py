"""What is asked of the kernel ahead of a read: all of a large range, once, and before it is read."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest

from zvault.system.file_trees.file_contents import (
    COPY_BLOCK_SIZE,
    RANGE_SIZE,
    READ_AHEAD_SIZE,
    copy_range,
    hash_range,
)
from zvault.system.file_trees.piece_hasher import hash_piece
from zvault.system.open_beneath import open_descriptor

SIZE = RANGE_SIZE + 3 * COPY_BLOCK_SIZE + 5
ODD = 7 * COPY_BLOCK_SIZE + 11


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """What the kernel was asked for, and what was read, in order: (what, where it begins, where it ends)."""
    seen: list[tuple[str, int, int]] = []
    advise, read = os.posix_fadvise, os.preadv

    def note_advice(fd: int, offset: int, length: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_WILLNEED
        seen.append(("ahead", offset, offset + length))
        advise(fd, offset, length, advice)

    def note_read(fd: int, buffers: list[memoryview], offset: int) -> int:
        count = read(fd, buffers, offset)
        seen.append(("read", offset, offset + count))
        return count

    monkeypatch.setattr(os, "posix_fadvise", note_advice)
    monkeypatch.setattr(os, "preadv", note_read)
    return seen


def make_file(path: Path, size: int) -> int:
    """A file without holes, open."""
    path.write_bytes(b"zvault!\n" * (size // 8 + 1))
    os.truncate(path, size)
    return os.open(path, os.O_RDONLY)


def list_asked(seen: list[tuple[str, int, int]]) -> list[tuple[int, int]]:
    """What was asked for ahead."""
    return [(begin, end) for what, begin, end in seen if what == "ahead"]


def check_all_was_asked(seen: list[tuple[str, int, int]], start: int, end: int) -> None:
    """All of the range was asked for once and in order, and each piece while the one before it was not read yet."""
    ahead = list_asked(seen)
    assert (ahead[0][0], ahead[-1][1]) == (start, end)
    assert all(one[1] == other[0] for one, other in pairwise(ahead))
    reached = start
    for what, begin, stop in seen:
        if what == "ahead":
            reached = stop
        elif stop > begin:  # the last read of a file without a known end finds nothing
            assert reached >= min(end, begin - begin % READ_AHEAD_SIZE + 2 * READ_AHEAD_SIZE)
            assert reached - begin <= 2 * READ_AHEAD_SIZE


def test_a_copy_asks_for_a_large_range_ahead(tmp_path: Path, asked: list[tuple[str, int, int]]) -> None:
    with (
        open_descriptor(make_file(tmp_path / "from", SIZE)) as source,
        open_descriptor(os.open(tmp_path / "to", os.O_RDWR | os.O_CREAT)) as target,
    ):
        copy_range(source, target, 0, RANGE_SIZE)
    check_all_was_asked(asked, 0, RANGE_SIZE)


@pytest.mark.parametrize("skip_holes", [True, False])
def test_a_comparison_asks_for_a_large_range_ahead(
    tmp_path: Path, asked: list[tuple[str, int, int]], skip_holes: bool
) -> None:
    with open_descriptor(make_file(tmp_path / "file", SIZE)) as file:
        hash_range(file, RANGE_SIZE, SIZE, skip_holes=skip_holes)
    check_all_was_asked(asked, RANGE_SIZE, SIZE)


@pytest.mark.parametrize(
    ("offset", "length", "end"), [(0, None, SIZE), (ODD, 2 * READ_AHEAD_SIZE, ODD + 2 * READ_AHEAD_SIZE)]
)
def test_a_verification_asks_for_a_large_piece_ahead(
    tmp_path: Path, asked: list[tuple[str, int, int]], offset: int, length: int | None, end: int
) -> None:
    with open_descriptor(make_file(tmp_path / "file", SIZE)) as file:
        hash_piece(file, offset, length)
    check_all_was_asked(asked, offset, end)


def test_what_one_read_brings_is_not_asked_for(tmp_path: Path, asked: list[tuple[str, int, int]]) -> None:
    with open_descriptor(make_file(tmp_path / "file", COPY_BLOCK_SIZE)) as file:
        hash_range(file, 0, COPY_BLOCK_SIZE)
        hash_piece(file, 0, None)
    assert list_asked(asked) == []


def test_a_hole_is_not_asked_for_by_a_copy(tmp_path: Path, asked: list[tuple[str, int, int]]) -> None:
    path = tmp_path / "holes"
    with path.open("wb") as file:
        file.truncate(RANGE_SIZE)
        file.seek(3 * READ_AHEAD_SIZE)
        file.write(b"data" * COPY_BLOCK_SIZE)
    with (
        open_descriptor(os.open(path, os.O_RDONLY)) as source,
        open_descriptor(os.open(tmp_path / "to", os.O_RDWR | os.O_CREAT)) as target,
    ):
        copied, _ = copy_range(source, target, 0, RANGE_SIZE)
    assert copied < RANGE_SIZE, "there are no holes on this file system"
    assert list_asked(asked) == [(3 * READ_AHEAD_SIZE, RANGE_SIZE)]


def test_what_cannot_be_asked_for_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system in user space may refuse the advice."""

    def refuse(*_: object) -> None:
        raise OSError(38, os.strerror(38))

    with open_descriptor(make_file(tmp_path / "file", SIZE)) as file:
        wanted = hash_range(file, 0, RANGE_SIZE), hash_piece(file, 0, None)
        monkeypatch.setattr(os, "posix_fadvise", refuse)
        assert (hash_range(file, 0, RANGE_SIZE), hash_piece(file, 0, None)) == wanted
