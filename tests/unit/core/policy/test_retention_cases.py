"""Retention, case by case: what is kept and why, over changes of the clock, and where snapshots last."""

import functools
import random
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.unit.core.policy.retention_rules import BERLIN, NOW, kept, reasons, run, snap
from zvault.core.model import Snapshot
from zvault.core.policy.retention import KeepRules


def series(start: datetime, step: timedelta, count: int) -> list[Snapshot]:
    # Steps of real time, which sums of zoned datetimes are not.
    return [snap(number, start.timestamp() + number * step.total_seconds()) for number in range(count)]


# Reasons, one by one


def test_every_verdict_says_why() -> None:
    day = datetime(2026, 11, 21, 9, 5, tzinfo=UTC)
    snapshots = [
        snap(1, day - timedelta(days=400)),
        snap(2, day - timedelta(days=40)),
        snap(3, day - timedelta(days=20)),
        snap(4, day - timedelta(days=12)),
        snap(5, day - timedelta(days=2)),
        snap(6, day - timedelta(minutes=200)),
        snap(7, day - timedelta(minutes=190)),
        snap(8, day - timedelta(minutes=65)),
        snap(9, day - timedelta(minutes=20)),
        snap(10, day, snapname="by-hand-"),
        snap(11, day),
    ]
    rules = KeepRules(last=1, within=1800.0, hourly=3, daily=2, weekly=3, monthly=2, yearly=2)
    assert reasons(run(snapshots, rules, now=day.timestamp(), protected={10_004: "base of cold"})) == {
        "z1": "yearly 2025",
        "z2": "monthly 2026-10",
        "z3": "weekly 2026-W44",
        "z4": "base of cold",
        "z5": "daily 2026-11-19",
        "z6": "no rule keeps it",
        "z7": "hourly 2026-11-21 05:00",
        "z8": "no rule keeps it",
        "z9": "made within the last 30m",
        "by-hand-10": "not made by zvault",
        "z11": "the last one",
    }


def test_last_counts_ours_only() -> None:
    snapshots = [snap(1, 0), snap(2, 10), snap(3, 20, snapname="by-hand-"), snap(4, 30)]
    verdicts = run(snapshots, KeepRules(last=2))
    assert reasons(verdicts) == {
        "z1": "no rule keeps it",
        "z2": "one of the last 2",
        "by-hand-3": "not made by zvault",
        "z4": "one of the last 2",
    }


def test_rules_that_keep_nothing_keep_the_newest() -> None:
    old = [snap(1, NOW - 9e6), snap(2, NOW - 8e6)]
    assert reasons(run(old, KeepRules(within=60.0))) == {"z1": "no rule keeps it", "z2": "the newest"}


def test_no_rules_say_so() -> None:
    assert reasons(run([snap(1, 0)], KeepRules())) == {"z1": "no keep rules are set"}
    assert run([], KeepRules(last=1)) == []


def test_a_protected_snapshot_takes_its_place_among_the_last() -> None:
    snapshots = [snap(1, 0), snap(2, 10), snap(3, 20)]
    assert kept(run(snapshots, KeepRules(last=1), protected={10_003: "held"})) == [snapshots[2]]


def test_an_empty_reason_protects_too() -> None:
    snapshots = [snap(1, 0), snap(2, 10)]
    assert kept(run(snapshots, KeepRules(last=1), protected={10_001: ""})) == snapshots


def test_within_reaches_back_from_now_and_includes_its_edge() -> None:
    snapshots = [snap(1, NOW - 3601), snap(2, NOW - 3600), snap(3, NOW - 1), snap(4, NOW + 60)]
    assert kept(run(snapshots, KeepRules(within=3600.0))) == snapshots[1:]


def test_a_snapshot_from_a_clock_that_was_ahead_is_not_the_newest_for_ever() -> None:
    snapshots = [snap(1, NOW), snap(2, NOW + 4e8), snap(3, NOW + 60)]
    assert kept(run(snapshots, KeepRules(last=1))) == [snapshots[2]]


def test_snapshots_of_two_datasets_are_refused() -> None:
    with pytest.raises(ValueError, match="one dataset at a time"):
        run([snap(1, 0), replace(snap(2, 10), dataset="tank/b")], KeepRules(last=1))


@pytest.mark.parametrize("wrong", [{"last": -1}, {"daily": -3}, {"within": -0.5}, {"within": float("nan")}])
def test_rules_below_zero_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        KeepRules(**wrong)  # type: ignore[arg-type]


def test_what_matches_is_kept_for_ever_and_says_by_which_pattern() -> None:
    snapshots = [snap(1, 0), snap(2, 10), snap(3, 20), snap(4, 30)]
    verdicts = run(snapshots, KeepRules(last=1, matching=("z?2", "*1", "Z3")))
    assert reasons(verdicts) == {
        "z1": "matches *1",
        "z2": "no rule keeps it",
        "z3": "no rule keeps it",
        "z4": "the last one",
    }


def test_a_pattern_alone_prunes_nothing() -> None:
    """Whoever writes only what to keep for ever has not said that all else may go."""
    snapshots = [snap(1, 0), snap(2, 10), snap(3, 20)]
    assert kept(run(snapshots, KeepRules(matching=("z1",)))) == snapshots


# The calendar, where it is odd


def test_the_hour_that_comes_twice_in_autumn_is_two_hours() -> None:
    # 2026-10-25 in Berlin has 25 hours: at 03:00 summer time it is 02:00 again.
    day = series(datetime(2026, 10, 25, tzinfo=BERLIN), timedelta(hours=1), 25)
    assert datetime.fromtimestamp(day[-1].creation, BERLIN) == datetime(2026, 10, 25, 23, tzinfo=BERLIN)
    verdicts = run(day, KeepRules(hourly=25), zone=BERLIN)
    assert kept(verdicts) == day
    assert [verdict.reason for verdict in verdicts[1:5]] == [
        "hourly 2026-10-25 01:00",
        "hourly 2026-10-25 02:00 (UTC+0200)",
        "hourly 2026-10-25 02:00 (UTC+0100)",
        "hourly 2026-10-25 03:00",
    ]
    assert kept(run(day, KeepRules(daily=2), zone=BERLIN)) == [day[-1]]


def test_the_hour_that_is_left_out_in_spring_is_none() -> None:
    # 2026-03-29 in Berlin has 23 hours: after 01:59 comes 03:00.
    day = series(datetime(2026, 3, 29, tzinfo=BERLIN), timedelta(minutes=30), 46)
    assert datetime.fromtimestamp(day[-1].creation, BERLIN) == datetime(2026, 3, 29, 23, 30, tzinfo=BERLIN)
    verdicts = run(day, KeepRules(hourly=23), zone=BERLIN)
    assert kept(verdicts) == day[1::2]
    assert [verdict.reason for verdict in verdicts[1:6:2]] == [
        "hourly 2026-03-29 00:00",
        "hourly 2026-03-29 01:00",
        "hourly 2026-03-29 03:00",
    ]


@pytest.mark.parametrize(
    "start", [datetime(2026, 3, 20, 12, tzinfo=UTC), datetime(2026, 10, 16, 12, tzinfo=UTC)]
)
def test_one_a_day_across_a_change_of_the_clock(start: datetime) -> None:
    snapshots = series(start, timedelta(hours=1), 24 * 20)
    days = [
        datetime.fromtimestamp(one.creation, BERLIN)
        for one in kept(run(snapshots, KeepRules(daily=15), zone=BERLIN))
    ]
    assert [day.date() for day in days] == [days[0].date() + timedelta(days=more) for more in range(15)]
    assert {day.hour for day in days[:-1]} == {23}


def test_a_day_begins_at_the_zones_own_midnight() -> None:
    snapshots = [
        snap(1, datetime(2026, 11, 20, 22, 30, tzinfo=UTC)),
        snap(2, datetime(2026, 11, 20, 23, 30, tzinfo=UTC)),
    ]
    assert len(kept(run(snapshots, KeepRules(daily=2), zone=UTC))) == 1
    assert len(kept(run(snapshots, KeepRules(daily=2), zone=BERLIN))) == 2


def test_weeks_are_iso_weeks_also_at_the_turn_of_the_year() -> None:
    noon = datetime(2026, 12, 27, 12, tzinfo=UTC)  # a Sunday
    snapshots = series(noon, timedelta(days=1), 9)
    verdicts = run(snapshots, KeepRules(weekly=3), zone=UTC)
    assert {verdict.snapshot.snapname: verdict.reason for verdict in verdicts if verdict.keep} == {
        "z0": "weekly 2026-W52",
        "z7": "weekly 2026-W53",
        "z8": "weekly 2027-W01",
    }


def test_only_periods_that_hold_a_snapshot_count() -> None:
    # A laptop that was away for months loses nothing by it.
    snapshots = [snap(1, NOW - 300 * 86400), snap(2, NOW - 200 * 86400), snap(3, NOW)]
    assert kept(run(snapshots, KeepRules(daily=3))) == snapshots


@functools.cache
def many() -> list[Snapshot]:
    snapshots = series(datetime(2024, 1, 1, tzinfo=UTC), timedelta(minutes=10), 100_000)
    random.Random(1).shuffle(snapshots)
    return snapshots


@pytest.mark.parametrize(
    "rules",
    [
        KeepRules(last=3, hourly=24, daily=30, weekly=8, monthly=12, yearly=3),
        KeepRules(within=1e9, hourly=10**6, daily=10**6, weekly=10**6, monthly=10**6, yearly=10**6),
    ],
)
def test_a_hundred_thousand_snapshots_take_no_quadratic_time(rules: KeepRules) -> None:
    snapshots = many()
    protected = {one.guid: "held" for one in snapshots[::100]}

    def seconds(count: int) -> float:
        started = time.process_time()
        run(snapshots[:count], rules, zone=BERLIN, protected=protected)
        return time.process_time() - started

    assert seconds(100_000) < 40 * seconds(10_000), (
        "ten times as many take some ten times as long, not a hundred"
    )


def test_periods_of_any_length_begin_at_midnight_or_on_monday() -> None:
    zone = BERLIN
    monday = datetime(2026, 11, 23, tzinfo=zone)
    at = [monday + timedelta(hours=hour) for hour in (5, 6, 11.5, 12, 18, 23.9, 24, 30)]
    snapshots = [snap(number, one.timestamp()) for number, one in enumerate(at, 1)]
    told = reasons(run(snapshots, KeepRules(periods=((6 * 3600, 4),)), now=at[-1].timestamp(), zone=zone))
    assert told == {
        "z1": "no rule keeps it",
        "z2": "no rule keeps it",
        "z3": "no rule keeps it",
        "z4": "every 6h: 2026-11-23 12:00",
        "z5": "no rule keeps it",
        "z6": "every 6h: 2026-11-23 18:00",
        "z7": "every 6h: 2026-11-24 00:00",
        "z8": "every 6h: 2026-11-24 06:00",
    }
    fortnights = [snap(number, (monday + timedelta(days=7 * number)).timestamp()) for number in range(1, 7)]
    told = reasons(run(fortnights, KeepRules(periods=((14 * 86400, 2),)), now=2e9, zone=zone))
    assert [text for text in told.values() if text != "no rule keeps it"] == [
        "every 14d: 2026-12-21 00:00",
        "every 14d: 2027-01-04 00:00",
    ]


@pytest.mark.parametrize("periods", [((30, 1),), ((90, 1),), ((60, -1),), ((60, 1), (60, 2))])
def test_a_period_has_whole_minutes_and_stands_once(periods: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ValueError, match="whole minutes, and none twice"):
        KeepRules(periods=periods)
