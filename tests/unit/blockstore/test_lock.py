"""Locked objects: what is needed stays locked, an attacker changes nothing of what was, garbage goes in time."""

from __future__ import annotations

import contextlib
import gc
import random
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.unit.blockstore.test_engine_model import BLOCKS, faults, others, writes, zeroes
from tests.unit.blockstore.test_history import HOUR, NOON, HistoryWorld
from tests.unit.examples import cases
from tests.unit.object_store.faulty_store import Fault, FaultyStore
from tests.unit.object_store.locking_store import LockingStore
from tests.unit.object_store.memory_store import etag
from zvault.blockstore.as_of import AsOf
from zvault.blockstore.attach import attach, load_usage
from zvault.blockstore.encryption.encrypted_store import EncryptedStore, StoreKeys
from zvault.blockstore.encryption.store_key import StoreKey
from zvault.blockstore.engine import Engine
from zvault.blockstore.format import BLOCK, checkpoint_key
from zvault.blockstore.maintenance.check import check
from zvault.blockstore.maintenance.copy import copy
from zvault.blockstore.maintenance.recover import last_whole, wanted
from zvault.blockstore.maintenance.version_gc import remove_versions
from zvault.blockstore.map.usage import Usage
from zvault.blockstore.needed import Needed
from zvault.blockstore.options import Options
from zvault.blockstore.recovery import create, newest_root, read_root, superblock
from zvault.blockstore.view import View
from zvault.core.errors import NotFound, Refused, ZvaultError
from zvault.core.policy.object_lock import Lock, LockState
from zvault.core.policy.retention import KeepRules
from zvault.object_store.interface import Denied, ObjectMissing, ObjectStore

DAY = 86400.0
LOCK = Lock("compliance", 10 * DAY)


POOL = ThreadPoolExecutor(2)


class LockWorld(HistoryWorld):
    """A device with history in a bucket with locks, some hours a step; days go by where a step says so."""

    def __init__(self, wrong: list[Fault], lock: Lock | None = LOCK, *, elsewhere: bool = False) -> None:
        super().__init__(wrong)
        self.options = replace(self.options, lock=lock, gc_elsewhere=elsewhere)
        self.bucket = LockingStore(lambda: self.now, lock)
        self.memory = self.bucket
        create(self.memory, "vault", BLOCKS * BLOCK)
        self.store = FaultyStore(self.memory, wrong)
        if elsewhere:
            self.bucket.may = {"retain"}

    def do(self, what: str, block: int, count: int) -> None:
        if what == "days":
            self.now += count * DAY
            engine = self.opened()
            engine.put_all()
            last = engine.log.uploaded
            self.by_segment[engine.blocks.root.epoch_of(last), last] = dict(self.state)
            engine.keep_locked()
            return
        if what == "gc":
            self.gc()
            return
        super().do(what, block, count)
        if what == "checkpoint":
            self.opened().keep_locked()

    def gc(self) -> None:
        """With another key, on another host, whatever the writer is at."""
        before, self.bucket.may = self.bucket.may, {"delete"}
        try:
            remove_versions(self.bucket, "vault", POOL, do=True)
        finally:
            self.bucket.may = before

    def needed(self) -> Needed:
        what = superblock(self.memory, "vault")
        root, usage = newest_root(self.memory, "vault", what), Usage()
        load_usage(usage, self.memory, "vault", root, None)
        return Needed("vault", root, usage)

    def check_locks(self) -> None:
        """All that the newest root and its moments point to is locked until then, as it says."""
        root = newest_root(self.memory, "vault", superblock(self.memory, "vault"))
        for key in [checkpoint_key("vault", one.number, one.epoch) for one in (root, *root.past)]:
            for name in [key, *self.points_to(key), "vault/store"] if root.number else []:
                first = self.bucket.kept[name][0]
                assert first.until >= root.lock.until, (name, first.until - self.now, root.lock)

    def check_fallback(self) -> None:
        """All is there that the root before the newest needs, of the same writer: it is taken if that is damaged."""
        root = newest_root(self.memory, "vault", superblock(self.memory, "vault"))
        key = checkpoint_key("vault", root.number - 1, root.epoch)
        if key in self.bucket.objects:
            assert [one for one in self.points_to(key) if one not in self.bucket.objects] == []

    def points_to(self, key: str) -> list[str]:
        root, usage = read_root(self.memory, key, superblock(self.memory, "vault")), Usage()
        load_usage(usage, self.memory, "vault", root, None)
        return list(wanted("vault", root, usage))

    def check_nothing_is_left(self) -> None:
        """Of what nobody needs but what is locked still."""
        needed = self.needed()
        garbage = [key for key in self.bucket.kept if needed.verdict(key) == "garbage"]
        assert [key for key in garbage if self.bucket.kept[key][0].until <= self.now] == []
        assert not any("segments" in key for key in garbage)


def live(
    program: list[tuple[str, int, int]],
    wrong: list[Fault],
    lock: Lock | None = LOCK,
    *,
    elsewhere: bool = False,
) -> LockWorld:
    world = LockWorld(wrong, lock, elsewhere=elsewhere)
    try:
        for what, block, count in program:
            world.step(what, block, count)
            if what in ("checkpoint", "days", "gc"):
                world.check_past()
                world.check_locks()
                world.check_fallback()
        world.step("cut", 0, 0)
        world.step("checkpoint", 0, 0)
        world.step("days", 0, 1)
        for _ in range(3):
            world.step("checkpoint", 0, 0)
        world.check_past()
        world.check_locks()
        # What is garbage by now was locked for so long at most.
        world.step("days", 0, 16)
        world.step("checkpoint", 0, 0)
        world.step("days", 0, 2)
        if elsewhere:
            world.step("gc", 0, 0)
        world.check_fallback()
        if not world.late:
            world.check_nothing_is_left()
        engine = world.opened()
        assert engine.keeper is not None
        assert engine.keeper.trouble is None
        world.look(engine, [world.state])
        engine.close()
        world.engine = None
    finally:
        if world.engine is not None:
            world.engine.abandon()
        shutil.rmtree(world.folder)
        gc.collect(1)  # an engine is a circle of objects, with megabytes in it
    return world


days = st.tuples(st.just("days"), st.just(0), st.sampled_from([1, 2, 5, 9]))
ends = st.sampled_from([("kill", 0, 0), ("cut", 0, 0), ("close", 0, 0), ("checkpoint", 0, 0)])
steps = st.lists(st.one_of(writes, writes, zeroes, others, ends, days), min_size=1, max_size=24)
with_gc = st.lists(
    st.one_of(writes, zeroes, others, ends, days, st.just(("gc", 0, 0))), min_size=1, max_size=24
)


@settings(max_examples=cases(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(steps, faults)
@example([("write", 0, 33), ("checkpoint", 0, 0), ("days", 0, 9), ("zero", 0, 40), ("days", 0, 9)], [])
def test_what_is_needed_is_locked_and_what_is_not_goes(program: list[Any], wrong: list[Fault]) -> None:
    live(program, wrong)


@settings(max_examples=cases(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(with_gc, faults, st.booleans())
def test_a_writer_that_may_not_remove_and_gc_elsewhere(
    program: list[Any], wrong: list[Fault], locked: bool
) -> None:
    """Without a lock nothing but its own sense keeps it from removing what is needed."""
    live(program, wrong, LOCK if locked else None, elsewhere=True)


def test_gc_after_each_step_of_an_unlocked_life() -> None:
    steps = [one for step in LIFE for one in (step, ("gc", 0, 0), ("read", 0, 0))]
    world = live(steps, [], None, elsewhere=True)
    assert len(world.root().past) == 3
    for at in range(0, world.calls, 11):
        live(steps, [Fault(at, "crash after", 1)], None, elsewhere=True)


LIFE = [
    step
    for at in range(5)
    for step in (
        ("write", at % 4, 33),
        ("checkpoint", 0, 0),
        ("days", 0, 4),
        ("zero", 3, 9),
        ("collect", 0, 0),
    )
]


def test_whatever_call_of_a_locked_life_goes_wrong() -> None:
    world = live(LIFE, [])
    assert world.bucket.retained > 20
    for at in range(0, world.calls, 7):
        live(LIFE, [Fault(at, "crash after", 1)])
        live(LIFE, [Fault(at, "refused", 1)])


def test_locks_are_made_longer_by_few_requests(tmp_path: Path) -> None:
    """A hundred days: each object that is needed is locked again each four days at most, and garbage is not."""
    now = [NOON]
    store = LockingStore(lambda: now[0], LOCK)
    create(store, "vault", 1 << 20)
    engine = opened(store, tmp_path, now)
    for block in range(8):
        engine.write(block * BLOCK, b"k" * BLOCK)
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
    engine.discard(0, 8 * BLOCK)
    engine.put_all()
    engine.checkpoint()
    engine.checkpoint()
    for _ in range(20):
        now[0] += DAY
        engine.keep_locked()
    assert [key for key in store.kept if "segments" in key] == []
    assert store.retained - before <= 6 * 6
    engine.close()


def opened(store: ObjectStore, folder: Path, now: list[float], **more: Any) -> Engine:
    options = Options(folder / "journal", uploads=0, lock=LOCK, clock=lambda: now[0], linger=1e9, **more)
    return attach(store, "vault", options, "test")


Sees = Callable[[ObjectStore], ObjectStore]


def encrypted(store: ObjectStore) -> ObjectStore:
    """As the block store sees it with the key alone: nothing is known of it yet."""
    return EncryptedStore(store, StoreKeys("vault", StoreKey(bytes(range(32)))))


@pytest.mark.parametrize("sees", [lambda store: store, encrypted], ids=["plain", "encrypted"])
def test_somebody_with_the_writers_keys_changes_nothing_of_what_was(tmp_path: Path, sees: Sees) -> None:
    """All is hidden, overwritten, removed where it can be; recovered is the last checkpoint before."""
    chance, now = random.Random(3), [NOON]
    store = LockingStore(lambda: now[0], LOCK)
    create(sees(store), "vault", 1 << 20)
    engine = opened(sees(store), tmp_path, now, history=KeepRules(daily=3))
    for day in range(12):
        engine.write(day % 5 * BLOCK, bytes([day + 1]) * (40 * BLOCK))
        engine.put_all()
        engine.checkpoint()
        engine.keep_locked()
        now[0] += DAY
    truth, root = engine.read(0, 1 << 20), engine.blocks.root.number
    then = now[0] - HOUR
    engine.write(0, b"later" * (BLOCK // 5 * 5 // 5) + bytes(BLOCK - 5 * (BLOCK // 5)))
    assert engine.keeper is not None
    assert engine.keeper.trouble is None
    engine.close()
    wreck(store, chance)
    now[0] += LOCK.seconds - 2 * DAY
    wreck(store, chance)
    with pytest.raises(ZvaultError):
        attach(sees(store), "vault", Options(tmp_path / "other", uploads=0), "test")
    old = AsOf(store, "vault", then)
    seen = sees(old)
    found = last_whole(seen, old, "vault", POOL)
    assert found.moment.number == root
    assert found.put <= then
    assert old.passed_over.hidden > 5
    view = View(seen, "vault", workers=0, at=found.moment)
    assert view.read(0, 1 << 20) == truth
    there = LockingStore(lambda: now[0], LOCK)
    options = Options(tmp_path / "copy", lock=LOCK, keeps_locked=False)
    copy(view, there, "again", options, "test", POOL)
    view.close()
    again = attach(there, "again", Options(tmp_path / "again", uploads=0, lock=LOCK), "test")
    assert again.read(0, 1 << 20) == truth
    again.close()
    with pytest.raises(Refused):
        old.put("vault/store", b"")


def wreck(store: LockingStore, chance: random.Random) -> None:
    """All that a key to the bucket can do."""
    every = list(store.versions(""))
    root = next(key for key in sorted(store.kept, reverse=True) if "checkpoints" in key)
    store.lock = None
    store.put(checkpoint_key("vault", 99, 99), store.kept[root][0].data or b"")
    for key in sorted({one.key for one in every}):
        if chance.random() < 0.5:
            store.put(key, b"overwritten")
        if chance.random() < 0.7:
            store.delete([key])
    for one in every:
        first = store.kept[one.key][0]
        refused = first.id == one.version and first.until > store.clock()
        with pytest.raises(Denied) if refused else contextlib.suppress(Denied, ObjectMissing):
            store.retain(one.key, one.version, "governance", store.clock() + 1)
    store.delete_versions(every)


def test_an_object_that_is_hidden_or_put_again_is_told_of_and_gc_stops(tmp_path: Path) -> None:
    now = [NOON]
    store = LockingStore(lambda: now[0], LOCK)
    create(store, "vault", 1 << 20)
    engine = opened(store, tmp_path, now)
    engine.write(0, b"k" * BLOCK)
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
    create(store, "vault", 1 << 20)
    engine = opened(store, tmp_path, now)
    for block in range(5):
        engine.write(block * BLOCK, b"k" * BLOCK)
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
    create(store, "vault", 1 << 20)
    engine = opened(store, tmp_path, now)
    engine.write(0, b"k" * BLOCK)
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


def test_a_key_that_may_not_lock_is_told_of_and_the_device_goes_on(tmp_path: Path) -> None:
    now = [NOON]
    store = LockingStore(lambda: now[0], LOCK)
    create(store, "vault", 1 << 20)
    engine = opened(store, tmp_path, now)
    store.may = {"delete"}
    engine.keep_locked()
    assert "cannot be kept locked: it is not done: the store answers 403" in str(engine.status()["trouble"])
    asked = store.retained
    engine.write(0, b"k" * BLOCK)
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
    assert newest_root(store, "vault", superblock(store, "vault")).lock.until > now[0] + LOCK.seconds


def test_a_renewal_that_is_broken_off_goes_on_with_the_next_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zvault.blockstore.lock_keeper.AT_ONCE", 4)
    now = [NOON]
    store = LockingStore(lambda: now[0], LOCK)
    create(store, "vault", 1 << 20)
    engine = opened(store, tmp_path, now)
    for block in range(20):
        engine.write(block * BLOCK, b"k" * BLOCK)
        engine.put_all()
    engine.checkpoint()
    assert engine.keeper is not None
    stops = iter([False, False, False, True])
    engine.keeper.stopping = lambda: next(stops)
    engine.keep_locked()
    first = store.retained
    assert 0 < first < 22
    engine.close()
    state = newest_root(store, "vault", superblock(store, "vault")).lock
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
    create(store, "vault", 1 << 20)
    engine = opened(store, tmp_path, now)
    for _ in range(5):
        engine.write(0, b"k" * BLOCK)
        engine.put_all()
        engine.checkpoint()
        engine.keep_locked()
    engine.close()
    store.put("vault/something", b"else")
    report = check(store, "vault", share=1.0, pool=POOL, settle=0)
    assert report.problems == []
    assert [one.key for one in report.strays] == ["vault/something"]


def test_before_the_first_checkpoint_nothing_can_be_brought_back() -> None:
    now = [NOON]
    store = LockingStore(lambda: now[0], LOCK)
    create(store, "vault", 1 << 20)
    at_noon, before = AsOf(store, "vault", NOON), AsOf(store, "vault", NOON - 1)
    with pytest.raises(NotFound, match="there was no checkpoint yet"):
        last_whole(at_noon, at_noon, "vault", POOL)
    with pytest.raises(NotFound, match="there is no block store"):
        last_whole(before, before, "vault", POOL)
