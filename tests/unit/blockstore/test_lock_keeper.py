"""Locks that are made longer: by few requests, by the next server, and told of where a key may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.blockstore.locked_store import LOCK, POOL, opened
from tests.unit.blockstore.test_kept_moments import HOUR, NOON
from tests.unit.object_store.locking_store import LockingStore
from zvault.blockstore.bucket_as_of import BucketAsOf
from zvault.blockstore.engine_state import EngineState
from zvault.blockstore.format import BLOCK_SIZE
from zvault.blockstore.maintenance.check import find_store_problems
from zvault.blockstore.maintenance.recover import find_last_whole
from zvault.blockstore.recovery import create_store, read_newest_root, read_superblock
from zvault.core.errors import NotFound
from zvault.core.policy.object_lock import LockState

DAY = 86400.0


def test_locks_are_made_longer_by_few_requests(tmp_path: Path) -> None:
    """A hundred days: each object that is needed is locked again each four days at most, and garbage is not."""
    now = [NOON]
    store = LockingStore(lambda: now[0], LOCK)
    create_store(store, "vault", 1 << 20)
    engine = opened(store, tmp_path, now)
    for block in range(8):
        engine.write(block * BLOCK_SIZE, b"k" * BLOCK_SIZE)
        engine.put_all()
    engine.checkpoint()
    for _ in range(100):
        now[0] += DAY
        engine.keep_locked()
    # Beside them: store, epoch, the newest root and the one before.
    needed = 8 + len(engine.blocks.root.maps) + 4
    assert store.retained <= needed * 26
    assert engine.status()["locked_until"] >= now[0] + LOCK.seconds
    before = store.retained
    engine.discard(0, 8 * BLOCK_SIZE)
    engine.put_all()
    engine.checkpoint()
    engine.checkpoint()
    for _ in range(20):
        now[0] += DAY
        engine.keep_locked()
    assert [key for key in store.kept if "segments" in key] == []
    assert store.retained - before <= 6 * 6
    engine.close()


def test_a_key_that_may_not_lock_is_told_of_and_the_device_goes_on(tmp_path: Path) -> None:
    now = [NOON]
    store = LockingStore(lambda: now[0], LOCK)
    create_store(store, "vault", 1 << 20)
    engine = opened(store, tmp_path, now)
    store.may = {"delete"}
    engine.keep_locked()
    assert "cannot be kept locked: it is not done: the store answers 403" in str(engine.status()["trouble"])
    asked = store.retained
    engine.write(0, b"k" * BLOCK_SIZE)
    engine.flush()
    engine.checkpoint()
    now[0] += 60
    engine.keep_locked()
    assert store.retained == asked
    store.may = {"delete", "retain"}
    now[0] += 2 * HOUR
    engine.keep_locked()
    assert engine.status()["trouble"] is None
    assert engine.status()["locked_until"] > now[0] + LOCK.seconds
    engine.close()
    assert (
        read_newest_root(store, "vault", read_superblock(store, "vault")).lock.until > now[0] + LOCK.seconds
    )


def test_a_renewal_that_is_broken_off_goes_on_with_the_next_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zvault.blockstore.lock_keeper.OBJECTS_BETWEEN_STOPS", 4)
    now = [NOON]
    store = LockingStore(lambda: now[0], LOCK)
    create_store(store, "vault", 1 << 20)
    engine = opened(store, tmp_path, now)
    for block in range(20):
        engine.write(block * BLOCK_SIZE, b"k" * BLOCK_SIZE)
        engine.put_all()
    engine.checkpoint()
    assert engine.keeper is not None
    stops = iter([False, False, False, True])

    class SoonEnding(EngineState):
        @property
        def ending(self) -> bool:
            return next(stops)

    engine.keeper.engine_state = SoonEnding()
    engine.keep_locked()
    first = store.retained
    assert 0 < first < 22
    engine.close()
    state = read_newest_root(store, "vault", read_superblock(store, "vault")).lock
    assert (state.until, state.begun, state.after != "") == (0.0, NOON, True)
    now[0] += HOUR
    engine = opened(store, tmp_path, now)
    engine.keep_locked()
    assert store.retained < 2 * first + 22, "what is done is not done again"
    assert engine.blocks.root.lock == LockState("compliance", NOON + LOCK.span, seen=now[0])
    engine.close()


def test_a_check_does_not_call_strays_what_waits_for_its_lock_to_end(tmp_path: Path) -> None:
    now = [NOON]
    store = LockingStore(lambda: now[0], LOCK)
    create_store(store, "vault", 1 << 20)
    engine = opened(store, tmp_path, now)
    for _ in range(5):
        engine.write(0, b"k" * BLOCK_SIZE)
        engine.put_all()
        engine.checkpoint()
        engine.keep_locked()
    engine.close()
    store.put("vault/something", b"else")
    report = find_store_problems(store, "vault", share=1.0, pool=POOL, settle=0)
    assert report.problems == []
    assert [one.key for one in report.strays] == ["vault/something"]


def test_before_the_first_checkpoint_nothing_can_be_brought_back() -> None:
    now = [NOON]
    store = LockingStore(lambda: now[0], LOCK)
    create_store(store, "vault", 1 << 20)
    at_noon, before = BucketAsOf(store, "vault", NOON), BucketAsOf(store, "vault", NOON - 1)
    with pytest.raises(NotFound, match="there was no checkpoint yet"):
        find_last_whole(at_noon, at_noon, "vault", POOL)
    with pytest.raises(NotFound, match="there was no vault/store"):
        find_last_whole(before, before, "vault", POOL)
