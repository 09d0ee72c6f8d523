from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.policy.overdue import count_missed_times, is_overdue
from zvault.core.policy.schedule import parse_every, parse_schedule

NINE = datetime(2026, 11, 21, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("minutes", "missed"), [(0, 0), (59, 0), (60, 1), (119, 1), (120, 2), (180, 3), (10_000, 3)]
)
def test_times_of_a_schedule_that_passed(minutes: int, missed: int) -> None:
    now = NINE + timedelta(minutes=minutes)
    assert count_missed_times(parse_schedule("hourly"), NINE, now, UTC) == missed
    assert count_missed_times(parse_every("1h"), NINE, now, UTC) == missed


def test_a_snapshot_named_for_the_second_of_its_time_has_met_it() -> None:
    early = NINE - timedelta(milliseconds=300)
    assert count_missed_times(parse_schedule("hourly"), early, NINE + timedelta(minutes=59), UTC) == 0


@given(st.integers(-(10**6), 10**6), st.sampled_from(["hourly", "daily", "*/20 8-18 * * *"]))
def test_more_time_misses_no_less(seconds: int, schedule: str) -> None:
    now, parsed = NINE + timedelta(seconds=seconds), parse_schedule(schedule)
    missed = count_missed_times(parsed, NINE, now, UTC)
    assert 0 <= missed <= count_missed_times(parsed, NINE, now + timedelta(hours=1), UTC) <= 3
    if seconds <= 0:
        assert missed == 0


@pytest.mark.parametrize(
    ("missed", "at_work", "began", "expected"),
    [
        (1, False, True, False),
        (2, False, True, True),
        (2, False, False, True),
        (2, True, True, False),
        (3, True, True, True),
        (3, True, False, False),
    ],
)
def test_two_missed_times_are_too_many(missed: int, at_work: bool, began: bool, expected: bool) -> None:
    assert is_overdue(missed, at_work=at_work, began=began) is expected
