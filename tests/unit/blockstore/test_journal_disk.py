"""A device whose journal's disk goes bad, or is full: it fails loudly, or goes on, and says which."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore.attach import attach
from zvault.blockstore.engine import Engine
from zvault.blockstore.format import BLOCK
from zvault.blockstore.log.journal import JournalFailed
from zvault.blockstore.map.map_part import PART
from zvault.blockstore.options import Options
from zvault.blockstore.recovery import create


def opened(store: MemoryStore, folder: Path, uploads: int = 0) -> Engine:
    options = Options(
        folder / "journal", mode="writeback", journal_size=64 << 20, uploads=uploads, linger=1e9
    )
    return attach(store, "v", options, "test")


def broken(*_: object) -> int:
    raise OSError(errno.EIO, "Input/output error")


def write_and_flush(engine: Engine) -> None:
    engine.write(BLOCK, b"b" * BLOCK)
    engine.flush()


@pytest.mark.parametrize("call", ["fdatasync", "pwritev"])
def test_after_the_journals_disk_failed_everything_fails_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    store = MemoryStore()
    create(store, "v", PART * BLOCK)
    engine = opened(store, tmp_path)
    engine.write(0, b"a" * BLOCK)
    engine.flush()
    with monkeypatch.context() as patch:
        patch.setattr(os, call, broken)
        with pytest.raises(JournalFailed):
            write_and_flush(engine)
    assert "Input/output error" in (engine.status()["trouble"] or "")
    for asked in (
        lambda: engine.write(BLOCK, b"c" * BLOCK),
        lambda: engine.zero(0, BLOCK),
        lambda: engine.read(0, BLOCK),
        engine.flush,
    ):
        with pytest.raises(JournalFailed, match="Input/output"):
            asked()
    with pytest.raises(JournalFailed):
        engine.close()
    engine = opened(store, tmp_path)
    assert engine.read(0, BLOCK) == b"a" * BLOCK, "what was flushed before is there"
    engine.close()


def test_a_full_disk_below_the_journal_does_not_end_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full when frames are released, and a file that nobody needs is to give way to a new one."""
    store = MemoryStore()
    create(store, "v", PART * BLOCK)
    engine = opened(store, tmp_path, uploads=2)
    real = os.open

    def full(path: object, flags: int, mode: int = 0o777, **more: object) -> int:
        if str(path).endswith(".journal") and flags & os.O_CREAT:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, flags, mode, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", full)
        for block in range(0, 700, 350):
            engine.write(block * BLOCK, b"x" * (350 * BLOCK))
        engine.put_all()
        while engine.journal.used and engine.failure is None:
            time.sleep(0.01)
        assert engine.failure is None
        engine.write(0, b"y" * BLOCK)
        engine.flush()
    assert engine.read(0, BLOCK) == b"y" * BLOCK
    engine.close()
