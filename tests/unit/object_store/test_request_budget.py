from __future__ import annotations

import heapq
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.object_store.memory_store import MemoryStore
from zvault.object_store.interface import ObjectMissing
from zvault.object_store.metered_store import MeteredStore
from zvault.object_store.request_budget import BUCKET_BURST, RequestBudget, TokenBucket


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def budget(clock: Clock, *rates: float | None, **more: Any) -> RequestBudget:
    return RequestBudget(*rates, clock=lambda: clock.now, sleep=clock.sleep, **more)


@given(
    st.floats(0.1, 1e6),
    st.lists(st.tuples(st.floats(0, 5), st.floats(0.01, 10)), min_size=1, max_size=30),
)
def test_no_span_of_time_has_more_than_its_share(rate: float, comers: list[tuple[float, float]]) -> None:
    """Each comer arrives some seconds after the one before, and wants so many seconds' worth."""
    bucket, now = TokenBucket(rate, 0.0), 0.0
    gone: list[tuple[float, float]] = []
    for pause, worth in comers:
        now += pause
        gone.append((now + bucket.take(rate * worth, now), worth))
    assert [at for at, _ in gone] == sorted(at for at, _ in gone), "in the order of coming"
    for first, (begin, _) in enumerate(gone):
        for last in range(first, len(gone)):
            within = sum(worth for _, worth in gone[first:last])
            assert within <= gone[last][0] - begin + BUCKET_BURST + 1e-6


@given(st.lists(st.floats(0.01, 3), min_size=1, max_size=30))
def test_what_there_is_is_used_up(amounts: list[float]) -> None:
    bucket, now = TokenBucket(1.0, 0.0), 0.0
    for amount in amounts:
        now += bucket.take(amount, now)
    assert now <= sum(amounts) + 1e-6
    assert now >= sum(amounts[:-1]) - BUCKET_BURST - 1e-6


def test_a_large_object_passes_a_small_bucket() -> None:
    bucket = TokenBucket(10.0, 0.0)
    assert bucket.take(1000.0, 0.0) == 0.0
    assert bucket.take(1.0, 0.0) == pytest.approx(99.0)


def test_a_rate_of_nothing_is_refused() -> None:
    for rate in (0.0, -1.0):
        with pytest.raises(ValueError, match="rate"):
            RequestBudget(requests=rate)


def test_requests_are_counted_whatever_they_are() -> None:
    clock = Clock()
    memory = MemoryStore()
    memory.objects.update({f"{number:04d}": b"" for number in range(2500)})
    store = MeteredStore(memory, budget=budget(clock, 10.0))
    store.put("one", b"1")
    for _ in range(10):
        store.get("one")
        store.tail("one", 1)
        store.read("one")
        with pytest.raises(ObjectMissing):
            store.get("gone")
    assert sum(1 for _ in store.list("")) == 2501
    store.delete(list(memory.objects))
    assert memory.objects == {}
    requests = 1 + 40 + 3 + 3
    assert clock.now - 50 == pytest.approx((requests - 1) / 10.0 - BUCKET_BURST)


def test_bytes_up_and_down_have_buckets_of_their_own() -> None:
    clock = Clock()
    store = MeteredStore(MemoryStore(), budget=budget(clock, None, 1000.0, 100.0))
    for _ in range(11):
        store.put("one", memoryview(bytes(500)))
    assert clock.now - 50 == pytest.approx(10 * 0.5 - BUCKET_BURST)
    clock.now = began = 1000.0
    for _ in range(4):
        store.get("one", 0, 100)
        store.tail("one", 100)
    assert clock.now - began == pytest.approx(7 - BUCKET_BURST)


def test_what_came_counts_and_not_what_was_asked_for() -> None:
    clock = Clock()
    store = MeteredStore(MemoryStore(), budget=budget(clock, None, None, 100.0))
    store.put("one", bytes(50))
    for _ in range(7):
        store.get("one", 0, 10**6)
        with pytest.raises(ObjectMissing):
            store.get("gone", 0, 10**6)
        store.tail("one", 10**6)
        store.get("one")
        store.read("one")
    assert 7 * 2.0 - BUCKET_BURST - 0.5 <= clock.now - 50 <= 7 * 2.0 - BUCKET_BURST


def test_no_budget_waits_for_nothing() -> None:
    clock = Clock()
    store = MeteredStore(MemoryStore(), budget=budget(clock))
    for _ in range(1000):
        store.put("one", bytes(1000))
        store.get("one")
    assert clock.now == 50.0


def test_what_is_waited_for_the_budget_is_not_the_requests_time() -> None:
    clock = Clock()
    store = MeteredStore(MemoryStore(), lambda: clock.now, budget(clock, 1.0))
    for _ in range(5):
        store.put("one", b"1")
    assert list(store.list("")) != []
    assert clock.now > 52.0
    assert {kind: tally.seconds for kind, tally in store.counts().items() if tally.requests} == {
        "put": 0.0,
        "list": 0.0,
    }


class SharedClock:
    """A clock of several threads, which goes on when all of them sleep: to when the first of them wakes up."""

    def __init__(self, threads: int) -> None:
        self.now, self._awake = 0.0, threads
        self._wakes: list[float] = []
        self._changed = threading.Condition()

    def read(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        with self._changed:
            wakes = self.now + seconds
            heapq.heappush(self._wakes, wakes)
            self._end()
            self._changed.wait_for(lambda: self.now >= wakes)

    def end(self) -> None:
        """A thread is over."""
        with self._changed:
            self._end()

    def _end(self) -> None:
        self._awake -= 1
        if self._awake == 0 and self._wakes:
            self.now = self._wakes[0]
            while self._wakes and self._wakes[0] <= self.now:
                heapq.heappop(self._wakes)
                self._awake += 1
            self._changed.notify_all()


def test_threads_share_fairly() -> None:
    clock = SharedClock(8)
    budget = RequestBudget(requests=400.0, clock=clock.read, sleep=clock.sleep)
    budget.take(requests=int(400 * BUCKET_BURST))  # else the first to come has it all
    store = MeteredStore(MemoryStore(), budget=budget)
    done = [0] * 8

    def run(number: int) -> None:
        while clock.now < 1.5:
            store.put(str(number), b"")
            done[number] += 1
        clock.end()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(8)))
    assert 590 <= sum(done) <= 620
    assert min(done) >= 0.7 * max(done)
