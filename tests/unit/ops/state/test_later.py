"""A verdict for a time to come changes the clock for itself alone: what a thread computes meanwhile goes by now."""

from concurrent.futures import ThreadPoolExecutor

from tests.unit.ops.ops_world import HOUR, START, context


def test_another_thread_goes_by_the_time_that_it_is() -> None:
    env = context(START).env
    with ThreadPoolExecutor(1) as thread, env.later(HOUR):
        here = (env.clock.time(), env.clock.monotonic(), env.clock.boottime(), env.clock.now().timestamp())
        assert here == (START + HOUR, HOUR, HOUR, START + HOUR)
        there = thread.submit(lambda: (env.clock.time(), env.clock.monotonic(), env.clock.now().timestamp()))
        assert there.result() == (START, 0.0, START)
    assert env.clock.time() == START
