from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.replication.bandwidth import WEEKDAY_WORDS, RateLimit, RateWindow, parse_days, parse_time

MONDAY = datetime(2026, 11, 23)


@pytest.mark.parametrize(
    ("day", "time", "covered"),
    [
        ("fri", "17:59", False),
        ("fri", "18:00", True),
        ("sat", "06:29", True),
        ("sat", "06:30", False),
        ("sun", "18:00", False),
        ("fri", "06:00", False),
    ],
)
def test_a_window_over_midnight_belongs_to_the_day_it_starts_on(day: str, time: str, covered: bool) -> None:
    window = RateWindow(1, parse_time("18:00"), parse_time("6:30"), parse_days("fri"))
    assert (
        window.covers(MONDAY + timedelta(days=WEEKDAY_WORDS.index(day), minutes=parse_time(time))) is covered
    )


def test_the_first_window_counts() -> None:
    limit = RateLimit((RateWindow(5, 60, 120), RateWindow(None, 0, 180), RateWindow(7)))
    rates = [limit.rate(MONDAY + timedelta(minutes=minute)) for minute in (0, 60, 119, 120, 180)]
    assert rates == [None, 5, 5, None, 7]
    assert RateLimit().rate(MONDAY) is None


@given(st.integers(0, 1439), st.integers(0, 1439), st.frozensets(st.integers(0, 6), min_size=1))
def test_windows_cover_as_long_as_they_say(start: int, end: int, days: frozenset[int]) -> None:
    window = RateWindow(1, start, end, days)
    covered = sum(window.covers(MONDAY + timedelta(minutes=minute)) for minute in range(7 * 1440))
    assert covered == len(days) * ((end - start) % 1440 or 1440)


@pytest.mark.parametrize("text", ["8", "8:0", "24:01", "-1:00", "12:60", "", "noon"])
def test_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="no time of day"):
        parse_time(text)


def test_days() -> None:
    assert parse_days("mon-fri") == frozenset(range(5))
    assert parse_days("Sat, sun") == frozenset({5, 6})
    assert parse_days("fri-mon") == frozenset({4, 5, 6, 0})
    for text in ("", "mo", "mon-", "mon-xyz", "1-5"):
        with pytest.raises(ValueError, match="names no days"):
            parse_days(text)
