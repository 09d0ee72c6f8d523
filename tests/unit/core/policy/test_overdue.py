from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.policy.cron_schedule import find_next_time, parse_every, parse_schedule
from zvault.core.policy.overdue import count_missed_times, has_missed_time, is_overdue

NINE = datetime(2026, 11, 21, 9, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")  # forward on 2026-03-29 at 02:00, back on 2026-10-25 at 03:00


def at(text: str, zone: Any = BERLIN, fold: int = 0) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=zone, fold=fold)


@pytest.mark.parametrize(
    ("minutes", "missed"), [(0, 0), (59, 0), (60, 1), (119, 1), (120, 2), (180, 3), (10_000, 3)]
)
def test_times_of_a_schedule_that_passed(minutes: int, missed: int) -> None:
    now = NINE + timedelta(minutes=minutes)
    assert count_missed_times(parse_schedule("hourly"), NINE, now, UTC) == missed
    assert count_missed_times(parse_every("1h"), NINE, now, UTC) == missed


def test_a_time_that_comes_with_the_next_second_is_missed() -> None:
    last = NINE - timedelta(seconds=1)
    assert count_missed_times(parse_schedule("hourly"), last, NINE, UTC) == 1
    assert has_missed_time(parse_schedule("hourly"), last, NINE, UTC)


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


# Whether a run is to be made up for


def test_a_backup_that_never_ran_is_due() -> None:
    assert has_missed_time(parse_schedule("daily"), None, at("2026-11-21 09:00"), BERLIN)


@pytest.mark.parametrize(
    ("schedule", "last", "now", "expected"),
    [
        ("hourly", "2026-11-21 09:00:00", "2026-11-21 09:59:59", False),
        ("hourly", "2026-11-21 09:00:00", "2026-11-21 10:00:00", True),
        ("hourly", "2026-11-21 08:59:59", "2026-11-21 09:00:00", True),
        ("hourly", "2026-11-21 09:17:00", "2026-11-21 09:59:00", False),
        ("daily", "2026-11-20 00:00:01", "2026-11-20 23:59:59", False),
        ("daily", "2026-11-20 00:00:01", "2026-11-21 00:00:00", True),
        ("weekly", "2026-11-16 00:00:00", "2026-11-22 23:59:59", False),
        ("weekly", "2026-11-16 00:00:00", "2026-11-23 00:00:00", True),
        ("30 2 * * mon-fri", "2026-11-20 02:30:00", "2026-11-22 12:00:00", False),
        ("30 2 * * mon-fri", "2026-11-20 02:30:00", "2026-11-23 02:30:00", True),
        ("0 0 29 2 *", "2024-02-29 00:00:00", "2026-11-21 00:00:00", False),
        # Forward: 02:30 does not come, so it comes at 03:30.
        ("30 2 * * *", "2026-03-28 02:30:00", "2026-03-29 03:29:00", False),
        ("30 2 * * *", "2026-03-28 02:30:00", "2026-03-29 03:30:00", True),
        ("30 2 * * *", "2026-03-29 03:30:00", "2026-03-30 02:29:00", False),
        ("30 2 * * *", "2026-03-29 03:30:00", "2026-03-30 02:30:00", True),
        ("daily", "2026-03-29 00:00:00", "2026-03-29 23:59:00", False),
        ("daily", "2026-03-29 00:00:00", "2026-03-30 00:00:00", True),
    ],
)
def test_a_time_of_the_calendar_was_missed(schedule: str, last: str, now: str, expected: bool) -> None:
    assert has_missed_time(parse_schedule(schedule), at(last), at(now), BERLIN) is expected


def test_where_the_clock_is_put_back_a_night_is_due_once_and_both_hours_are_due() -> None:
    first, second = at("2026-10-25 02:30"), at("2026-10-25 02:30", fold=1)
    assert second - first == timedelta(0)  # by the wall; an hour apart in truth:
    assert second.astimezone(UTC) - first.astimezone(UTC) == timedelta(hours=1)
    nightly, hourly = parse_schedule("30 2 * * *"), parse_schedule("30 * * * *")
    assert has_missed_time(nightly, at("2026-10-24 02:30"), first, BERLIN)
    assert not has_missed_time(nightly, first, at("2026-10-26 02:29"), BERLIN)
    assert has_missed_time(hourly, first.astimezone(UTC), second.astimezone(UTC), BERLIN)


@pytest.mark.parametrize(("passed", "expected"), [(899, False), (900, True), (901, True), (10**6, True)])
def test_an_interval_was_missed(passed: int, expected: bool) -> None:
    last = at("2026-11-21 09:00", UTC)
    assert has_missed_time(parse_every("15m"), last, last + timedelta(seconds=passed), UTC) is expected


def test_an_interval_is_as_long_through_a_clock_change() -> None:
    last = at("2026-03-29 01:00").astimezone(UTC)  # as a snapshot's name has it
    assert not has_missed_time(parse_every("2h"), last, at("2026-03-29 03:59:59"), BERLIN)
    assert has_missed_time(parse_every("2h"), last, at("2026-03-29 04:00:00"), BERLIN)


MOMENTS = st.integers(0, 3 * 366 * 86400).map(
    lambda s: datetime(2025, 1, 1, tzinfo=UTC) + timedelta(seconds=s)
)


@given(
    st.sampled_from(["hourly", "daily", "15 3 * * sun", "*/20 8-18 * * *"]), MOMENTS, st.integers(0, 200_000)
)
def test_what_was_not_missed_comes_later_and_what_was_came_before(
    schedule: str, last: datetime, passed: int
) -> None:
    parsed, now = parse_schedule(schedule), last + timedelta(seconds=passed)
    # What stands for the second of the last is not after it.
    due = find_next_time(parsed, last + timedelta(microseconds=999_999), BERLIN).astimezone(UTC)
    assert due > last
    assert has_missed_time(parsed, last, now, BERLIN) == (due <= now)
