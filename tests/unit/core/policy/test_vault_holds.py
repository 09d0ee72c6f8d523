"""What is held on a vault: after any number of runs just what is to be, whatever became of the runs between."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.policy.retention_rules import (
    ZONES,
    Case,
    cases,
    judge,
    kept,
    ours,
    rules_drawn,
    run,
    snap,
)
from zvault.core.model import Snapshot
from zvault.core.policy.prune_limit import find_prune_excess, limit_prune
from zvault.core.policy.retention import LONG_RULES, KeepDecision, KeepRules
from zvault.core.policy.vault_holds import RECENT_SNAPSHOTS, select_possibly_held, select_snapshots_to_hold

HOUR = 3600
START = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp())


def brought(snapshot: Snapshot) -> bool:
    return ours(snapshot) or snapshot.snapname.startswith("also-")


@given(cases())
def test_long_is_what_the_long_rules_alone_would_keep(case: Case) -> None:
    snapshots, rules, now, zone, _ = case
    alone = replace(rules, last=0, within=0.0, hourly=0, daily=0, matching=(), periods=())
    expected = {
        one.snapshot.guid
        for one in run(snapshots, alone, now=now, zone=zone)
        if one.reason.split()[0] in LONG_RULES
    }
    assert {one.snapshot.guid for one in judge(case) if one.long} == expected


@given(cases())
def test_held_is_the_newest_and_what_a_long_rule_keeps_and_all_of_it_stays(case: Case) -> None:
    verdicts = judge(case)
    mine = [one for one in case[0] if ours(one)]
    newest = max(mine, key=lambda one: one.createtxg, default=None)
    held = select_snapshots_to_hold(verdicts, ours)
    assert {one.guid for one in held} == {
        one.snapshot.guid for one in verdicts if one.long or one.snapshot == newest
    }
    assert set(held) <= set(kept(verdicts))


def test_what_also_sends_may_be_the_newest_and_what_others_made_is_not() -> None:
    snapshots = [snap(1, 10), snap(2, 20, "also-"), snap(3, 30, "mine-")]
    assert select_snapshots_to_hold(run(snapshots, KeepRules()), brought) == [snapshots[1]]
    assert select_snapshots_to_hold([], brought) == []


@dataclass
class Vault:
    """One dataset on a vault, over many runs."""

    zone: tzinfo
    snapshots: list[Snapshot] = field(default_factory=list)
    held: set[int] = field(default_factory=set)
    number: int = 0
    now: float = START

    def run(self, gaps: list[int], rules: KeepRules, share: float, cut_off: bool) -> None:
        """Snapshots arrive; then their holds are moved and what may go goes, unless the run is cut off before."""
        arrived = set()
        for gap in gaps:
            self.number += 1
            self.now += gap
            self.snapshots.append(snap(self.number, self.now))
            arrived.add(self.snapshots[-1].guid)
        if not cut_off:
            verdicts = run(self.snapshots, rules, now=max(START, self.now), zone=self.zone)
            self.move(verdicts, arrived)
            over = find_prune_excess(verdicts, share, ours, arrived)
            left = kept(limit_prune(verdicts, over, arrived))
            assert self.held <= {one.guid for one in left}, "what is held could not be pruned"
            self.snapshots = left

    def move(self, verdicts: list[KeepDecision], arrived: set[int]) -> None:
        wanted = {one.guid for one in select_snapshots_to_hold(verdicts, ours)}
        asked = {one.guid for one in select_possibly_held(verdicts, ours, ours, self.zone, arrived)}
        assert wanted <= asked
        self.held = (self.held | wanted) - (asked & self.held - wanted)


GAPS = st.lists(st.sampled_from([60, HOUR, 5 * HOUR, 24 * HOUR, 7 * 24 * HOUR, 40 * 24 * HOUR]), max_size=15)
RUNS = st.lists(st.tuples(GAPS, st.floats(0.1, 1.0), st.booleans(), st.booleans()), min_size=1, max_size=12)


@given(RUNS, rules_drawn, rules_drawn, st.sampled_from(ZONES))
def test_after_each_run_that_ends_exactly_that_is_held(
    runs: list[tuple[list[int], float, bool, bool]], rules: KeepRules, others: KeepRules, zone: tzinfo
) -> None:
    """Also where runs were cut off in between, or the rules were changed."""
    vault, since, most = Vault(zone), 0, 0
    for gaps, share, other, cut_off in runs:
        active = others if other else rules
        vault.run(gaps, active, share, cut_off)
        since = since + len(gaps) if cut_off else 0
        most = max(most, since)
        if cut_off:
            continue
        verdicts = run(vault.snapshots, active, now=vault.now, zone=zone)
        wanted = {one.guid for one in select_snapshots_to_hold(verdicts, ours)}
        by_rule = {one.snapshot.guid for one in verdicts if one.keep}
        assert wanted <= vault.held <= by_rule
    if most < RECENT_SNAPSHOTS:  # nothing is forgotten but where so many came in runs that were cut off
        vault.run([], rules, 1.0, False)
        verdicts = run(vault.snapshots, rules, now=vault.now, zone=zone)
        assert vault.held == {one.guid for one in select_snapshots_to_hold(verdicts, ours)}


@given(
    st.lists(st.tuples(st.lists(st.integers(-100, 100), max_size=8), st.booleans()), max_size=8), rules_drawn
)
def test_whatever_dates_a_source_makes_up_what_is_held_is_kept(
    runs: list[tuple[list[int], bool]], rules: KeepRules
) -> None:
    vault = Vault(UTC)
    for days, cut_off in runs:
        vault.run([day * 24 * HOUR for day in days], rules, 0.5, cut_off)
        if not cut_off:
            verdicts = run(vault.snapshots, rules, now=max(START, vault.now), zone=UTC)
            assert {one.guid for one in select_snapshots_to_hold(verdicts, ours)} <= vault.held
            assert vault.held <= {one.snapshot.guid for one in verdicts if one.keep}


@pytest.mark.parametrize("count", [100, 1000])
def test_of_a_long_history_few_are_asked(count: int) -> None:
    snapshots = [snap(number, START + number * HOUR) for number in range(count)]
    rules = KeepRules(hourly=count, weekly=8, monthly=12)
    asked = select_possibly_held(run(snapshots, rules), ours, ours, UTC)
    assert len(asked) <= RECENT_SNAPSHOTS + count // (7 * 24) + count // (28 * 24) + 4
