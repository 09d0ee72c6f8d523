"""Times as people write them: what is shown by the minute is found by the minute, and nothing is guessed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from zvault.cli import parse_times
from zvault.cli.tables import format_local_time

BERLIN = ZoneInfo("Europe/Berlin")


@contextmanager
def in_zone(name: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", name)
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def in_berlin() -> Iterator[None]:
    with in_zone("Europe/Berlin"):
        yield


def at(*when: int) -> float:
    return datetime(*when, tzinfo=UTC).timestamp()  # type: ignore[misc,arg-type]


def test_a_time_reaches_to_the_end_of_what_was_written() -> None:
    for text, first, after in (
        ("2026-11-21T09:30Z", at(2026, 11, 21, 9, 30), 60),
        ("2026-11-21 09:30 Z", at(2026, 11, 21, 9, 30), 60),
        ("2026-11-21T09:30:15Z", at(2026, 11, 21, 9, 30, 15), 1),
        ("2026-11-21T09:30:15+01:00", at(2026, 11, 21, 8, 30, 15), 1),
        ("2026-11-21 09:30:15 -0100", at(2026, 11, 21, 10, 30, 15), 1),
    ):
        assert parse_times.parse_first_moment(text, "--before") == first
        assert first + after - 0.01 < parse_times.parse_last_moment(text) < first + after
    assert parse_times.parse_last_moment("2026-11-21T09:30:15.5Z") == at(2026, 11, 21, 9, 30, 15) + 0.5
    before = time.time()
    assert before <= parse_times.parse_last_moment("2d ago") + 2 * 86400 <= time.time()


@given(st.integers(int(at(1990, 1, 1)), int(at(2037, 1, 1))))
def test_what_a_list_shows_reaches_what_it_shows(made: int) -> None:
    with in_zone("Asia/Kathmandu"):  # 45 minutes past the hour, and its clocks are never changed
        assert made <= parse_times.parse_last_moment(format_local_time(made)) < made + 60


def test_a_day_is_one_of_the_calendar(in_berlin: None) -> None:
    for day, hours in (("2026-03-29", 23), ("2026-10-25", 25), ("2026-11-21", 24)):
        first = parse_times.parse_first_moment(day, "--before")
        assert first == datetime.fromisoformat(day).replace(tzinfo=BERLIN).timestamp()
        assert 0 < first + hours * 3600 - parse_times.parse_last_moment(day) < 0.01


@pytest.mark.parametrize(
    ("zone", "day", "after", "hours"),
    [
        ("America/Santiago", "2026-04-04", "2026-04-05", 25),
        ("America/Santiago", "2026-09-05", "2026-09-06", 24),
        ("America/Santiago", "2026-09-06", "2026-09-07", 23),
        ("America/Havana", "2026-10-31", "2026-11-01", 24),
        ("America/Havana", "2026-11-01", "2026-11-02", 25),
        ("Atlantic/Azores", "2026-10-25", "2026-10-26", 25),
    ],
)
def test_a_day_ends_where_the_next_begins_also_where_the_clocks_are_changed_at_midnight(
    zone: str, day: str, after: str, hours: int
) -> None:
    with in_zone(zone):
        first = parse_times.parse_first_moment(day, "--before")
        assert (
            0 < parse_times.parse_first_moment(after, "--before") - parse_times.parse_last_moment(day) < 0.01
        )
        assert 0 < first + hours * 3600 - parse_times.parse_last_moment(day) < 0.01


@pytest.mark.parametrize("zone", ["America/Santiago", "America/Havana", "Africa/Cairo", "Asia/Beirut"])
def test_no_moment_is_between_two_days(zone: str) -> None:
    with in_zone(zone):
        for day in (date(2018, 1, 1) + timedelta(days=number) for number in range(9 * 365)):
            following = parse_times.parse_first_moment((day + timedelta(days=1)).isoformat(), "--before")
            assert 0 < following - parse_times.parse_last_moment(day.isoformat()) < 0.01, day


@pytest.mark.parametrize(
    ("text", "how", "one", "other"),
    [
        ("2026-10-25 02:30", "twice", "+02:00", "+01:00"),
        ("2026-03-29 02:30", "never", "+01:00", "+02:00"),
    ],
)
def test_a_time_that_was_twice_or_never_is_asked_for(
    in_berlin: None, text: str, how: str, one: str, other: str
) -> None:
    for read in (
        lambda: parse_times.parse_last_moment(text),
        lambda: parse_times.parse_first_moment(text, "--before"),
    ):
        with pytest.raises(typer.BadParameter, match=how) as refused:
            read()
        for offset in (one, other):
            assert f"'{text}{offset}'" in str(refused.value)
    first, second = (parse_times.parse_last_moment(f"{text}{offset}") for offset in (one, other))
    assert abs(first - second) == 3600
    parse_times.parse_last_moment("2026-10-25 03:30")


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "yesterday",
        "9",
        "2x ago",
        "-1d ago",
        "9999999999999d ago",
        "2026-02-30",
        "2026-11-21 25:00",
        "2026-11-21 09:30.5",
        "٢٠٢٦-١١-٢١",
        "9999-12-31",
        "0001-01-01",
        "1969-12-30",
    ],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a time"):
        parse_times.parse_last_moment(text)
