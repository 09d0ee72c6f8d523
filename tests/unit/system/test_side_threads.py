"""What is large is computed in a thread while the loop goes on; what is small, in the loop itself."""

import asyncio
import gc
import threading
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.patience import PATIENCE
from zvault.system import side_threads
from zvault.system.side_threads import (
    GARBAGE_HEAVY_COUNT,
    MOST_IN_LOOP,
    compute_aside,
    decode_text,
    free_items_aside,
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

    assert asyncio.run(live(10)) == (False, 0)
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


@pytest.mark.parametrize("count", [MOST_IN_LOOP, LARGE])
def test_what_is_large_dies_beside_the_loop_item_by_item(count: int) -> None:
    async def live() -> set[int]:
        Mortal.died = []
        items = [Mortal() for _ in range(count)]
        free_items_aside(items)
        await compute_aside(LARGE, None, lambda: None)  # in the same thread, so after that
        assert len(items) == (0 if count == LARGE else count)
        del items
        assert len(Mortal.died) == count
        return set(Mortal.died)

    assert (asyncio.run(live()) == {threading.get_ident()}) is (count < LARGE)


def test_what_somebody_else_has_does_not_die() -> None:
    Mortal.died = []
    kept = [Mortal() for _ in range(LARGE)]
    items = list(kept)
    free_items_aside(items)
    asyncio.run(compute_aside(LARGE, None, lambda: None))
    assert (len(items), len(kept), Mortal.died) == (0, LARGE, [])
