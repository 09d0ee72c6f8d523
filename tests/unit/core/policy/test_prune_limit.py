"""The limit of one run's pruning: it never takes more than its share, and it always comes to an end."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.policy.retention_rules import Case, cases, judge, kept, ours, run, snap
from zvault.core.model import Snapshot
from zvault.core.policy.prune_limit import ALWAYS_PRUNABLE, find_prune_excess, limit_prune
from zvault.core.policy.retention import KeepDecision, KeepRules, order_by_prune

HOUR = 3600
DAY = 24 * HOUR
START = datetime(2026, 3, 1, tzinfo=UTC).timestamp()

SHARES = st.floats(0.01, 1.0)


def pruned(
    verdicts: list[KeepDecision], share: float, arrived: frozenset[int] = frozenset()
) -> list[Snapshot]:
    """What is left after a run that keeps to the limit."""
    return kept(limit_prune(verdicts, find_prune_excess(verdicts, share, ours, arrived), arrived))


@given(cases(), SHARES, st.sets(st.integers(0, 40)))
def test_no_run_prunes_more_than_its_share_of_what_was_there_before(
    case: Case, share: float, numbers: set[int]
) -> None:
    arrived = frozenset(10_000 + number for number in numbers)
    left = pruned(judge(case), share, arrived)
    before = [one for one in case[0] if ours(one) and one.guid not in arrived]
    gone = [one for one in before if one not in left]
    assert len(gone) <= max(ALWAYS_PRUNABLE, share * len(before) + 1e-6)
    # The worst dated first, then the oldest.
    to_go = [verdict.snapshot for verdict in order_by_prune(judge(case)) if verdict.snapshot in before]
    assert set(gone) == set(to_go[: len(gone)])


@given(cases(), SHARES)
def test_repeated_runs_end_with_exactly_what_the_rules_keep(case: Case, share: float) -> None:
    snapshots, *rest = case
    final = kept(judge(case))
    left = snapshots
    for _ in range(len(snapshots) + 1):
        before, left = left, pruned(judge((left, *rest)), share)
        assert set(final) <= set(left)
        assert left == final or len(left) < len(before)
    assert left == final
    assert find_prune_excess(judge((left, *rest)), share, ours) is None


@given(cases(), SHARES)
def test_what_arrives_in_the_run_costs_nothing_that_was_there_more_than_the_limit_allows(
    case: Case, share: float
) -> None:
    """However many snapshots a source sends, the allowance is that of what was there."""
    snapshots, rules, now, zone, protected = case
    count = sum(map(ours, snapshots))
    many = [snap(number, now, "z") for number in range(1_000, 1_100)]
    verdicts = judge(([*snapshots, *many], rules, now, zone, protected))
    left = pruned(verdicts, share, frozenset(one.guid for one in many))
    assert sum(one not in left for one in snapshots) <= max(ALWAYS_PRUNABLE, share * count + 1e-6)


@given(cases())
def test_a_whole_share_is_no_limit(case: Case) -> None:
    assert find_prune_excess(judge(case), 1.0, ours) is None


@pytest.mark.parametrize(
    ("count", "last", "share", "allowed"),
    [
        (10, 5, 0.5, None),
        (10, 4, 0.5, 5),
        (4, 1, 0.01, None),  # three may always go: what a few failed runs leave
        (5, 1, 0.5, 3),
        (100, 71, 0.29, None),  # 0.29 * 100 is 28.999999999999996
        (100, 70, 0.29, 29),
    ],
)
def test_the_limit_to_the_snapshot(count: int, last: int, share: float, allowed: int | None) -> None:
    snapshots = [snap(number, number) for number in range(count)]
    over = find_prune_excess(run(snapshots, KeepRules(last=last)), share, ours)
    assert (over and over.allowed) == allowed


def test_what_is_not_ours_does_not_raise_the_limit() -> None:
    foreign = [snap(number, number, snapname="by-hand-") for number in range(100, 200)]
    snapshots = [snap(number, number) for number in range(10)]
    verdicts = run([*snapshots, *foreign], KeepRules(last=2))
    over = find_prune_excess(verdicts, 0.5, ours)
    assert over is not None
    assert str(over) == "8 of 10 snapshots would go, one run may prune 5"
    assert over.held_back == 3
    left = limit_prune(verdicts, over)
    assert [verdict.snapshot for verdict in left if not verdict.keep] == snapshots[:5]
    assert {verdict.reason for verdict in left[5:8]} == {f"over prune_limit: {over}"}


# A month of runs: a snapshot every four hours, a run at two at night


def month(rules: KeepRules, share: float, *, left_out: tuple[int, ...] = ()) -> list[tuple[int, int, int]]:
    """Of each run: its day, how many snapshots were there before it, and how many are there over the rules after it."""
    vault: list[Snapshot] = []
    waiting: list[Snapshot] = []
    told = []
    for number in range(30 * 6):
        waiting.append(snap(number, START + number * 4 * HOUR))
        day, place = divmod(number, 6)
        if place or day in left_out:
            continue
        before, now = len(vault), START + day * DAY + 2 * HOUR
        arrived = frozenset(one.guid for one in waiting)
        vault, waiting = [*vault, *waiting], []
        vault = pruned(run(vault, rules, now=now), share, arrived)
        told.append((day, before, len(vault) - len(kept(run(vault, rules, now=now)))))
    return told


def test_six_new_snapshots_a_day_and_eight_to_keep_never_stop_retention() -> None:
    """Before, 11 of 14 were held back, then 16 of 20, 21 of 26, and so on for ever."""
    told = month(KeepRules(last=1, daily=7), 0.5)
    assert [over for _, _, over in told] == [0] * 30
    assert max(before for _, before, _ in told) <= 8


def test_after_a_week_without_runs_retention_catches_up() -> None:
    told = month(KeepRules(last=1, daily=7), 0.5, left_out=tuple(range(10, 17)))
    # All that was there before is over the rules at once: half of it goes in that run, the rest in the next two.
    assert {day: over for day, _, over in told if over} == {17: 4, 18: 1}
    assert told[-1][1] <= 8


def test_a_rule_made_shorter_is_followed_over_several_runs() -> None:
    left = [snap(number, START + number * HOUR) for number in range(100)]
    counts = []
    while (verdicts := run(left, KeepRules(last=10), now=START + 100 * HOUR)) and (
        find_prune_excess(verdicts, 0.5, ours) is not None
    ):
        left = pruned(verdicts, 0.5)
        counts.append(len(left))
    left = pruned(verdicts, 0.5)
    assert (counts, len(left)) == ([50, 25, 13], 10)
