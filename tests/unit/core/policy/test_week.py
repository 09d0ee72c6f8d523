"""What is due in the days to come."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.policy.cron_schedule import parse_every, parse_schedule
from zvault.core.policy.week import MOST_NAMED_TIMES, WEEK_DAYS, list_week

NOW = datetime(2026, 11, 23, 22, 0, tzinfo=UTC).timestamp()
"""A Monday; in Vienna it is 23:00."""
VIENNA = ZoneInfo("Europe/Vienna")


def told(text: str, first: float, zone: object = VIENNA) -> list[tuple[str, int, str]]:
    schedule = parse_every(text) if text[0].isdigit() and " " not in text else parse_schedule(text)
    return [
        (due.date.isoformat()[8:], len(due.times), due.words) for due in list_week(schedule, first, NOW, zone)
    ]  # type: ignore[arg-type]


def test_few_times_are_named_and_many_are_words():
    assert told("30 2 * * *", NOW + 3.5 * 3600) == [(f"{day}", 1, "") for day in range(24, 30)]
    assert told("hourly", NOW + 3600) == [(f"{day}", 0, "hourly") for day in range(24, 30)]
    assert told("0 3 * * sat", NOW + 5 * 86400) == [("28", 1, "")]
    assert told("12h", NOW) == [("23", 1, ""), *((str(day), 2, "") for day in range(24, 30))]
    assert told("15m", NOW)[0] == ("23", 0, "every 15 minutes")
    assert told("0 */2 * * sun", NOW + 6 * 86400)[0][::2] == ("29", "every 2 hours on Sun")


def test_what_is_due_later_than_a_week_is_not_there():
    assert told("30d", NOW + 9 * 86400) == []
    assert told("0 3 1 1 *", NOW + 38 * 86400) == []


@given(
    text=st.sampled_from(
        ["30 2 * * *", "hourly", "weekly", "* * * * *", "1h", "9h", "1s", "3d", "0 0,12 * * mon-fri"]
    ),
    first=st.integers(-1000, 20 * 86400),
)
def test_each_day_is_one_of_the_next_seven_and_says_when(text: str, first: int):
    schedule = parse_every(text) if text in ("1h", "9h", "1s", "3d") else parse_schedule(text)
    found = list_week(schedule, NOW + first, NOW, VIENNA)
    assert len(found) <= WEEK_DAYS
    assert [due.date for due in found] == sorted({due.date for due in found})
    for due in found:
        assert bool(due.times) != bool(due.words)
        assert len(due.times) <= MOST_NAMED_TIMES + 1
        assert all(NOW <= at < NOW + (WEEK_DAYS + 1) * 86400 for at in due.times)


@pytest.mark.parametrize("first", [NOW - 50, NOW - 5 * 86400])
def test_one_that_is_overdue_is_due_now(first: float):
    assert told("3d", first)[0] == ("23", 1, "")
