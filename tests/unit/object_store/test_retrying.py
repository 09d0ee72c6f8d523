from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.object_store.faulty_store import Crash, Fault, FaultyStore
from tests.unit.object_store.memory_store import MemoryStore
from zvault.object_store.interface import (
    NEW,
    Denied,
    ObjectMissing,
    PreconditionFailed,
    StoreError,
    Unreachable,
)
from zvault.object_store.retrying import FIRST, LONGEST, RetryingStore
from zvault.object_store.s3_errors import Expired

GONE = Unreachable("one cannot be read", "the store answers 503", "")
DENIED = Denied("one cannot be read", "AccessDenied", "see the permissions")
EXPIRED = Expired("one cannot be read", "ExpiredToken", "")


class Story:
    """A store that fails as it is told, a clock that goes on while something sleeps, and what was said."""

    def __init__(self, chance: float = 1.0, **more: Any) -> None:
        self.now = 1000.0
        self.slept: list[float] = []
        self.said: list[str] = []
        self.errors: list[StoreError] = []
        self.until: tuple[float, StoreError] | None = None
        self.after_sleep: Callable[[], object] = lambda: None
        self.memory = MemoryStore()
        self.stopping = threading.Event()
        self.faulty = FaultyStore(self.memory, hook=self._hook)
        self.store = RetryingStore(
            self.faulty,
            stopping=self.stopping,
            say=self.said.append,
            clock=lambda: self.now,
            sleep=self._sleep,
            chance=lambda: chance,
            **more,
        )

    def _hook(self, when: str, _: object) -> None:
        if when == "before":
            if self.errors:
                raise self.errors.pop(0)
            if self.until is not None and self.now < self.until[0]:
                raise self.until[1]

    def _sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.slept.append(seconds)
        self.now += seconds
        self.after_sleep()


def test_what_goes_well_waits_for_nothing() -> None:
    it = Story()
    tag = it.store.put("one", b"1", NEW)
    assert it.store.read("one") == (b"1", tag)
    assert (it.store.get("one"), it.store.tail("one", 9)) == (b"1", (b"1", 1))
    assert [item.key for item in it.store.list("")] == ["one"]
    it.store.delete(["one"])
    assert (it.slept, it.said, it.store.trouble) == ([], [], None)


def test_waits_double_up_to_a_bound() -> None:
    it = Story()
    it.memory.put("one", b"1")
    it.errors = [GONE] * 12
    assert it.store.get("one") == b"1"
    assert it.slept == pytest.approx([min(FIRST * 2**n, LONGEST) for n in range(12)])


def test_waits_are_of_any_length_up_to_their_bound() -> None:
    it = Story(chance=0.25)
    it.memory.put("one", b"1")
    it.errors = [GONE, GONE, EXPIRED]
    it.store.get("one")
    assert it.slept == pytest.approx([0.025, 0.05, 0.1])


def test_an_outage_of_a_day_is_sat_out_and_told_of() -> None:
    it = Story()
    it.memory.put("one", b"1")
    it.until = (it.now + 86400, GONE)
    assert it.store.get("one") == b"1"
    assert it.said[0].startswith(
        "waiting for the object store for 1s: one cannot be read: the store answers 503"
    )
    assert 86400 / 330 <= len(it.said) - 2 <= 86400 / 300
    assert it.said[-1] == "the object store answers again, after 1d"
    assert it.store.trouble is None


def test_a_hiccup_is_not_told_of() -> None:
    it = Story()
    it.memory.put("one", b"1")
    it.errors = [GONE] * 3
    it.store.get("one")
    assert it.said == []


def test_each_outage_is_told_of() -> None:
    it = Story()
    for _ in range(2):
        it.until = (it.now + 10, GONE)
        it.store.put("one", b"1")
    assert [words.split(" ")[0] for words in it.said] == ["waiting", "the", "waiting", "the"]


def test_it_is_not_over_while_anyone_waits() -> None:
    memory, now = MemoryStore(), [0.0]
    troubles: list[str | None] = []
    faulty = FaultyStore(memory, [Fault(0, "refused"), Fault(2, "refused"), Fault(4, "refused")])

    def sleep(seconds: float) -> None:
        now[0] += 10
        store.put("another", b"")
        troubles.append(store.trouble)

    said: list[str] = []
    store = RetryingStore(
        faulty, stopping=threading.Event(), say=said.append, clock=lambda: now[0], sleep=sleep
    )
    store.put("one", b"")
    assert [(words or "").partition(":")[0] for words in troubles] == [
        f"waiting for the object store for {seconds}s" for seconds in (10, 20, 30)
    ]
    assert len(said) == 2
    assert store.trouble is None


def test_trouble_says_what_is_waited_for_and_how_long() -> None:
    it = Story()
    it.until = (it.now + 100, GONE)
    troubles: list[str | None] = []
    it.after_sleep = lambda: troubles.append(it.store.trouble)
    it.store.put("one", b"1")
    assert troubles[-2] is not None
    assert troubles[-2].startswith("waiting for the object store for 1m ")
    assert "answers 503" in troubles[-2]
    assert it.store.trouble is None


@pytest.mark.parametrize("error", [GONE, EXPIRED, DENIED])
def test_every_call_is_patient(error: StoreError) -> None:
    calls: list[Callable[[RetryingStore], object]] = [
        lambda store: store.get("one"),
        lambda store: store.tail("one", 1),
        lambda store: store.read("one"),
        lambda store: store.put("one", b"2"),
        lambda store: store.put("two", b"2", NEW),
        lambda store: list(store.list("")),
        lambda store: store.delete(["one"]),
    ]
    for call in calls:
        it = Story()
        it.memory.put("one", b"1")
        it.errors = [error, error]
        call(it.store)
        assert len(it.slept) == 2
        assert it.store.trouble is None


def test_answers_pass_through_at_once() -> None:
    it = Story()
    with pytest.raises(ObjectMissing):
        it.store.get("one")
    it.store.put("one", b"1")
    with pytest.raises(PreconditionFailed):
        it.store.put("one", b"2", NEW)
    assert it.slept == []
    it.until = (it.now + 5, GONE)
    with pytest.raises(ObjectMissing):
        it.store.get("two")
    assert it.store.trouble is None, "Missing is an answer"
    assert it.said[-1].startswith("the object store answers again")


def test_denied_is_told_at_once_tried_slowly_and_raised_in_the_end() -> None:
    it = Story()
    it.until = (it.now + 9999, DENIED)
    began = it.now
    with pytest.raises(Denied):
        it.store.put("one", b"1")
    assert it.now - began == pytest.approx(600)
    assert set(it.slept) == {30.0}
    assert it.said[0].startswith("waiting for the object store for 0s: one cannot be read: AccessDenied")
    assert it.store.trouble is not None, "it is not over because one has given up"
    it.until = None
    it.store.put("one", b"1")
    assert it.store.trouble is None
    assert it.said[-1] == "the object store answers again, after 10m"


def test_denied_that_somebody_repairs() -> None:
    it = Story()
    it.until = (it.now + 500, DENIED)
    it.store.put("one", b"1")
    assert it.memory.get("one") == b"1"


def test_denied_without_patience_is_raised_at_once() -> None:
    it = Story(patience=0.0)
    it.until = (it.now + 500, DENIED)
    with pytest.raises(Denied):
        it.store.get("one")
    assert it.slept == []


def test_keys_that_ran_out_are_waited_for_for_ever() -> None:
    it = Story()
    it.until = (it.now + 86400, EXPIRED)
    it.store.put("one", b"1")
    assert it.memory.get("one") == b"1"


def test_patience_begins_anew_when_it_was_something_else_meanwhile() -> None:
    it = Story(patience=100.0)
    it.errors = [DENIED, DENIED, DENIED, GONE, DENIED, DENIED, DENIED]
    it.store.put("one", b"1")
    assert it.memory.get("one") == b"1"


def test_reads_wait_no_longer_than_their_bound_and_writes_do() -> None:
    it = Story(bound=60.0)
    for call in (
        lambda: it.store.get("one"),
        lambda: it.store.tail("one", 1),
        lambda: next(it.store.list("")),
    ):
        it.until = (it.now + 500, GONE)
        began = it.now
        with pytest.raises(Unreachable):
            call()
        assert it.now - began == pytest.approx(60)
    it.until = (it.now + 500, GONE)
    it.store.put("one", b"1")
    assert it.memory.get("one") == b"1"


def test_when_stopping_it_is_tried_once_more_and_raised() -> None:
    it = Story()
    it.until = (it.now + 500, GONE)

    def stop() -> None:
        if len(it.slept) == 4:
            it.stopping.set()

    it.after_sleep = stop
    with pytest.raises(Unreachable):
        it.store.put("one", b"1")
    assert (len(it.slept), len(it.faulty.calls)) == (4, 5)
    with pytest.raises(Unreachable):
        it.store.put("one", b"1")
    assert len(it.faulty.calls) == 6


def test_stopping_ends_a_wait_at_once() -> None:
    stopping = threading.Event()
    faulty = FaultyStore(MemoryStore(), [Fault(number, "refused") for number in range(1000)])
    store = RetryingStore(faulty, stopping=stopping, say=lambda _: None, chance=lambda: 1.0)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.put, "one", b"1")
        while len(faulty.calls) < 4:
            stopping.wait(0.01)
        stopping.set()
        with pytest.raises(Unreachable):
            waiting.result(timeout=60)
    assert len(faulty.calls) < 7


def test_a_lost_put_finds_itself_and_is_content() -> None:
    for there in (False, True):
        memory = MemoryStore()
        condition = memory.put("one", b"0") if there else NEW
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
        it.put("one", b"mine", NEW)


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
        it.put("one", b"mine", NEW)


def test_what_is_there_already_is_not_ones_own_without_a_lost_answer() -> None:
    it = Story()
    it.memory.put("one", b"same")
    with pytest.raises(PreconditionFailed):
        it.store.put("one", b"same", NEW)


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
            tags[key] = store.put(key, data, NEW)
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
