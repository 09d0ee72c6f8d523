"""The days of a backup's past, against what one counts by hand, minute by minute."""

from __future__ import annotations

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.examples import cases
from zvault.core.health.days import DAY_STATES, MOST_DAYS, PastRun, merge_days, summarize_days

START = datetime(2026, 3, 27, tzinfo=UTC).timestamp()
"""Two days before the clocks of Vienna are put forward."""
VIENNA = ZoneInfo("Europe/Vienna")
HOUR = 3600.0

runs = st.builds(
    lambda at, took, result, size: PastRun(START + at * HOUR, START + (at + took) * HOUR, result, size),
    st.integers(0, 130),
    st.integers(0, 30),
    st.sampled_from(["ok", "partial", "failed", "interrupted"]),
    st.integers(0, 10),
)


def local(when: float) -> date:
    return datetime.fromtimestamp(when, UTC).astimezone(VIENNA).date()


@settings(max_examples=cases(150))
@given(found=st.lists(runs, max_size=12), now=st.integers(0, 200))
def test_they_are_as_one_counts_them(found: list[PastRun], now: int):
    end = START + now * HOUR
    told = summarize_days(found, end, VIENNA)
    ended = [run for run in found if run.ended <= end]
    assert bool(told) == bool(ended)
    assert sum(day.runs for day in told) == len(ended)
    assert sum(day.bytes for day in told) == sum(run.bytes for run in ended)
    assert [day.date for day in told] == sorted({day.date for day in told})
    if told:
        assert (told[0].date, told[-1].date) == (local(min(run.ended for run in ended)), local(end))
    for day in told:
        its = [run for run in ended if local(run.ended) == day.date]
        assert day.faults == sum(run.result != "ok" for run in its)
        assert day.state == max((run.result for run in its), key=DAY_STATES.index, default="no run")  # type: ignore[arg-type]


def hours(*ends: float, took: float = 1.0) -> list[PastRun]:
    return [PastRun(START + (end - took) * HOUR, START + end * HOUR, "ok", 1) for end in ends]


def test_lag_is_the_longest_time_since_the_newest_good_run_began():
    told = summarize_days(hours(1, 5, 40), START + 50 * HOUR, UTC)
    # The run that ended at 5 h had begun at 4 h; day one ends at 24 h; the next ended at 40 h.
    assert [day.lag for day in told] == [20 * HOUR, 36 * HOUR, 11 * HOUR]
    assert [day.state for day in told] == ["ok", "ok", "no run"]


@pytest.mark.parametrize(
    ("limit", "states"),
    [(40, ["ok", "ok", "no run"]), (21, ["ok", "late", "no run"]), (11, ["late", "very late", "no run"])],
)
def test_a_day_with_more_than_max_lag_was_late(limit: float, states: list[str]):
    assert [
        day.state for day in summarize_days(hours(1, 5, 40), START + 50 * HOUR, UTC, limit * HOUR)
    ] == states


def test_a_run_that_failed_gives_no_lag_and_silence_is_no_success():
    failed = [PastRun(START, START + HOUR, "failed", 0)]
    told = summarize_days(failed, START + 30 * HOUR, UTC, HOUR)
    assert [(day.state, day.lag) for day in told] == [("failed", None), ("no run", None)]


def test_no_more_than_a_year_is_told():
    told = summarize_days(hours(1), START + 800 * 24 * HOUR, UTC, HOUR)
    assert len(told) == MOST_DAYS
    assert {day.state for day in told} == {"very late"}


def test_a_clock_that_was_set_back_breaks_nothing():
    odd = [PastRun(START + 9 * HOUR, START + 2 * HOUR, "ok", 1), *hours(3)]
    assert all(day.lag is not None and day.lag >= 0 for day in summarize_days(odd, START + 4 * HOUR, UTC))


def test_of_several_backups_each_day_has_the_worst():
    one = summarize_days(hours(1, 26), START + 30 * HOUR, UTC)
    other = summarize_days([PastRun(START, START + HOUR, "failed", 7)], START + 30 * HOUR, UTC)
    found = merge_days([one, other])
    assert [(day.state, day.runs, day.faults, day.bytes) for day in found] == [
        ("failed", 2, 1, 8),
        ("ok", 1, 0, 1),
    ]
