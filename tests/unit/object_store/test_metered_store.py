from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from tests.unit.object_store.faulty_store import Fault, FaultyStore
from tests.unit.object_store.memory_store import MemoryStore
from zvault.api.blockstore import REQUEST_KINDS
from zvault.object_store.interface import NO_OBJECT_YET, ObjectMissing, PreconditionFailed, StoreUnreachable
from zvault.object_store.metered_store import BOUNDS, MeteredStore
from zvault.object_store.retrying_store import RetryingStore


class Slow(MemoryStore):
    """Each request takes as long as it is told, on a clock of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.takes = 7.0, 0.0

    def _find(self, key: str) -> bytes:
        self.now += self.takes
        return super()._find(key)


def test_requests_and_bytes_of_each_kind() -> None:
    it = MeteredStore(MemoryStore())
    tag = it.put("one", memoryview(bytes(100)), NO_OBJECT_YET)
    it.put("one", bytes(50), tag)
    assert (it.get("one"), it.get("one", 45, 10), it.tail("one", 7)[1]) == (bytes(50), bytes(5), 50)
    it.read("one")
    assert [item.key for item in it.list("")] == ["one"]
    it.delete(["one", "two"])
    found = it.counts()
    assert {kind: (found[kind].requests, found[kind].bytes) for kind in REQUEST_KINDS} == {
        "get": (4, 50 + 5 + 7 + 50),
        "put": (2, 150),
        "list": (1, 0),
        "delete": (1, 0),
    }
    assert all(count.errors == 0 for count in found.values())


@pytest.mark.parametrize(
    ("objects", "pages"), [(0, 1), (1, 1), (999, 1), (1000, 1), (1001, 2), (2000, 2), (2001, 3)]
)
def test_a_thousand_objects_are_a_request(objects: int, pages: int) -> None:
    memory = MemoryStore()
    memory.objects.update({f"{number:04d}": b"" for number in range(objects)})
    it = MeteredStore(memory)
    keys = [item.key for item in it.list("")]
    assert len(keys) == objects
    it.delete(keys)
    assert memory.objects == {}
    assert it.counts()["list"].requests == pages
    assert it.counts()["delete"].requests == (pages if objects else 0)


def test_errors_count_and_answers_are_none() -> None:
    it = MeteredStore(
        FaultyStore(MemoryStore(), [Fault(2, "refused"), Fault(3, "lost"), Fault(4, "refused")])
    )
    it.put("one", b"1")
    with pytest.raises(ObjectMissing):
        it.get("two")
    for call in (lambda: it.get("one"), lambda: it.put("one", b"22"), lambda: list(it.list(""))):
        with pytest.raises(StoreUnreachable):
            call()
    with pytest.raises(PreconditionFailed):
        it.put("one", b"3", NO_OBJECT_YET)
    found = it.counts()
    assert [(found[kind].requests, found[kind].errors) for kind in ("get", "put", "list")] == [
        (2, 1),
        (3, 1),
        (1, 1),
    ]
    assert found["put"].bytes == 1, "of what was put for sure"


def test_seconds_fall_into_buckets() -> None:
    slow = Slow()
    slow.put("one", b"")
    it = MeteredStore(slow, clock=lambda: slow.now)
    times = [0.001, 0.004, 0.02, 0.2, 4.0, 100.0]
    for slow.takes in times:
        it.get("one")
    found = it.counts()["get"]
    assert found.seconds == pytest.approx(sum(times))
    assert found.buckets == (*(sum(time <= bound for time in times) for bound in BOUNDS), len(times))
    assert all(one <= two for one, two in pairwise(found.buckets))
    slow.now, slow.takes = 0.0, BOUNDS[0]
    it.get("one")
    assert it.counts()["get"].buckets[0] == found.buckets[0] + 1, "a bound belongs to its bucket"


def test_counts_can_be_told_as_json() -> None:
    it = MeteredStore(MemoryStore())
    it.put("one", b"1")
    told = json.loads(json.dumps({kind: count.as_dict() for kind, count in it.counts().items()}))
    assert told["put"]["requests"] == told["put"]["buckets"][-1] == 1


def test_what_there_was_in_all() -> None:
    it = MeteredStore(MemoryStore())
    for _ in range(30):
        it.put("one", b"1")
    for _ in range(500):
        it.get("one")
    for _ in range(10):
        list(it.list(""))
    it.delete(["one"])
    assert it.totals() == {
        "put": 30,
        "get": 500,
        "list": 10,
        "delete": 1,
        "put_bytes": 30,
        "get_bytes": 500,
    }


def test_every_try_counts_below_one_that_is_patient() -> None:
    faults = [Fault(0, "refused"), Fault(1, "lost")]
    counted = MeteredStore(FaultyStore(MemoryStore(), faults))
    it = RetryingStore(counted, stopping=threading.Event(), say=lambda _: None, sleep=lambda _: None)
    it.put("one", b"1", NO_OBJECT_YET)
    found = counted.counts()
    assert (found["put"].requests, found["put"].errors, found["get"].requests) == (3, 2, 1)


def test_many_threads_lose_no_count() -> None:
    it = MeteredStore(MemoryStore())

    def run(number: int) -> None:
        for _ in range(500):
            it.put(str(number), b"123")
            it.get(str(number))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(8)))
    found = it.counts()
    for kind in ("get", "put"):
        assert found[kind].requests == found[kind].buckets[-1] == 4000
        assert found[kind].bytes == 12000
