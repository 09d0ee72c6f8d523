"""When a pool will be full, against lines that are known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.health.space import (
    LEAST_PACE_SPAN,
    PACE_SPAN,
    SAMPLE_INTERVAL,
    FreeSpaceSample,
    add_free_sample,
    has_enough_samples,
    predict_full,
)
from zvault.core.health.verdict import DAY_SECONDS


def line(free: float, pace: float, seconds: float = PACE_SPAN) -> tuple[FreeSpaceSample, ...]:
    """A pool with so much ``free`` at its first sample, and so much less (or more) a day."""
    samples: tuple[FreeSpaceSample, ...] = ()
    for number in range(int(seconds / SAMPLE_INTERVAL) + 1):
        when = number * SAMPLE_INTERVAL
        samples = add_free_sample(samples, FreeSpaceSample(when, round(free + pace * when / DAY_SECONDS)))
    return samples


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        (line(1000e9, -100e9), 8 * DAY_SECONDS),
        (line(1000e9, -1000e9), 0.0),
        (line(1000e9, 0), None),
        (line(1000e9, 5e9), None),
        (line(1000e9, -100e9, DAY_SECONDS / 2), None),
        ((), None),
        ((FreeSpaceSample(0.0, 5),), None),
    ],
)
def test_a_line_is_followed_to_its_end(samples: tuple[FreeSpaceSample, ...], expected: float | None) -> None:
    found = predict_full(samples, samples[-1].time if samples else 0.0)
    assert found == (pytest.approx(expected, rel=0.01, abs=60) if expected is not None else None)


def test_what_is_too_old_tells_nothing() -> None:
    assert predict_full(line(1000e9, -100e9), 5 * DAY_SECONDS) is None


def test_a_clock_that_was_set_back_begins_anew() -> None:
    assert add_free_sample(line(1000e9, -1e9), FreeSpaceSample(0.5, 7))[1:] == ()


@given(st.lists(st.tuples(st.floats(-DAY_SECONDS, DAY_SECONDS), st.integers(0, 2**63)), max_size=60))
def test_any_samples_are_in_order_few_and_tell_a_time_to_come_or_none(steps: list[tuple[float, int]]) -> None:
    samples: tuple[FreeSpaceSample, ...] = ()
    now = 0.0
    for pause, free in steps:
        now += pause
        samples = add_free_sample(samples, FreeSpaceSample(now, free))
        assert list(samples) == sorted(samples, key=lambda one: one.time)
        assert len(samples) <= PACE_SPAN / SAMPLE_INTERVAL + 1
        found = predict_full(samples, now)
        assert found is None or (
            found >= 0
            and has_enough_samples(samples)
            and samples[-1].time - samples[0].time >= LEAST_PACE_SPAN
        )
