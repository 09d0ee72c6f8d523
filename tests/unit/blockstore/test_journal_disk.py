"""A device whose journal's disk goes bad, or is full: it fails loudly, or goes on, and says which."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore.attach import attach_store
from zvault.blockstore.engine import BlockEngine
from zvault.blockstore.format import BLOCK_SIZE
from zvault.blockstore.log.journal import JournalFailed
from zvault.blockstore.map.map_part import PART_BLOCKS
from zvault.blockstore.options import EngineOptions
from zvault.blockstore.recovery import create_store


def opened(store: MemoryStore, folder: Path, uploads: int = 0) -> BlockEngine:
    options = EngineOptions(
        folder / "journal", mode="writeback", journal_size=64 << 20, uploads=uploads, linger=1e9
    )
    return attach_store(store, "v", options, "test")


def broken(*_: object) -> int:
    raise OSError(errno.EIO, "Input/output error")


def write_and_flush(engine: BlockEngine) -> None:
    engine.write(BLOCK_SIZE, b"b" * BLOCK_SIZE)
    engine.flush()


@pytest.mark.parametrize("call", ["fdatasync", "pwritev"])
def test_after_the_journals_disk_failed_everything_fails_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    store = MemoryStore()
    create_store(store, "v", PART_BLOCKS * BLOCK_SIZE)
    engine = opened(store, tmp_path)
    engine.write(0, b"a" * BLOCK_SIZE)
    engine.flush()
    with monkeypatch.context() as patch:
        patch.setattr(os, call, broken)
        with pytest.raises(JournalFailed):
            write_and_flush(engine)
    assert "Input/output error" in (engine.status()["trouble"] or "")
    for asked in (
        lambda: engine.write(BLOCK_SIZE, b"c" * BLOCK_SIZE),
        lambda: engine.zero(0, BLOCK_SIZE),
        lambda: engine.read(0, BLOCK_SIZE),
        engine.flush,
    ):
        with pytest.raises(JournalFailed, match="Input/output"):
            asked()
    with pytest.raises(JournalFailed):
        engine.close()
    engine = opened(store, tmp_path)
    assert engine.read(0, BLOCK_SIZE) == b"a" * BLOCK_SIZE, "what was flushed before is there"
    engine.close()


def test_a_full_disk_below_the_journal_does_not_end_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full when frames are released, and a file that nobody needs is to give way to a new one."""
    store = MemoryStore()
    create_store(store, "v", PART_BLOCKS * BLOCK_SIZE)
    engine = opened(store, tmp_path, uploads=2)
    real = os.open

    def full(path: object, flags: int, mode: int = 0o777, **more: object) -> int:
        if str(path).endswith(".journal") and flags & os.O_CREAT:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, flags, mode, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", full)
        for block in range(0, 700, 350):
            engine.write(block * BLOCK_SIZE, b"x" * (350 * BLOCK_SIZE))
        engine.put_all()
        while engine.journal.used and engine.failure is None:
            time.sleep(0.01)
        assert engine.failure is None
        engine.write(0, b"y" * BLOCK_SIZE)
        engine.flush()
    assert engine.read(0, BLOCK_SIZE) == b"y" * BLOCK_SIZE
    engine.close()
