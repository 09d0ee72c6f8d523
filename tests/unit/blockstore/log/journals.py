"""Journals for the tests of them: what is written into one, and how one is opened."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from zvault.blockstore.format import BLOCK_SIZE
from zvault.blockstore.log.journal import FILES, Journal, JournalFrame, JournalFull

STORE, OTHER = bytes(range(16)), bytes(16)
CAPACITY = 64 * BLOCK_SIZE * FILES


def content(number: int, count: int) -> bytes:
    return random.Random(number).randbytes(16) * (count * BLOCK_SIZE // 16)


def write(journal: Journal, number: int, count: int = 1) -> JournalFrame:
    frame = JournalFrame(number, number * 7, count, content(number, count))
    journal.append(number, frame.block, count, memoryview(frame.data or b""))
    return frame


def fill(journal: Journal, number: int = 1) -> int:
    """Append from this number on until it is full; the last one."""
    with contextlib.suppress(JournalFull):
        while True:
            write(journal, number)
            number += 1
    return number - 1


BOTH_WAYS = pytest.mark.parametrize("durable", [True, False], ids=["durable", "quick"])


@contextlib.contextmanager
def opened(folder: Path, durable: bool = True, capacity: int = CAPACITY) -> Iterator[Journal]:
    journal = Journal(folder, STORE, capacity=capacity, durable=durable)
    try:
        yield journal
    finally:
        journal.close()


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.journal"))


def name_of(fd: int) -> str:
    return str(Path(f"/proc/self/fd/{fd}").readlink())
