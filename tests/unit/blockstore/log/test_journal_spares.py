"""A journal in memory writes over its old files, and what is left of these in them never comes back."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.blockstore.log.journals import CAPACITY, STORE, content
from zvault.blockstore.format import BLOCK_SIZE
from zvault.blockstore.log.journal import SPARE_JOURNAL_FILES, Journal, JournalFrame, JournalFull

SMALL = 16 * 8 * BLOCK_SIZE
"""Bytes: a file has eight blocks."""


def spares(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.spare"))


def on_disk(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def append(journal: Journal, number: int, count: int = 1) -> JournalFrame:
    frame = JournalFrame(number, number, count, content(number, count))
    journal.append(number, frame.block, count, memoryview(frame.data or b""))
    return frame


def begun(folder: Path, *, durable: bool = False, capacity: int = SMALL, epoch: int = 1) -> Journal:
    journal = Journal(folder, STORE, capacity=capacity, durable=durable)
    journal.begin(epoch, 1)
    return journal


def test_old_files_become_new_ones_in_memory_and_are_removed_on_a_disk(tmp_path: Path) -> None:
    for durable in (False, True):
        folder = tmp_path / str(durable)
        journal = begun(folder, durable=durable)
        for number in range(1, 41):
            append(journal, number)
        known = {path.stat().st_ino for path in folder.iterdir()}
        journal.release(36)
        assert len(spares(folder)) == (0 if durable else SPARE_JOURNAL_FILES)
        for number in range(41, 61):
            append(journal, number)
        new = {path.stat().st_ino for path in folder.iterdir()}
        assert durable or len(known & new) > SPARE_JOURNAL_FILES
        assert [frame.number for frame in journal.frames(36)] == list(range(37, 61))
        journal.close()
        assert not spares(folder)


def test_nothing_is_left_of_them_while_nobody_writes(tmp_path: Path) -> None:
    journal = begun(tmp_path)
    for number in range(1, 41):
        append(journal, number)
    journal.release(40)
    assert spares(tmp_path)
    journal.forget_spares()
    assert not spares(tmp_path)
    journal.close()


def test_those_of_a_killed_process_are_removed_and_no_frame_is(tmp_path: Path) -> None:
    journal = begun(tmp_path / "it")
    for number in range(1, 41):
        append(journal, number)
    journal.release(36)
    shutil.copytree(tmp_path / "it", tmp_path / "left")
    journal.close()
    assert spares(tmp_path / "left")
    left = Journal(tmp_path / "left", STORE, capacity=SMALL, durable=False)
    assert not spares(tmp_path / "left")
    assert [frame.number for frame in left.frames(36)] == [37, 38, 39, 40]
    assert left.first is not None
    assert left.first > 30
    left.close()


def test_all_of_them_together_stay_within_the_capacity(tmp_path: Path) -> None:
    journal, number, released = begun(tmp_path), 1, 0
    for _ in range(6):
        with contextlib.suppress(JournalFull):
            while True:
                append(journal, number)
                number += 1
        assert on_disk(tmp_path) <= SMALL
        released = (released + number) // 2
        journal.release(released)
        assert on_disk(tmp_path) <= SMALL
    journal.close()


def test_a_file_that_somebody_removed_is_no_longer_needed_either(tmp_path: Path) -> None:
    journal = begun(tmp_path)
    for number in range(1, 41):
        append(journal, number)
    min(tmp_path.glob("*.journal")).unlink()
    journal.release(36)
    assert [frame.number for frame in journal.frames(36)] == [37, 38, 39, 40]
    journal.close()


def test_a_file_that_was_written_over_looks_empty_once_it_is(tmp_path: Path) -> None:
    """Another store takes a folder in which nothing is left."""
    journal = begun(tmp_path)
    for number in range(1, 61):
        append(journal, number)
        if number % 12 == 0:
            journal.release(number)
    journal.release(60)
    journal.close()
    Journal(tmp_path, bytes(16), capacity=CAPACITY, durable=False).close()


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3), st.booleans()), max_size=80))
def test_a_killed_writer_loses_nothing_and_gets_nothing_old_back(
    tmp_path_factory: object, steps: list[tuple[int, int, bool]]
) -> None:
    folder = Path(str(tmp_path_factory.mktemp("journal")))  # type: ignore[attr-defined]
    place, epoch = folder / "0", 1
    journal, last, released = begun(place), 0, 0
    frames: dict[int, JournalFrame] = {}
    for index, (count, lag, killed) in enumerate(steps):
        with contextlib.suppress(JournalFull):
            for _ in range(4):
                frames[last + 1] = append(journal, last + 1, count)
                last += 1
        released = max(released, last - lag)
        journal.release(released)
        if not killed:
            continue
        shutil.copytree(place, folder / str(index + 1))
        journal.close()
        place, epoch = folder / str(index + 1), epoch + 1
        journal = Journal(place, STORE, capacity=SMALL, durable=False)
        assert list(journal.frames(released)) == [frames[number] for number in range(released + 1, last + 1)]
        journal.begin(epoch, last + 1)
        released = last
    journal.close()
    shutil.rmtree(folder)
