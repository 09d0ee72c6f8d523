"""What is large is computed in a thread while the loop goes on; what is small, in the loop itself."""

import asyncio
import contextlib
import gc
import json
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.patience import PATIENCE
from zvault.system import side_threads
from zvault.system.side_threads import (
    GARBAGE_HEAVY_COUNT,
    MOST_IN_LOOP,
    LongDict,
    LongList,
    compute_aside,
    decode_text,
    split_lines,
)

LARGE = MOST_IN_LOOP + 1


def test_what_is_small_is_done_at_once() -> None:
    async def live() -> int:
        return await compute_aside(MOST_IN_LOOP, None, threading.get_ident)

    assert asyncio.run(live()) == threading.get_ident()


def test_the_loop_goes_on_while_something_large_is_worked_through() -> None:
    async def live() -> tuple[int, bool]:
        went_on = threading.Event()

        def work() -> tuple[int, bool]:
            return threading.get_ident(), went_on.wait(PATIENCE)

        computed = asyncio.create_task(compute_aside(LARGE, None, work))
        await asyncio.sleep(0)
        went_on.set()
        return await computed

    thread, went_on = asyncio.run(live())
    assert went_on
    assert thread != threading.get_ident()


def test_nobody_looks_for_garbage_while_very_much_is_worked_through() -> None:
    async def live(keep: int) -> tuple[bool, int]:
        before, kept = gc.get_freeze_count(), list[list[int]]()

        def work() -> bool:
            kept.extend([number] for number in range(keep))
            return gc.isenabled()

        on = await compute_aside(GARBAGE_HEAVY_COUNT, None, work)
        assert gc.isenabled()
        return on, gc.get_freeze_count() - before

    on, frozen = asyncio.run(live(10))
    assert not on
    assert frozen <= 0, "what others left may go meanwhile"
    on, frozen = asyncio.run(live(2 * GARBAGE_HEAVY_COUNT))
    assert not on
    assert frozen >= 2 * GARBAGE_HEAVY_COUNT, "what is left of it is not looked at later either"


def test_an_error_reaches_whoever_asked() -> None:
    async def live() -> None:
        await compute_aside(LARGE, None, int, "no number")

    with pytest.raises(ValueError, match="no number"):
        asyncio.run(live())


@pytest.mark.parametrize("same", [True, False])
def test_nothing_is_worked_on_in_the_loop_while_the_thread_is_at_work_on_it(same: bool) -> None:
    """What is known of a backup must not be found changed in half."""

    async def live() -> list[str]:
        known, order, go_on = object(), list[str](), threading.Event()

        def work() -> None:
            assert go_on.wait(PATIENCE)
            order.append("large")

        large = asyncio.create_task(compute_aside(LARGE, known, work))
        await asyncio.sleep(0)
        small = asyncio.create_task(compute_aside(1, known if same else object(), order.append, "small"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(large, small)
        await compute_aside(1, known, order.append, f"last in {threading.get_ident()}")
        return order

    order = asyncio.run(live())
    assert order[:2] == (["large", "small"] if same else ["small", "large"])
    assert order[2:] == [f"last in {threading.get_ident()}"], "then it is as before"


def test_whoever_is_cancelled_waits_for_the_end() -> None:
    async def live() -> bool:
        done, go_on = threading.Event(), threading.Event()

        def work() -> None:
            assert go_on.wait(PATIENCE)
            done.set()

        computed = asyncio.create_task(compute_aside(LARGE, None, work))
        await asyncio.sleep(0)
        computed.cancel()
        await asyncio.sleep(0)
        assert not computed.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await computed
        return done.is_set()

    assert asyncio.run(live())


@given(st.lists(st.sampled_from(["a", "\n", "\r\n", "\r", "\x0b", "\u2028", "é"]), max_size=40).map("".join))
def test_lines_are_split_as_if_in_one_go(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(side_threads, "DECODE_PART", 3)
        assert split_lines(text) == text.splitlines()


@given(st.binary(max_size=60) | st.text(max_size=40).map(str.encode))
def test_bytes_are_decoded_as_if_in_one_go(data: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(side_threads, "DECODE_PART", 3)
        assert asyncio.run(decode_text(data)) == data.decode(errors="replace")


class Mortal:
    """Notes in which thread it died."""

    died: ClassVar[list[int]] = []

    def __del__(self) -> None:
        self.died.append(threading.get_ident())


def died_in(count: int) -> set[int]:
    """In which threads so many died, once all of them have."""
    until = time.monotonic() + PATIENCE
    while len(Mortal.died) < count and time.monotonic() < until:
        time.sleep(0.001)
    assert len(Mortal.died) == count
    return set(Mortal.died)


def mortals(count: int = LARGE) -> list[Mortal]:
    Mortal.died = []
    return [Mortal() for _ in range(count)]


def mortals_by_number(count: int = LARGE) -> dict[int, Mortal]:
    return dict(enumerate(mortals(count)))


def have_and_fail(made: Callable[[], Any]) -> None:
    kept = made()
    raise ValueError(len(kept))


@pytest.mark.parametrize(
    "made", [lambda: LongList(mortals()), lambda: LongDict(mortals_by_number())], ids=["list", "dictionary"]
)
def test_what_is_long_dies_beside_the_loop_wherever_its_last_reference_goes(made: Callable[[], Any]) -> None:
    """At the end of a function, by an error, or in a document that goes."""
    for let_go in (
        lambda: bool(made()),
        lambda: {"rows": made(), "more": 1}.pop("more"),
        lambda: have_and_fail(made),
    ):
        with contextlib.suppress(ValueError):
            let_go()
        assert threading.get_ident() not in died_in(LARGE)


def test_in_a_plain_list_it_dies_where_that_ends() -> None:
    mortals().clear()
    assert died_in(LARGE) == {threading.get_ident()}


def test_what_is_computed_of_very_much_dies_beside_the_loop() -> None:
    async def live(size: int, work: Callable[[], Any]) -> None:
        await compute_aside(size, None, work)

    for work in (mortals, mortals_by_number, lambda: (mortals(), ["other"])):
        asyncio.run(live(GARBAGE_HEAVY_COUNT, work))
        assert threading.get_ident() not in died_in(LARGE)
    asyncio.run(live(1, lambda: mortals(1)))
    assert died_in(1) == {threading.get_ident()}


def test_what_somebody_else_has_does_not_die() -> None:
    kept = mortals()
    both = LongList([*kept, Mortal()])
    del both
    died_in(1)
    assert len(kept) == LARGE


def test_it_is_a_list_or_a_dictionary_like_any_other() -> None:
    assert json.dumps(LongList([1, 2])) == "[1, 2]"
    assert [*LongList([1, 2])] == LongList([1]) + LongList([2])
    assert LongDict({1: 2}) | {3: 4} == {1: 2, 3: 4}
