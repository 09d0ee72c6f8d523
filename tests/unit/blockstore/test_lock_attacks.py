"""Locked objects against whoever has the writer's keys: nothing of what was is changed, and it is told of."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.blockstore.locked_store import LOCK, POOL, opened
from tests.unit.blockstore.test_kept_moments import HOUR, NOON
from tests.unit.object_store.locking_store import LockingStore
from tests.unit.object_store.memory_store import etag
from zvault.blockstore.attach import attach_store
from zvault.blockstore.bucket_as_of import BucketAsOf
from zvault.blockstore.encryption.encrypted_store import EncryptedStore, StoreKeyring
from zvault.blockstore.encryption.store_key import StoreKey
from zvault.blockstore.format import BLOCK_SIZE, make_checkpoint_key
from zvault.blockstore.maintenance.copy import copy_store
from zvault.blockstore.maintenance.recover import find_last_whole
from zvault.blockstore.maintenance.version_gc import remove_versions
from zvault.blockstore.options import EngineOptions
from zvault.blockstore.recovery import create_store
from zvault.blockstore.store_view import StoreView
from zvault.core.errors import Refused, ZvaultError
from zvault.core.policy.retention import KeepRules
from zvault.object_store.interface import ObjectMissing, ObjectStore, StoreDenied

DAY = 86400.0
Sees = Callable[[ObjectStore], ObjectStore]


def encrypted(store: ObjectStore) -> ObjectStore:
    """As the block store sees it with the key alone: nothing is known of it yet."""
    return EncryptedStore(store, StoreKeyring("vault", StoreKey(bytes(range(32)))))


@pytest.mark.parametrize("sees", [lambda store: store, encrypted], ids=["plain", "encrypted"])
def test_somebody_with_the_writers_keys_changes_nothing_of_what_was(tmp_path: Path, sees: Sees) -> None:
    """All is hidden, overwritten, removed where it can be; recovered is the last checkpoint before."""
    chance, now = random.Random(3), [NOON]
    store = LockingStore(lambda: now[0], LOCK)
    create_store(sees(store), "vault", 1 << 20)
    engine = opened(sees(store), tmp_path, now, history=KeepRules(daily=3))
    for day in range(12):
        engine.write(day % 5 * BLOCK_SIZE, bytes([day + 1]) * (40 * BLOCK_SIZE))
        engine.put_all()
        engine.checkpoint()
        engine.keep_locked()
        now[0] += DAY
    truth, root = engine.read(0, 1 << 20), engine.blocks.root.number
    then = now[0] - HOUR
    engine.write(0, b"later" * (BLOCK_SIZE // 5 * 5 // 5) + bytes(BLOCK_SIZE - 5 * (BLOCK_SIZE // 5)))
    assert engine.keeper is not None
    assert engine.keeper.trouble is None
    engine.close()
    wreck(store, chance)
    now[0] += LOCK.seconds - 2 * DAY
    wreck(store, chance)
    with pytest.raises(ZvaultError):
        attach_store(sees(store), "vault", EngineOptions(tmp_path / "other", uploads=0), "test")
    old = BucketAsOf(store, "vault", then)
    seen = sees(old)
    found = find_last_whole(seen, old, "vault", POOL)
    assert found.moment.number == root
    assert found.put <= then
    assert old.passed_over.hidden > 5
    view = StoreView(seen, "vault", workers=0, at=found.moment)
    assert view.read(0, 1 << 20) == truth
    there = LockingStore(lambda: now[0], LOCK)
    options = EngineOptions(tmp_path / "copy", lock=LOCK, keeps_locked=False)
    copy_store(view, there, "again", options, "test", POOL)
    view.close()
    again = attach_store(there, "again", EngineOptions(tmp_path / "again", uploads=0, lock=LOCK), "test")
    assert again.read(0, 1 << 20) == truth
    again.close()
    with pytest.raises(Refused):
        old.put("vault/store", b"")


def wreck(store: LockingStore, chance: random.Random) -> None:
    """All that a key to the bucket can do."""
    every = list(store.versions(""))
    root = next(key for key in sorted(store.kept, reverse=True) if "checkpoints" in key)
    store.lock = None
    store.put(make_checkpoint_key("vault", 99, 99), store.kept[root][0].data or b"")
    for key in sorted({one.key for one in every}):
        if chance.random() < 0.5:
            store.put(key, b"overwritten")
        if chance.random() < 0.7:
            store.delete([key])
    for one in every:
        first = store.kept[one.key][0]
        refused = first.id == one.version and first.until > store.clock()
        with pytest.raises(StoreDenied) if refused else contextlib.suppress(StoreDenied, ObjectMissing):
            store.retain(one.key, one.version, "governance", store.clock() + 1)
    store.delete_versions(every)


def test_an_object_that_is_hidden_or_put_again_is_told_of_and_gc_stops(tmp_path: Path) -> None:
    now = [NOON]
    store = LockingStore(lambda: now[0], LOCK)
    create_store(store, "vault", 1 << 20)
    engine = opened(store, tmp_path, now)
    engine.write(0, b"k" * BLOCK_SIZE)
    engine.put_all()
    engine.checkpoint()
    engine.keep_locked()
    assert engine.status()["trouble"] is None
    (segment,) = [key for key in store.kept if "segments" in key]
    store.put(segment, b"other")
    now[0] += 1.1 * DAY
    engine.keep_locked()
    assert f"put again by somebody else, as {segment}" in str(engine.status()["trouble"])
    assert store.kept[segment][0].until > now[0] + LOCK.seconds, "it is the first that is kept locked"
    with pytest.raises(Refused, match="nothing of the block store"):
        remove_versions(store, "vault", POOL, do=True)
    remove_versions(store, "vault", POOL, do=True, accept_tampered=True)
    engine.close()


def test_what_is_gone_though_it_is_needed_is_told_of(tmp_path: Path) -> None:
    now = [NOON]
    store = LockingStore(lambda: now[0], LOCK)
    create_store(store, "vault", 1 << 20)
    engine = opened(store, tmp_path, now)
    for block in range(5):
        engine.write(block * BLOCK_SIZE, b"k" * BLOCK_SIZE)
        engine.put_all()
    engine.checkpoint()
    victims = sorted(key for key in store.kept if "segments" in key)
    for victim in (victims[2], victims[4]):
        del store.kept[victim]
        del store.objects[victim]
    engine.keep_locked()
    assert f"2 objects that are needed are missing, as {victims[2]}" in str(engine.status()["trouble"])
    engine.close()


def test_the_same_bytes_under_another_etag_are_a_put_that_was_tried_again(tmp_path: Path) -> None:
    """As of objects that the store encrypts: each put has another ETag."""
    now = [NOON]
    store = LockingStore(lambda: now[0], LOCK)
    create_store(store, "vault", 1 << 20)
    engine = opened(store, tmp_path, now)
    engine.write(0, b"k" * BLOCK_SIZE)
    engine.put_all()
    engine.checkpoint()
    (segment,) = [key for key in store.kept if "segments" in key]
    plain = LockingStore.versions

    def salted(self: Any, prefix: str, after: str = "") -> Any:
        return (replace(one, etag=etag(one.version.encode())) for one in plain(self, prefix, after))

    store.put(segment, store.objects[segment])
    store.versions = salted.__get__(store)  # type: ignore[method-assign]
    engine.keep_locked()
    assert engine.status()["trouble"] is None
    engine.close()
