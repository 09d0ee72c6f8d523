from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from apscheduler.triggers.cron import CronTrigger
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.examples import cases
from zvault.core.policy.cron_schedule import CronSchedule, find_next_time, parse_schedule

BERLIN = ZoneInfo("Europe/Berlin")
SPRING = datetime(2026, 3, 29, tzinfo=BERLIN)  # 01:59 is followed by 03:00
AUTUMN = datetime(2026, 10, 25, tzinfo=BERLIN)  # 02:59 is followed by 02:00


def coming(text: str, after: datetime, zone: tzinfo = BERLIN) -> Iterator[datetime]:
    cron = parse_schedule(text)
    while True:
        after = find_next_time(cron, after, zone)
        yield after


def walls(text: str, after: datetime, count: int, zone: tzinfo = BERLIN) -> list[str]:
    return [one.strftime("%d %H:%M %z") for one in islice(coming(text, after, zone), count)]


def test_the_next_time_is_later_and_in_the_zone() -> None:
    at = datetime(2026, 11, 21, 9, tzinfo=UTC)
    found = find_next_time(parse_schedule("hourly"), at, BERLIN)
    assert found == at + timedelta(hours=1)
    assert found.tzinfo is BERLIN
    assert find_next_time(parse_schedule("hourly"), at - timedelta(microseconds=1), BERLIN) == at


@pytest.mark.parametrize(
    "text", ["daily", "30 0 * * *", "0 1 * * *", "30 2 * * *", "0 3 * * *", "59 23 * * *"]
)
@pytest.mark.parametrize("around", [SPRING, AUTUMN])
def test_a_daily_schedule_runs_once_on_every_day(text: str, around: datetime) -> None:
    days = [one.date() for one in islice(coming(text, around - timedelta(days=3)), 7)]
    assert all(after - before == timedelta(days=1) for before, after in pairwise(days))


def test_what_is_left_out_in_spring_comes_an_hour_later() -> None:
    assert walls("30 2 * * *", SPRING - timedelta(days=1), 3) == [
        "28 02:30 +0100",
        "29 03:30 +0200",
        "30 02:30 +0200",
    ]
    assert walls("*/20 * * * *", SPRING + timedelta(minutes=50), 4) == [
        "29 01:00 +0100",
        "29 01:20 +0100",
        "29 01:40 +0100",
        "29 03:00 +0200",
    ]
    assert walls("0 2,3 * * *", SPRING, 2) == ["29 03:00 +0200", "30 02:00 +0200"]


def test_what_comes_twice_in_autumn_runs_twice_only_if_it_runs_every_hour() -> None:
    assert walls("hourly", AUTUMN, 4) == [
        "25 01:00 +0200",
        "25 02:00 +0200",
        "25 02:00 +0100",
        "25 03:00 +0100",
    ]
    assert walls("*/30 * * * *", AUTUMN + timedelta(hours=2), 4) == [
        "25 02:30 +0200",
        "25 02:00 +0100",
        "25 02:30 +0100",
        "25 03:00 +0100",
    ]
    assert walls("30 2 * * *", AUTUMN, 2) == ["25 02:30 +0200", "26 02:30 +0100"]
    between = datetime(2026, 10, 25, 2, 10, tzinfo=BERLIN, fold=1)
    assert walls("30 2 * * *", between, 1) == ["26 02:30 +0100"]


def test_no_week_or_month_is_lost_to_the_clock() -> None:
    before = datetime(2026, 3, 27, 12, tzinfo=UTC)
    for text, expected in (("weekly", date(2026, 3, 30)), ("monthly", date(2026, 4, 1))):
        cron = parse_schedule(text)
        assert find_next_time(cron, before, BERLIN).date() == expected


@pytest.mark.parametrize(
    ("zone", "text", "after", "expected"),
    [
        # Midnight itself is left out in Santiago, comes twice in Havana.
        (
            "America/Santiago",
            "daily",
            datetime(2026, 9, 5, 12, tzinfo=UTC),
            ["06 01:00 -0300", "07 00:00 -0300"],
        ),
        (
            "America/Havana",
            "daily",
            datetime(2026, 10, 31, 12, tzinfo=UTC),
            ["01 00:00 -0400", "02 00:00 -0500"],
        ),
        # Put forward and back by half an hour.
        (
            "Australia/Lord_Howe",
            "15 2 * * *",
            datetime(2026, 10, 3, 0, tzinfo=UTC),
            ["04 02:45 +1100", "05 02:15 +1100"],
        ),
        (
            "Australia/Lord_Howe",
            "hourly",
            datetime(2026, 4, 4, 13, 40, tzinfo=UTC),
            ["05 01:00 +1100", "05 02:00 +1030"],
        ),
        # A whole day that never was.
        (
            "Pacific/Apia",
            "daily",
            datetime(2011, 12, 29, 12, tzinfo=UTC),
            ["31 00:00 +1400", "01 00:00 +1400"],
        ),
    ],
)
def test_odd_changes(zone: str, text: str, after: datetime, expected: list[str]) -> None:
    assert walls(text, after, len(expected), ZoneInfo(zone)) == expected


def test_a_leap_day_is_found_across_a_century() -> None:
    cron = parse_schedule("0 0 29 2 *")
    assert find_next_time(cron, datetime(2096, 2, 29, 1, tzinfo=UTC), UTC).date() == date(2104, 2, 29)


def test_a_schedule_that_never_comes_is_an_error_and_no_endless_search() -> None:
    with pytest.raises(ValueError, match="never comes"):
        find_next_time(CronSchedule("0", "0", "31", "2", "*"), AUTUMN, BERLIN)


# Against a walk over every minute, and where the clock does not change against APScheduler.

SCHEDULES = st.builds(
    "{} {} {} * {}".format,
    st.sampled_from(["*", "0", "*/20", "30", "15,45", "59"]),
    st.sampled_from(["*", "0", "2", "*/2", "1-3", "23", "0,12"]),
    st.just("*"),
    st.sampled_from(["*", "sun", "mon-fri", "sun,mon"]),
) | st.sampled_from(["hourly", "daily", "weekly", "monthly", "0 2 25-29 * *", "30 2 */2 3,10 *"])


def walked(cron: CronSchedule, after: datetime, zone: tzinfo) -> datetime:
    """The next time, found by going through the minutes one by one."""
    times = cron.times()
    shown: dict[datetime, list[datetime]] = {}  # what the wall shows -> the instants at which it shows it
    start = (after.astimezone(UTC) - timedelta(days=2)).replace(minute=0, second=0, microsecond=0)
    for number in range(60 * 24 * 6):
        instant = start + timedelta(minutes=number)
        shown.setdefault(instant.astimezone(zone).replace(tzinfo=None, fold=0), []).append(instant)
    wall, last = min(shown), max(shown)
    found, before = [], start - timedelta(minutes=1)
    jump = timedelta(0)
    while wall <= last:
        instants = shown.get(wall)
        if instants is None:  # left out: as much after the last shown minute as it would have been
            jump += timedelta(minutes=1)
            instants = [before + jump]
        else:
            before, jump = instants[-1], timedelta(0)
        if len(times.hours) < 24:
            instants = instants[:1]
        date_fits = wall.day in times.days and wall.month in times.months and wall.weekday() in times.weekdays
        if date_fits and wall.hour in times.hours and wall.minute in times.minutes:
            found += instants
        wall += timedelta(minutes=1)
    return min((one for one in found if one > after), default=datetime.max.replace(tzinfo=UTC))


@settings(max_examples=cases(40))
@given(
    SCHEDULES,
    st.sampled_from([SPRING, AUTUMN, datetime(2026, 11, 21, tzinfo=UTC)]),
    st.integers(-2 * 86400, 2 * 86400),
    st.sampled_from([BERLIN, ZoneInfo("Australia/Lord_Howe"), UTC]),
)
def test_it_agrees_with_a_walk_over_every_minute(
    text: str, around: datetime, seconds: int, zone: tzinfo
) -> None:
    cron = parse_schedule(text)
    after = around.astimezone(UTC) + timedelta(seconds=seconds)
    expected = walked(cron, after, zone)
    found = find_next_time(cron, after, zone)
    if expected.year < 9999:
        # In UTC: where the clock is put back, Python calls equal times of two zones unequal (PEP 495).
        assert found.astimezone(UTC) == expected
    else:
        assert found > after + timedelta(days=3)


@given(SCHEDULES, st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC)))
def test_it_agrees_with_apscheduler_where_the_clock_does_not_change(text: str, after: datetime) -> None:
    cron = parse_schedule(text)
    trigger = CronTrigger(**cron.fields(), timezone=UTC)
    assert find_next_time(cron, after, UTC) == trigger.get_next_fire_time(
        None, after + timedelta(microseconds=1)
    )
