"""S3 tried again where an answer was lost: a put finds itself or is overtaken, and no outcome changes."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.object_store.faulty_store import Crash, Fault, FaultyStore
from tests.unit.object_store.memory_store import MemoryStore
from tests.unit.object_store.outage_story import GONE, Story
from zvault.object_store.interface import (
    NO_OBJECT_YET,
    ObjectMissing,
    PreconditionFailed,
)
from zvault.object_store.retrying_store import RetryingStore


def test_a_lost_put_finds_itself_and_is_content() -> None:
    for there in (False, True):
        memory = MemoryStore()
        condition = memory.put("one", b"0") if there else NO_OBJECT_YET
        faulty = FaultyStore(memory, [Fault(0, "lost")])
        it = RetryingStore(faulty, stopping=threading.Event(), say=lambda _: None, sleep=lambda _: None)
        assert it.put("one", memoryview(b"mine"), condition) == memory.read("one")[1]
        assert [call.name for call in faulty.calls] == ["put", "put", "read"]


def test_a_lost_put_that_another_one_followed_is_overtaken() -> None:
    memory = MemoryStore()
    faulty = FaultyStore(memory, [Fault(0, "lost")])
    it = RetryingStore(
        faulty,
        stopping=threading.Event(),
        say=lambda _: None,
        sleep=lambda _: memory.put("one", b"another's"),
    )
    with pytest.raises(PreconditionFailed):
        it.put("one", b"mine", NO_OBJECT_YET)


def test_a_put_that_never_came_and_another_one_did_is_overtaken() -> None:
    memory = MemoryStore()
    faulty = FaultyStore(memory, [Fault(0, "refused"), Fault(2, "refused")])
    it = RetryingStore(
        faulty,
        stopping=threading.Event(),
        say=lambda _: None,
        sleep=lambda _: memory.objects.update(one=b"another's"),
    )
    with pytest.raises(PreconditionFailed):
        it.put("one", b"mine", NO_OBJECT_YET)


def test_what_is_there_already_is_not_ones_own_without_a_lost_answer() -> None:
    it = Story()
    it.memory.put("one", b"same")
    with pytest.raises(PreconditionFailed):
        it.store.put("one", b"same", NO_OBJECT_YET)


def test_a_listing_goes_on_where_it_broke_off() -> None:
    memory = MemoryStore()
    keys = [f"{number:02d}" for number in range(16)]
    memory.objects.update(dict.fromkeys(keys, b""))
    faulty = FaultyStore(memory, [Fault(0, "lost"), Fault(1, "refused"), Fault(2, "lost"), Fault(3, "lost")])
    it = RetryingStore(faulty, stopping=threading.Event(), say=lambda _: None, sleep=lambda _: None)
    assert [item.key for item in it.list("")] == keys
    assert len(faulty.calls) == 5


def test_a_crash_is_nothing_to_wait_for() -> None:
    faulty = FaultyStore(MemoryStore(), [Fault(0, "refused"), Fault(1, "crash before")])
    it = RetryingStore(faulty, stopping=threading.Event(), say=lambda _: None, sleep=lambda _: None)
    with pytest.raises(Crash):
        it.put("one", b"1")


STEP = st.tuples(
    st.sampled_from(["new", "replace", "stale", "put", "get", "tail", "read", "list", "delete"]),
    st.sampled_from("ab"),
)
FAULTS = st.lists(
    st.builds(Fault, st.integers(0, 40), st.sampled_from(["refused", "lost", "twice"])), max_size=20
)


def outcome(store: Any, tags: dict[str, str], step: tuple[str, str], mark: int) -> object:
    name, key = step
    data = f"{name} {mark}".encode()
    try:
        if name == "new":
            tags[key] = store.put(key, data, NO_OBJECT_YET)
        elif name in ("replace", "stale"):
            tag = tags.get(key, "none") if name == "replace" else "0" * 32
            tags[key] = store.put(key, data, tag)
        elif name == "put":
            tags[key] = store.put(key, data)
        elif name == "delete":
            store.delete([key])
        elif name == "list":
            return list(store.list(""))
        else:
            return getattr(store, name)(key, *([1] if name == "tail" else []))
    except (ObjectMissing, PreconditionFailed) as error:
        return type(error)
    return tags.get(key)


@given(st.lists(STEP, max_size=15), FAULTS, st.randoms(use_true_random=False))
def test_faults_change_no_outcome(
    steps: list[tuple[str, str]], faults: list[Fault], chance: random.Random
) -> None:
    plain, memory = MemoryStore(), MemoryStore()
    patient = RetryingStore(
        FaultyStore(memory, faults),
        stopping=threading.Event(),
        say=lambda _: None,
        sleep=lambda _: None,
        chance=chance.random,
    )
    ours: dict[str, str] = {}
    theirs: dict[str, str] = {}
    for mark, step in enumerate(steps):
        assert outcome(patient, ours, step, mark) == outcome(plain, theirs, step, mark)
        assert memory.objects == plain.objects
    assert patient.trouble is None


def test_many_threads_make_one_story() -> None:
    memory = MemoryStore()
    memory.put("one", b"1")
    up, inside = threading.Event(), threading.Semaphore(0)

    def hook(when: str, _: object) -> None:
        if when == "before" and not up.is_set():
            inside.release()
            raise GONE

    said: list[str] = []
    stopping = threading.Event()
    store = RetryingStore(
        FaultyStore(memory, hook=hook),
        stopping=stopping,
        say=said.append,
        sleep=lambda seconds: stopping.wait(min(seconds, 0.05)),
    )
    with ThreadPoolExecutor(8) as pool:
        reads = [pool.submit(store.get, "one") for _ in range(8)]
        while not said:
            inside.acquire(timeout=60)
        assert store.trouble is not None
        up.set()
        assert [read.result(timeout=60) for read in reads] == [b"1"] * 8
    assert len(said) == 2
    assert said[1].startswith("the object store answers again")
    assert store.trouble is None
