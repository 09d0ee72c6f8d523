"""Who waits for a block device is woken by its end, and by what reaches the store."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.unit.object_store.memory_store import MemoryStore
from tests.unit.patience import PATIENCE
from zvault.blockstore.engine_state import DeviceClosed, EngineState, LogProgress
from zvault.blockstore.format import BLOCK_SIZE
from zvault.blockstore.log.journal import Journal
from zvault.blockstore.log.log import SegmentLog
from zvault.object_store.interface import StoreError

IDENTITY = bytes(16)


def test_one_that_is_being_closed_is_still_read_and_written_no_more() -> None:
    state = EngineState()
    state.refuse_writing()
    state.closing = True
    state.refuse_reading()
    assert state.ending
    with pytest.raises(DeviceClosed):
        state.refuse_writing()


def test_the_first_failure_is_told_to_all_that_comes() -> None:
    state = EngineState()
    state.fail(StoreError("the bucket is gone"))
    state.fail(StoreError("and now this"))
    for refuse in (state.refuse_reading, state.refuse_writing):
        with pytest.raises(StoreError, match="the bucket is gone"):
            refuse()


@pytest.mark.parametrize("condition", ["changed", "sealed_one"])
def test_a_failure_wakes_who_waits(condition: str) -> None:
    state, woken = EngineState(), threading.Event()
    waits = threading.Event()

    def wait() -> None:
        with getattr(state, condition):
            waits.set()
            if getattr(state, condition).wait(PATIENCE):
                woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert waits.wait(PATIENCE)
    state.fail(StoreError("it is gone"))
    thread.join(PATIENCE)
    assert woken.is_set()


def make_log(folder: Path) -> tuple[EngineState, SegmentLog, Journal, LogProgress]:
    state, store = EngineState(), MemoryStore()
    log = SegmentLog(store, "v", IDENTITY, state.changed, state.sealed_one, uploads=0)
    log.begin(1, 0, 0)
    journal = Journal(folder / "journal", IDENTITY, capacity=1 << 20, durable=False)
    journal.begin(1, 1)
    return state, log, journal, LogProgress(state, log, journal, threads=False)


def write_block(log: SegmentLog, journal: Journal) -> None:
    data = memoryview(b"x" * BLOCK_SIZE)
    with log.changed:
        journal.append(log.frame + 1, 0, 1, data)
        log.place(0, data)
        log.frame += 1
        log.seal()


@pytest.mark.parametrize("opened", [False, True])
def test_without_threads_whoever_waits_uploads_and_the_journal_keeps_only_what_it_must(
    tmp_path: Path, opened: bool
) -> None:
    state, log, journal, progress = make_log(tmp_path)
    progress.opened = opened
    write_block(log, journal)
    with state.changed:
        progress.wait()
    assert log.uploaded == 1
    assert (journal.used == 0) == opened, "until a root of this epoch counts, only the journal has it"
    journal.close()


def test_nobody_waits_for_what_will_not_come(tmp_path: Path) -> None:
    state, log, journal, progress = make_log(tmp_path)
    write_block(log, journal)
    state.fail(StoreError("it is gone"))
    with state.changed, pytest.raises(StoreError, match="it is gone"):
        progress.wait()
    assert log.uploaded == 0
    journal.close()
