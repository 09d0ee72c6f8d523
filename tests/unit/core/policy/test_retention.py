"""Retention against a brute force that reads the rules one snapshot at a time, and against its invariants."""

import random
from dataclasses import fields, replace
from datetime import UTC, datetime, tzinfo
from fnmatch import fnmatchcase
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.policy.retention_rules import (
    NOW,
    PERIODS,
    ZONES,
    Case,
    cases,
    judge,
    kept,
    label_period,
    ours,
    reasons,
    run,
    snap,
)
from zvault.core.dates import CLOCK_TOLERANCE
from zvault.core.model import Snapshot
from zvault.core.policy.retention import KeepRules, decide_retention, order_by_prune
from zvault.core.policy.snapshot_dates import AHEAD_OF_TIME, LARGEST_RANK

WITNESS = "shows that "


# The brute force: what the configuration's words mean, for one snapshot, with no regard to cost.


def brute_ranks(among: list[Snapshot], now: float) -> dict[Snapshot, int]:
    """The length of the longest chain of snapshots, each older by txg and dated later than the next, that ends here."""
    found: dict[Snapshot, int] = {}
    for one in sorted(filter(ours, among), key=lambda one: one.createtxg):
        above = [rank for other, rank in found.items() if other.creation > one.creation]
        chain = max((rank + 1 for rank in above if rank <= LARGEST_RANK), default=0)
        found[one] = AHEAD_OF_TIME if one.creation > now + CLOCK_TOLERANCE else min(LARGEST_RANK, chain)
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
    set_rules = replace(rules, matching=(), periods=tuple(period for period in rules.periods if period[1]))
    if not ours(one) or one.guid in protected or set_rules == KeepRules():
        return True
    if any(fnmatchcase(one.snapname, pattern) for pattern in rules.matching):
        return True
    newer = [other for other in among if ours(other) and other.createtxg > one.createtxg]
    if not newer or len(newer) < rules.last:
        return True
    if rules.within and one.creation >= now - rules.within:
        return True
    counted = [(label, getattr(rules, name)) for name, label in PERIODS.items()]
    counted += [(partial(label_period, length), count) for length, count in rules.periods]
    for label, count in counted:
        later_periods = {label(datetime.fromtimestamp(other.creation, zone)) for other in newer}
        period = label(datetime.fromtimestamp(one.creation, zone))
        if period not in later_periods and len(later_periods) < count:
            return True
    return False


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
    to_go = [verdict.snapshot for verdict in order_by_prune(judge(case))]
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
    if rule == "matching":
        larger = replace(rules, matching=(*old, f"*{more}"))
    elif rule == "periods":
        larger = replace(rules, periods=(*((length, count + more) for length, count in old), (7260, more)))
    else:
        larger = replace(rules, **{rule: old + more})
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
        each = kept(decide_retention(each, rules, now=now, zone=zone, protected={}, ours=ours))
        some = kept(decide_retention(some, rules, now=now, zone=zone, protected={}, ours=ours, lasting=True))
        assert {state[one.createtxg] for one in each} <= {state[one.createtxg] for one in some}


def test_what_stood_when_within_began_is_kept_only_where_snapshots_last():
    rules = KeepRules(within=3600)
    old, older, new = snap(2, NOW - 7200), snap(1, NOW - 9000), snap(3, NOW - 60)
    assert kept(run([older, old, new], rules)) == [new]
    verdicts = decide_retention(
        [older, old, new], rules, now=NOW, zone=UTC, protected={}, ours=ours, lasting=True
    )
    assert kept(verdicts) == [old, new]
    assert reasons(verdicts)["z2"] == "stood when the last 1h began"
