from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.unit.object_store.faulty_store import Fault, FaultyStore
from tests.unit.object_store.memory_store import MemoryStore
from tests.unit.object_store.outage_story import GONE, Story
from zvault.object_store.interface import (
    NO_OBJECT_YET,
    ObjectMissing,
    PreconditionFailed,
    StoreDenied,
    StoreError,
    StoreUnreachable,
    Unsupported,
)
from zvault.object_store.retrying_store import FIRST_RETRY_DELAY, LONGEST_RETRY_DELAY, RetryingStore
from zvault.object_store.s3_errors import KeysExpired

DENIED = StoreDenied("one cannot be read", "AccessDenied", "see the permissions")
EXPIRED = KeysExpired("one cannot be read", "ExpiredToken", "")


def test_what_goes_well_waits_for_nothing() -> None:
    it = Story()
    tag = it.store.put("one", b"1", NO_OBJECT_YET)
    assert it.store.read("one") == (b"1", tag)
    assert (it.store.get("one"), it.store.tail("one", 9)) == (b"1", (b"1", 1))
    assert [item.key for item in it.store.list("")] == ["one"]
    it.store.delete(["one"])
    assert (it.slept, it.said, it.store.trouble) == ([], [], None)


def test_a_removal_that_fails_in_its_midst_goes_on_from_there() -> None:
    it = Story()
    keys = [f"{number:04}" for number in range(2500)]
    for key in keys:
        it.memory.put(key, b"1")
    store = FaultyStore(it.memory, [Fault(1, "refused")])
    RetryingStore(store, stopping=it.stopping, say=it.said.append, sleep=it.slept.append).delete(keys)
    assert [len(call.key.split()) for call in store.calls] == [1000, 1000, 1000, 500]
    assert [call.key.split()[0] for call in store.calls] == ["0000", "1000", "1000", "2000"]
    assert list(it.memory.list("")) == []


def test_waits_double_up_to_a_bound() -> None:
    it = Story()
    it.memory.put("one", b"1")
    it.errors = [GONE] * 12
    assert it.store.get("one") == b"1"
    assert it.slept == pytest.approx([min(FIRST_RETRY_DELAY * 2**n, LONGEST_RETRY_DELAY) for n in range(12)])


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
        lambda store: store.put("two", b"2", NO_OBJECT_YET),
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
        it.store.put("one", b"2", NO_OBJECT_YET)
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
    with pytest.raises(StoreDenied):
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
    with pytest.raises(StoreDenied):
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
        with pytest.raises(StoreUnreachable):
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
    with pytest.raises(StoreUnreachable):
        it.store.put("one", b"1")
    assert (len(it.slept), len(it.faulty.calls)) == (4, 5)
    with pytest.raises(StoreUnreachable):
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
        with pytest.raises(StoreUnreachable):
            waiting.result(timeout=60)
    assert len(faulty.calls) < 7


def test_a_store_that_never_answered_is_not_waited_for_long() -> None:
    story = Story(first_bound=10.0)
    story.until = (math.inf, GONE)
    for call in (lambda: story.store.read("one"), lambda: story.store.put("one", b"1")):
        began = story.now
        with pytest.raises(StoreUnreachable):
            call()
        assert story.now - began == 10.0
    story.until = None
    story.store.put("one", b"1")
    story.until = (story.now + 1000.0, GONE)
    assert story.store.read("one")[0] == b"1", "once it has answered it is waited for"


def test_what_a_store_cannot_do_is_not_waited_for() -> None:
    story = Story()
    story.errors = [Unsupported("one was not put", "the store answers 501", "")]
    with pytest.raises(Unsupported):
        story.store.put("one", b"1")
    assert story.slept == []
