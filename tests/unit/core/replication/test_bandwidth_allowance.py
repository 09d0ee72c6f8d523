"""The leave that keeps streams within a limit: never more than the limit, and never less for no reason."""

from hypothesis import given
from hypothesis import strategies as st

from zvault.core.replication.bandwidth import ALLOWANCE_BURST, RateLimit, RateWindow, StreamAllowance


def test_whether_there_is_a_limit_at_any_time() -> None:
    assert not RateLimit()
    assert not RateLimit((RateWindow(None),))
    assert RateLimit((RateWindow(None, 0, 60), RateWindow(5)))


def given_in(
    allowance: StreamAllowance, rate: int | None, seconds: float, step: float, taken: int
) -> list[int]:
    """Quanta given in so many seconds, one number a step, where streams take up to ``taken`` of those ready."""
    ready, given, now = 0, [], 0.0
    while now < seconds:
        due = allowance.due(rate, step, ready)
        ready += due
        assert ready >= 0
        used = min(ready, taken)
        ready -= used
        given.append(used)
        now += step
    return given


@given(st.integers(1 << 10, 4 << 30), st.floats(0.01, 0.06))
def test_streams_that_take_all_get_exactly_the_rate(rate: int, step: float) -> None:
    seconds = max(60.0, 40 * 4096 / rate)
    got = sum(given_in(StreamAllowance(4096, 1 << 19), rate, seconds, step, 1 << 40)) * 4096
    assert abs(got - rate * seconds) <= 2 * 4096 + 2 * rate * step


@given(st.integers(1 << 10, 10 << 30), st.floats(0.01, 5), st.integers(0, 1000))
def test_nobody_gets_more_than_the_rate(rate: int, step: float, taken: int) -> None:
    got = sum(given_in(StreamAllowance(4096, 1 << 19), rate, 60, step, taken)) * 4096
    assert got <= rate * (60 + 2 * step) + 2 * 4096


def test_a_lull_is_not_followed_by_a_flood() -> None:
    allowance, ready = StreamAllowance(4096, 1 << 19), 0
    for _ in range(200):
        ready += allowance.due(100 * 4096, 0.05, ready)
    assert ready == int(100 * ALLOWANCE_BURST)


def test_with_no_limit_there_is_always_enough_and_it_is_taken_back_when_one_begins() -> None:
    allowance = StreamAllowance(4096, 1 << 19)
    assert allowance.due(None, 0.05, 1000) == (1 << 19) - 1000
    assert allowance.due(4096 * 8, 0.05, 1 << 19) == 4 - (1 << 19)
    assert allowance.due(4096 * 8, 0.05, 4) == 0


def test_the_slowest_rate_still_gives_leave() -> None:
    assert sum(given_in(StreamAllowance(4096, 1 << 19), 1024, 41, 0.05, 1)) == 10
