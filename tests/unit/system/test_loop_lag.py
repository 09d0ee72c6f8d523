"""How long the loop keeps others waiting is measured at each of its turns."""

import asyncio
import time

from tests.unit.loop_turns import MOST
from zvault.system.loop_lag import LAG_SPAN, LAG_SPAN_PART, LagSelector


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_longest_turn_counts_for_a_minute() -> None:
    clock = Clock()
    selector = LagSelector(clock)
    for turn in (0.1, 0.7, 0.2):
        clock.now += turn
        selector.select(0)
    assert round(selector.longest(), 6) == 0.7
    clock.now += LAG_SPAN - 1.0
    selector._returned = clock.now  # it waited for something all the time
    selector.select(0)
    assert round(selector.longest(), 6) == 0.7
    clock.now += LAG_SPAN_PART + 1.0
    selector._returned = clock.now
    selector.select(0)
    assert selector.longest() < 0.1
    selector.close()


def test_a_timer_that_comes_late_counts_and_waiting_does_not() -> None:
    class Late(Clock):
        """Each look at it is half a second later: a wait of 0.2 s takes 0.5."""

        def __call__(self) -> float:
            self.now += 0.5
            return self.now

    selector = LagSelector(Late())
    selector._returned = 1001.0  # the next look: no turn at all
    selector.select(0.2)
    assert round(selector.longest(), 6) == 0.3
    selector.close()


def test_a_loop_that_computes_is_seen() -> None:
    selector = LagSelector()

    async def live() -> float:
        await asyncio.sleep(0.01)
        began = time.thread_time()
        while time.thread_time() - began < MOST:
            pass
        await asyncio.sleep(0)
        return selector.longest()

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        assert runner.run(live()) >= MOST
