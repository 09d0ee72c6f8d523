"""Versions and locks through what stands before a store: nothing is lost or doubled, all is counted and paced."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.object_store.locking_store import LockingStore
from tests.unit.object_store.memory_store import MemoryStore
from zvault.core.policy.object_lock import ObjectLock
from zvault.object_store.apart_store import ApartStore
from zvault.object_store.interface import (
    ListedVersion,
    ObjectMissing,
    StoreDenied,
    StoreUnreachable,
    join_version,
)
from zvault.object_store.metered_store import MeteredStore
from zvault.object_store.request_budget import RequestBudget
from zvault.object_store.retrying_store import RetryingStore

LOCK = ObjectLock("compliance", 100.0)


def filled(*puts: str, lock: ObjectLock | None = None) -> LockingStore:
    ticks = iter(range(1000))
    store = LockingStore(lambda: float(next(ticks)), lock)
    for key in puts:
        store.put(key, f"{key}{len(store.kept)}".encode())
    return store


class BreakingOff(LockingStore):
    """Each listing breaks off after so many of its entries."""

    after: list[int]

    def versions(self, prefix: str, after: str = "") -> Iterator[ListedVersion]:
        left = self.after.pop(0) if self.after else 10**9
        for one in super().versions(prefix, after):
            if left == 0:
                raise StoreUnreachable("it broke off", "", "")
            left -= 1
            yield one


@given(st.lists(st.sampled_from("abcd"), max_size=12), st.lists(st.integers(0, 6), max_size=6))
def test_a_listing_that_breaks_off_has_each_version_once_and_in_order(
    keys: list[str], breaks: list[int]
) -> None:
    ticks = iter(range(1000))
    store = BreakingOff(lambda: float(next(ticks)), None)
    store.after = []
    for key in keys:
        store.put(key, b"")
    whole = list(store.versions(""))
    store.after = list(breaks)
    patient = RetryingStore(
        store, stopping=threading.Event(), say=lambda _: None, sleep=lambda _: None, chance=lambda: 0.5
    )
    assert list(patient.versions("")) == whole


def test_locks_and_removing_are_tried_again_and_counted_by_the_request() -> None:
    store = filled("a", "a", "b", lock=LOCK)
    failing = [StoreUnreachable("it", "503", ""), StoreUnreachable("it", "503", "")]
    counted = MeteredStore(store)

    class Failing(MeteredStore):
        def retain(self, *words: Any) -> None:
            if failing:
                raise failing.pop()
            counted.retain(*words)

        def delete_versions(self, versions: Any) -> Any:
            return counted.delete_versions(versions)

    patient = RetryingStore(
        Failing(store), stopping=threading.Event(), say=lambda _: None, sleep=lambda _: None
    )
    (newest, _, _) = every = list(counted.versions(""))
    patient.retain(newest.key, newest.version, "compliance", 500.0)
    assert patient.delete_versions(every) == every
    store.clock = lambda: 300.0
    assert patient.delete_versions(every) == [newest]
    kinds = {kind: count.requests for kind, count in counted.counts().items() if count.requests}
    assert kinds == {"list": 1, "put": 1, "delete": 2}


def test_they_keep_to_a_budget() -> None:
    waited: list[float] = []
    now = [0.0]

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        now[0] += seconds

    budget = RequestBudget(1.0, clock=lambda: now[0], sleep=sleep)
    store = MeteredStore(filled("a", lock=LOCK), budget=budget)
    (one,) = store.versions("")
    for at in range(4):
        store.retain("a", one.version, "compliance", 500.0 + at)
    store.delete_versions([one])
    assert sum(waited) >= 4


def test_an_object_that_is_put_again_and_again_has_a_bucket_of_its_own() -> None:
    locked, plain = filled("v/store", lock=LOCK), MemoryStore()
    it = ApartStore(locked, plain, "v/epoch")
    it.put("v/epoch", b"1")
    it.put("v/segment", b"2")
    assert (it.read("v/epoch")[0], it.get("v/epoch"), it.tail("v/epoch", 9)[0]) == (b"1", b"1", b"1")
    assert list(plain.objects) == ["v/epoch"]
    assert [one.key for one in it.list("v/")] == ["v/segment", "v/store"]
    (segment, _) = it.versions("v/")
    assert it.get(join_version("v/segment", segment.version)) == b"2"
    it.retain("v/segment", segment.version, "compliance", 10**6)
    assert it.delete_versions([segment]) == [segment]
    it.delete(["v/epoch", "v/segment"])
    assert plain.objects == {}
    with pytest.raises(ObjectMissing):
        it.read("v/segment")
    with pytest.raises(StoreDenied):
        it.retain("v/segment", segment.version, "compliance", 5.0)
