"""The stores that the tests of the block store stand on: in memory, and with faults."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.object_store.faulty_store import Crash, Fault, FaultyStore
from tests.unit.object_store.memory_store import MemoryStore
from zvault.object_store.interface import (
    NO_OBJECT_YET,
    ListedObject,
    ObjectMissing,
    ObjectStore,
    PreconditionFailed,
    StoreUnreachable,
)

KEYS = st.text("ab/", min_size=1, max_size=3)


def test_parts_are_slices() -> None:
    store: ObjectStore = MemoryStore()
    store.put("one", b"0123456789")
    assert store.get("one", 2, 3) == b"234"
    assert store.get("one", 8, 30) == b"89"
    assert store.get("one", 30, 3) == b""
    assert store.tail("one", 3) == (b"789", 10)
    assert store.tail("one", 30) == (b"0123456789", 10)
    assert store.tail("one", 0) == (b"", 10)
    for call in (lambda: store.get("two"), lambda: store.tail("two", 1), lambda: store.read("two")):
        with pytest.raises(ObjectMissing):
            call()


def test_what_was_put_does_not_change_with_its_buffer() -> None:
    store, buffer = MemoryStore(), bytearray(b"before")
    store.put("one", memoryview(buffer))
    buffer[:] = b"behind"
    assert store.get("one") == b"before"


def test_conditions() -> None:
    store = MemoryStore()
    first = store.put("one", b"1", NO_OBJECT_YET)
    with pytest.raises(PreconditionFailed):
        store.put("one", b"2", NO_OBJECT_YET)
    second = store.put("one", b"2", first)
    with pytest.raises(PreconditionFailed):
        store.put("one", b"3", first)
    assert store.read("one") == (b"2", second)
    with pytest.raises(PreconditionFailed):
        store.put("gone", b"3", second)
    assert store.put("one", b"1") == first, "equal contents have equal ETags, as with S3"


@given(
    st.dictionaries(KEYS, st.binary(max_size=3)), KEYS | st.just(""), KEYS | st.just(""), st.integers(1, 4)
)
def test_a_listing_is_that_of_sorted_keys(
    objects: dict[str, bytes], prefix: str, after: str, page: int
) -> None:
    store = MemoryStore(page)
    store.objects.update(objects)
    wanted = sorted(key for key in objects if key.startswith(prefix) and key > after)
    assert list(store.list(prefix, after)) == [ListedObject(key, len(objects[key])) for key in wanted]


def test_of_many_writers_one_wins() -> None:
    store = MemoryStore()
    tag = store.put("one", b"0")

    def put(number: int) -> int | None:
        try:
            store.put("one", str(number).encode(), tag)
        except PreconditionFailed:
            return None
        return number

    with ThreadPoolExecutor(8) as pool:
        won = [number for number in pool.map(put, range(1, 200)) if number is not None]
    assert [str(number).encode() for number in won] == [store.get("one")]


def test_a_crash_before_a_call_and_one_after_it() -> None:
    for wrong, there in (("crash before", False), ("crash after", True)):
        memory = MemoryStore()
        store = FaultyStore(memory, [Fault(1, wrong)])  # type: ignore[arg-type]
        store.put("one", b"1")
        with pytest.raises(Crash):
            store.put("two", b"2")
        assert ("two" in memory.objects) is there
        with pytest.raises(Crash):
            store.get("one")  # the dead do nothing more
        assert len(store.calls) == 2


def test_an_answer_that_is_lost_and_a_request_that_is() -> None:
    memory = MemoryStore()
    store = FaultyStore(memory, [Fault(0, "lost"), Fault(1, "refused")])
    for key in ("one", "two"):
        with pytest.raises(StoreUnreachable):
            store.put(key, b"1", NO_OBJECT_YET)
    assert set(memory.objects) == {"one"}
    store.put("two", b"2", NO_OBJECT_YET)
    assert [call.name for call in store.calls] == ["put", "put", "put"]


def test_a_put_that_arrives_after_later_ones() -> None:
    memory = MemoryStore()
    store = FaultyStore(memory, [Fault(0, "late", after=2)])
    with pytest.raises(StoreUnreachable):
        store.put("one", b"late")
    store.put("one", b"second")
    store.put("two", b"")
    assert memory.get("one") == b"second"
    store.put("two", b"")
    assert memory.get("one") == b"late"


def test_a_put_that_arrives_after_its_process_died_keeps_its_condition() -> None:
    memory = MemoryStore()
    for taken in (True, False):
        memory.objects.clear()
        dead = FaultyStore(memory, [Fault(0, "crash late", after=9)])
        with pytest.raises(Crash):
            dead.put("one", b"dead", NO_OBJECT_YET)
        if taken:
            FaultyStore(memory).put("one", b"alive", NO_OBJECT_YET)
        dead.settle()
        assert memory.get("one") == (b"alive" if taken else b"dead")


def test_a_call_that_is_carried_out_twice_is_answered_once() -> None:
    memory = MemoryStore()
    store = FaultyStore(memory, [Fault(0, "twice"), Fault(1, "twice")])
    tag = store.put("one", b"1", NO_OBJECT_YET)
    assert memory.read("one") == (b"1", tag)
    assert [item.key for item in store.list("")] == ["one"]


def test_a_listing_that_breaks_off() -> None:
    store = FaultyStore(MemoryStore(), [Fault(4, "lost")])
    for key in "abcd":
        store.put(key, b"")
    listing = store.list("")
    assert [next(listing).key, next(listing).key] == ["a", "b"]
    with pytest.raises(StoreUnreachable):
        next(listing)


def test_a_hook_sees_every_call_and_may_raise() -> None:
    seen: list[tuple[str, str, str]] = []

    def hook(when: str, call: object) -> None:
        name, key = call.name, call.key  # type: ignore[attr-defined]
        seen.append((when, name, key))
        if (when, name) == ("after", "delete"):
            raise Crash

    memory = MemoryStore()
    store = FaultyStore(memory, hook=hook)
    store.put("one", b"1")
    with pytest.raises(Crash):
        store.delete(["one", "two"])
    assert seen == [
        ("before", "put", "one"),
        ("after", "put", "one"),
        ("before", "delete", "one two"),
        ("after", "delete", "one two"),
    ]
    assert memory.objects == {}
