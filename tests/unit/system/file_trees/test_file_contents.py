"""Ranges of files, and what is the same in them, whatever size a file has."""

import os
from itertools import pairwise
from pathlib import Path

import pytest

from zvault.core.integrity.verification import HASHED_PIECE
from zvault.system.file_trees.file_contents import (
    MOST_RANGES,
    RANGE_SIZE,
    find_first_difference,
    split_in_ranges,
)
from zvault.system.file_trees.piece_hasher import hash_piece
from zvault.system.file_trees.tree_worker import start_tree_worker
from zvault.system.open_beneath import open_descriptor


@pytest.mark.parametrize("size", [0, 1, RANGE_SIZE, RANGE_SIZE + 1, MOST_RANGES * RANGE_SIZE + 1, 1 << 63])
def test_ranges_have_no_gap_and_are_few(size: int) -> None:
    ranges = split_in_ranges(size)
    assert len(ranges) <= MOST_RANGES
    assert ranges[0][0] == 0
    assert ranges[-1][1] == size
    assert all(one[1] == other[0] for one, other in pairwise(ranges))
    assert all(start % RANGE_SIZE == 0 for start, _ in ranges)


async def test_a_file_that_is_one_hole_is_copied_and_compared_at_once(tmp_path: Path) -> None:
    """It had half a million million ranges."""
    root, folder = tmp_path / "root", tmp_path / "folder"
    for made in (root, folder):
        made.mkdir()
    with (root / "hole").open("wb") as file:
        file.truncate(15 << 40)
        file.seek(1 << 40)
        file.write(b"data")
    async with start_tree_worker(str(root), str(folder)) as worker:
        assert (await worker.copy([b"hole"], overwrite=False)).failures == 0
    async with start_tree_worker(str(root), str(folder)) as worker:  # which has no hash of what was copied
        found = [report async for report in worker.compare([b"hole"])]
    assert [one.unlike for one in found if one.unlike] == []
    with (folder / "hole").open("r+b") as file:
        file.seek(14 << 40)
        file.write(b"more")
    async with start_tree_worker(str(root), str(folder)) as worker:
        found = [report async for report in worker.compare([b"hole"])]
    differ = [one.unlike for one in found if one.unlike and one.unlike[1] == "content"]
    assert differ == [("hole", "content", "", f"it differs from byte {14 << 40} on")]


def test_a_difference_is_found_behind_holes(tmp_path: Path) -> None:
    for name in ("one", "other"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(1 << 30)
            file.seek(512 << 20)
            file.write(name.encode())
    with (
        open_descriptor(os.open(tmp_path / "one", os.O_RDONLY)) as one,
        open_descriptor(os.open(tmp_path / "other", os.O_RDONLY)) as other,
    ):
        for skips in (True, False):
            first = find_first_difference(one, other, 0, 1 << 30, skip_holes=skips)
            assert first == (512 << 20) + 1
        assert find_first_difference(one, other, 0, 512 << 20, skip_holes=True) is None


def test_a_hole_has_the_hash_of_its_zeroes(tmp_path: Path) -> None:
    path = tmp_path / "hole"
    with path.open("wb") as file:
        file.truncate(2 * HASHED_PIECE + 4097)
    with open_descriptor(os.open(path, os.O_RDONLY)) as fd:
        holes = [hash_piece(fd, number * HASHED_PIECE, HASHED_PIECE) for number in range(4)]
        whole = hash_piece(fd, 2 * HASHED_PIECE, None)
    with path.open("r+b") as file:
        for at in range(0, 2 * HASHED_PIECE + 4097, 1 << 20):
            file.seek(at)
            file.write(bytes(min(1 << 20, 2 * HASHED_PIECE + 4097 - at)))
    with open_descriptor(os.open(path, os.O_RDONLY)) as fd:
        assert [hash_piece(fd, number * HASHED_PIECE, HASHED_PIECE) for number in range(4)] == holes
    assert whole == holes[2]
