"""Whoever measures the event loop sees what computes in it, and what keeps it from its turn."""

import asyncio
import contextlib
import time

import pytest

from tests.unit.daemon.large_world import CpuLag
from tests.unit.loop_turns import MOST, LoopTurns, measured_turns


def compute_for(seconds: float) -> None:
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        pass


async def computes_too_long() -> None:
    await asyncio.sleep(0)
    compute_for(1.5 * MOST)
    await asyncio.sleep(0)


def test_what_computes_in_the_loop_is_found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with measured_turns(monkeypatch) as turns:
        asyncio.run(computes_too_long())
    assert turns.worst > MOST
    assert "computes_too_long" in str(turns)
    with measured_turns(monkeypatch, tests_too=False) as turns:
        asyncio.run(computes_too_long())
    assert turns.worst < MOST


@pytest.mark.parametrize("in_one_call", [True, False])
def test_what_keeps_the_loop_from_its_turn_is_seen(in_one_call: bool) -> None:
    """A thread gives the loop its turns; but not within one call of C code.

    Calls in C grow until one was seen: where the scheduler gives both threads one processor, much of the loop's wait is
    for that, and does not count.
    """
    lag = CpuLag()

    def in_c() -> None:
        began, count = time.thread_time(), 1 << 20
        while lag.worst < MOST and time.thread_time() - began < 60:
            sum(range(count))
            count *= 2

    async def live() -> float:
        watching = asyncio.create_task(lag.watch())
        await asyncio.sleep(0)  # until it has begun: of what a quick thread computes before, nothing is seen
        work = in_c if in_one_call else (lambda: compute_for(3 * MOST))
        await asyncio.get_running_loop().run_in_executor(None, work)
        await asyncio.sleep(3 * lag.EVERY)
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        return lag.worst

    worst = asyncio.run(live())
    assert worst > MOST if in_one_call else worst < MOST


def test_the_longest_are_kept() -> None:
    turns = LoopTurns()
    for seconds in (0.1, 0.5, 0.2, 0.4, 0.3, 0.6):
        if seconds > turns.least:
            turns.note(seconds, "x")
    assert [seconds for seconds, _ in turns.longest] == [0.6, 0.5, 0.4, 0.3, 0.2]
