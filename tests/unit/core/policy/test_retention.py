"""Retention against a brute force that reads the rules one snapshot at a time, and against its invariants."""

import random
import time
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from fnmatch import fnmatchcase
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.believed import TOLERANCE
from zvault.core.model import Snapshot
from zvault.core.names import DatasetName
from zvault.core.policy.dates import AHEAD_OF_TIME, DEEPEST
from zvault.core.policy.retention import KeepDecision, KeepRules, decide, in_order

BERLIN = ZoneInfo("Europe/Berlin")
ZONES = (
    UTC,
    BERLIN,
    ZoneInfo("America/New_York"),
    ZoneInfo("Australia/Lord_Howe"),  # put forward and back by half an hour
    ZoneInfo("Asia/Kathmandu"),
    timezone(timedelta(hours=-9, minutes=-30)),
)
WITNESS = "shows that "
NOW = datetime(2026, 11, 21, 9, tzinfo=UTC).timestamp()


def ours(snapshot: Snapshot) -> bool:
    return snapshot.snapname.startswith("z")


def snap(number: int, creation: float | datetime, snapname: str = "z") -> Snapshot:
    seconds = creation.timestamp() if isinstance(creation, datetime) else creation
    return Snapshot(DatasetName("tank/a"), f"{snapname}{number}", 10_000 + number, number, int(seconds))


def series(start: datetime, step: timedelta, count: int) -> list[Snapshot]:
    # Steps of real time, which sums of zoned datetimes are not.
    return [snap(number, start.timestamp() + number * step.total_seconds()) for number in range(count)]


def run(
    snapshots: list[Snapshot],
    rules: KeepRules,
    *,
    now: float = NOW,
    zone: tzinfo = UTC,
    protected: dict[int, str] | None = None,
) -> list[KeepDecision]:
    return decide(snapshots, rules, now=now, zone=zone, protected=protected or {}, ours=ours)


def kept(verdicts: list[KeepDecision]) -> list[Snapshot]:
    return [verdict.snapshot for verdict in verdicts if verdict.keep]


def reasons(verdicts: list[KeepDecision]) -> dict[str, str]:
    return {verdict.snapshot.snapname: verdict.reason for verdict in verdicts}


# The brute force: what the configuration's words mean, for one snapshot, with no regard to cost.

PERIODS: dict[str, Callable[[datetime], str]] = {
    "hourly": lambda local: local.strftime("%Y-%m-%d %H %z"),
    "daily": lambda local: local.strftime("%Y-%m-%d"),
    "weekly": lambda local: local.strftime("%G-%V"),
    "monthly": lambda local: local.strftime("%Y-%m"),
    "yearly": lambda local: local.strftime("%Y"),
}


def brute_ranks(among: list[Snapshot], now: float) -> dict[Snapshot, int]:
    """The length of the longest chain of snapshots, each older by txg and dated later than the next, that ends here."""
    found: dict[Snapshot, int] = {}
    for one in sorted(filter(ours, among), key=lambda one: one.createtxg):
        above = [rank for other, rank in found.items() if other.creation > one.creation]
        chain = max((rank + 1 for rank in above if rank <= DEEPEST), default=0)
        found[one] = AHEAD_OF_TIME if one.creation > now + TOLERANCE else min(DEEPEST, chain)
    return found


def brute_keeps(
    one: Snapshot,
    among: list[Snapshot],
    rules: KeepRules,
    now: float,
    zone: tzinfo,
    protected: dict[int, str],
) -> bool:
    """Whether a rule keeps it; what stays only as a witness does not count."""
    if ours(one):
        ranks = brute_ranks(among, now)
        among = [other for other, rank in ranks.items() if rank <= ranks[one]]
    if not ours(one) or one.guid in protected or replace(rules, matching=()) == KeepRules():
        return True
    if any(fnmatchcase(one.snapname, pattern) for pattern in rules.matching):
        return True
    newer = [other for other in among if ours(other) and other.createtxg > one.createtxg]
    if not newer or len(newer) < rules.last:
        return True
    if rules.within and one.creation >= now - rules.within:
        return True
    for name, label in PERIODS.items():
        later_periods = {label(datetime.fromtimestamp(other.creation, zone)) for other in newer}
        period = label(datetime.fromtimestamp(one.creation, zone))
        if period not in later_periods and len(later_periods) < getattr(rules, name):
            return True
    return False


# What hypothesis draws: around the nights of a change, in gaps of minutes to months, with clocks that were set.

STARTS = [
    datetime(2026, 10, 24, 20, tzinfo=UTC),
    datetime(2026, 3, 28, 20, tzinfo=UTC),
    datetime(2026, 4, 4, 10, tzinfo=UTC),
    datetime(2020, 12, 27, 22, tzinfo=UTC),
]
GAPS = st.one_of(
    st.integers(0, 5400),
    st.sampled_from([900, 3600, 86400]),
    st.integers(0, 86400 * 60),
    st.integers(-86400 * 3, 0),
)


@st.composite
def histories(draw: st.DrawFn) -> list[Snapshot]:
    moment = draw(st.sampled_from(STARTS)).timestamp()
    snapshots = []
    for number, gap in enumerate(draw(st.lists(GAPS, max_size=30)), start=1):
        moment += gap
        snapshots.append(snap(number, moment, draw(st.sampled_from(["z", "z", "z", "user-"]))))
    return draw(st.permutations(snapshots))


counts = st.integers(0, 6)
rules_drawn = st.builds(
    KeepRules,
    last=counts,
    within=st.sampled_from([0.0, 3600.0, 86400.0, 86400.0 * 40]),
    hourly=counts,
    daily=counts,
    weekly=counts,
    monthly=counts,
    yearly=counts,
    matching=st.sampled_from([(), (), ("z*7",), ("z1*", "nothing"), ("Z*",), ("user-*",), ("*",)]),
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Snapshot], KeepRules, float, tzinfo, dict[int, str]]:
    snapshots = draw(histories())
    newest = max((one.creation for one in snapshots), default=int(NOW))
    protected = draw(st.sets(st.sampled_from(snapshots))) if snapshots else set()
    return (
        snapshots,
        draw(rules_drawn),
        newest + draw(st.integers(-7200, 86400)),
        draw(st.sampled_from(ZONES)),
        {one.guid: f"base of {one.snapname}" for one in protected},
    )


Case = tuple[list[Snapshot], KeepRules, float, tzinfo, dict[int, str]]


def judge(case: Case) -> list[KeepDecision]:
    snapshots, rules, now, zone, protected = case
    return run(snapshots, rules, now=now, zone=zone, protected=protected)


@given(cases())
def test_it_agrees_with_the_brute_force(case: Case) -> None:
    snapshots, rules, now, zone, protected = case
    expected = [brute_keeps(one, snapshots, rules, now, zone, protected) for one in snapshots]
    verdicts = judge(case)
    assert [verdict.snapshot for verdict in verdicts] == snapshots
    by_rule = [verdict.keep and not verdict.reason.startswith(WITNESS) for verdict in verdicts]
    assert by_rule == expected
    ranks = brute_ranks(snapshots, now)
    assert [verdict.rank for verdict in verdicts] == [ranks.get(one, 0) for one in snapshots]
    assert all(verdict.reason for verdict in verdicts)


@given(cases())
def test_what_is_protected_is_never_pruned_and_says_why(case: Case) -> None:
    protected = case[-1]
    for verdict in judge(case):
        if verdict.snapshot.guid in protected:
            assert (verdict.keep, verdict.reason) == (True, protected[verdict.snapshot.guid])


@given(cases())
def test_what_is_not_ours_is_never_pruned(case: Case) -> None:
    assert all(verdict.keep for verdict in judge(case) if not ours(verdict.snapshot))


@given(cases())
def test_the_newest_of_ours_is_never_pruned(case: Case) -> None:
    newest = max(filter(ours, case[0]), key=lambda one: one.createtxg, default=None)
    assert newest is None or newest in kept(judge(case))


@given(cases(), st.randoms())
def test_pruning_may_be_cut_short_and_repeated(case: Case, chance: random.Random) -> None:
    snapshots, *rest = case
    final = kept(judge(case))
    # Some of what was to go is gone, in the order in which it goes, the rest is still there.
    to_go = [verdict.snapshot for verdict in in_order(judge(case))]
    gone = to_go[: chance.randint(0, len(to_go))]
    left = [one for one in snapshots if one not in gone]
    assert kept(judge((left, *rest))) == final
    assert kept(judge((final, *rest))) == final


@given(cases(), st.sampled_from([rule.name for rule in fields(KeepRules)]), st.integers(1, 5))
def test_more_rules_never_prune_more(case: Case, rule: str, more: int) -> None:
    snapshots, rules, *rest = case
    if rules.empty:
        return
    old = getattr(rules, rule)
    larger = replace(rules, **{rule: (*old, f"*{more}") if rule == "matching" else old + more})
    assert set(kept(judge(case))) <= set(kept(judge((snapshots, larger, *rest))))


@given(cases())
def test_pruning_after_every_snapshot_comes_to_the_same_as_pruning_once(case: Case) -> None:
    snapshots, rules, now, zone, protected = case
    if rules.empty or any(verdict.rank for verdict in judge(case)):
        return
    rules = replace(rules, within=0.0)  # the moment of each decision is the same for all else
    left: list[Snapshot] = []
    for one in sorted(snapshots, key=lambda one: one.createtxg):
        left = kept(judge(([*left, one], rules, now, zone, protected)))
    assert set(left) == set(kept(judge((snapshots, rules, now, zone, protected))))


@given(cases())
def test_no_rules_keep_everything(case: Case) -> None:
    snapshots, _, *rest = case
    assert kept(judge((snapshots, KeepRules(), *rest))) == snapshots


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


@pytest.mark.parametrize(
    "rules",
    [
        KeepRules(last=3, hourly=24, daily=30, weekly=8, monthly=12, yearly=3),
        KeepRules(within=1e9, hourly=10**6, daily=10**6, weekly=10**6, monthly=10**6, yearly=10**6),
    ],
)
def test_a_hundred_thousand_snapshots_take_no_quadratic_time(rules: KeepRules) -> None:
    snapshots = series(datetime(2024, 1, 1, tzinfo=UTC), timedelta(minutes=10), 100_000)
    random.Random(1).shuffle(snapshots)
    protected = {one.guid: "held" for one in snapshots[::100]}
    started = time.process_time()
    run(snapshots, rules, zone=BERLIN, protected=protected)
    assert time.process_time() - started < 5  # about half a second; quadratic would be hours


# Where no snapshot is made while nothing changes

WITHIN = st.sampled_from([3 * 3600.0, 50 * 3600.0, 200 * 3600.0])
SOME_RULES = st.one_of(
    st.builds(KeepRules, within=WITHIN),
    *(st.builds(KeepRules, **{rule: st.integers(1, 5)}) for rule in ("last", *PERIODS)),
    st.builds(
        KeepRules, within=WITHIN, last=st.integers(0, 3), daily=st.integers(0, 4), weekly=st.integers(0, 2)
    ),
)


@given(
    SOME_RULES,
    st.lists(st.tuples(st.integers(1, 60), st.booleans()), min_size=3, max_size=30),
    st.sampled_from(ZONES),
)
def test_lasting_snapshots_keep_each_state_that_a_snapshot_each_hour_would_keep(
    rules: KeepRules, hours: list[tuple[int, bool]], zone: tzinfo
) -> None:
    """One tool snapshots in each run, one only what changed; both prune after each run. ``hours`` are the gaps between
    runs, and whether anything changed.
    """
    each: list[Snapshot] = []
    some: list[Snapshot] = []
    state: dict[int, int] = {}  # by the number of a snapshot of either tool, which state it has
    now = NOW
    for number, (gap, changed) in enumerate(hours, 1):
        now += gap * 3600
        version = number if changed or number == 1 else state[number - 1]
        state[number] = version
        each.append(snap(number, now))
        if version == number:
            some.append(snap(number, now))
        each = kept(decide(each, rules, now=now, zone=zone, protected={}, ours=ours))
        some = kept(decide(some, rules, now=now, zone=zone, protected={}, ours=ours, lasting=True))
        assert {state[one.createtxg] for one in each} <= {state[one.createtxg] for one in some}


def test_what_stood_when_within_began_is_kept_only_where_snapshots_last():
    rules = KeepRules(within=3600)
    old, older, new = snap(2, NOW - 7200), snap(1, NOW - 9000), snap(3, NOW - 60)
    assert kept(run([older, old, new], rules)) == [new]
    verdicts = decide([older, old, new], rules, now=NOW, zone=UTC, protected={}, ours=ours, lasting=True)
    assert kept(verdicts) == [old, new]
    assert reasons(verdicts)["z2"] == "stood when the last 1h began"
