"""A journal's files, as a disk gives them back after a crash."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.unit.fuzz.mutation import mutated, seed
from tests.unit.fuzz.target import MIB, target
from zvault.blockstore.format import BLOCK_SIZE, Superblock
from zvault.blockstore.log.journal import Journal
from zvault.blockstore.log.journal_format import (
    FILE_HEADER_SIZE,
    FRAME_HEAD_SIZE,
    make_frame_seed,
    read_file_header,
    read_whole_frames,
)
from zvault.core.errors import ZvaultError

STORE = Superblock.of_bytes(seed("segments", "superblock"))
SEED = make_frame_seed(STORE.identity, 1)
WRITTEN = seed("journal_frames", "written")
NAME = "000000000001.journal"


def test_the_seed_is_a_journal(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(WRITTEN)
    header = read_file_header(tmp_path / NAME)
    assert header is not None
    assert header.known
    frames = list(read_whole_frames(tmp_path / NAME, 1, SEED))
    assert [(frame.block, frame.count) for frame, _ in frames] == [(0, 2), (100, 1), (50, 4)]


@target(
    mutated([WRITTEN, WRITTEN[:FILE_HEADER_SIZE], WRITTEN[FILE_HEADER_SIZE:]]),
    OSError,
    ZvaultError,
    cap=4 * MIB,
)
def test_frames(data: bytes) -> None:
    """Every frame that is taken is whole, and no larger than the file; a journal is opened or refused."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / NAME
        path.write_bytes(data)
        read_file_header(path)
        for frame, _ in read_whole_frames(path, 1, SEED):
            assert frame.number >= 1
            assert len(frame.data or b"") in (0, frame.count * BLOCK_SIZE)
            assert FRAME_HEAD_SIZE + len(frame.data or b"") <= len(data)
        Journal(path.parent, STORE.identity, capacity=MIB, durable=True).close()
