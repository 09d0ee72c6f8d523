"""When a pool will be full, against lines that are known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.health.space import EVERY, LEAST, OVER, Sample, full_in, sampled, told
from zvault.core.health.verdict import DAY


def line(free: float, pace: float, seconds: float = OVER) -> tuple[Sample, ...]:
    """A pool with so much ``free`` at its first sample, and so much less (or more) a day."""
    samples: tuple[Sample, ...] = ()
    for number in range(int(seconds / EVERY) + 1):
        when = number * EVERY
        samples = sampled(samples, Sample(when, round(free + pace * when / DAY)))
    return samples


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        (line(1000e9, -100e9), 8 * DAY),
        (line(1000e9, -1000e9), 0.0),
        (line(1000e9, 0), None),
        (line(1000e9, 5e9), None),
        (line(1000e9, -100e9, DAY / 2), None),
        ((), None),
        ((Sample(0.0, 5),), None),
    ],
)
def test_a_line_is_followed_to_its_end(samples: tuple[Sample, ...], expected: float | None) -> None:
    found = full_in(samples, samples[-1].time if samples else 0.0)
    assert found == (pytest.approx(expected, rel=0.01, abs=60) if expected is not None else None)


def test_what_is_too_old_tells_nothing() -> None:
    assert full_in(line(1000e9, -100e9), 5 * DAY) is None


def test_a_clock_that_was_set_back_begins_anew() -> None:
    assert sampled(line(1000e9, -1e9), Sample(0.5, 7))[1:] == ()


@given(st.lists(st.tuples(st.floats(-DAY, DAY), st.integers(0, 2**63)), max_size=60))
def test_any_samples_are_in_order_few_and_tell_a_time_to_come_or_none(steps: list[tuple[float, int]]) -> None:
    samples: tuple[Sample, ...] = ()
    now = 0.0
    for pause, free in steps:
        now += pause
        samples = sampled(samples, Sample(now, free))
        assert list(samples) == sorted(samples, key=lambda one: one.time)
        assert len(samples) <= OVER / EVERY + 1
        found = full_in(samples, now)
        assert found is None or (found >= 0 and told(samples) and samples[-1].time - samples[0].time >= LEAST)
