"""What a plan takes grows with the snapshots, not with their square; and what is found by bisection is what looking at
all snapshots finds.

8,000 snapshots with another tool's between them kept the event loop busy for 21 s: longer lists outlast the
watchdog, and zvaultd was killed in each catch-up after a month's absence.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.replication.dataset_plans import snap
from tests.unit.core.replication.zfs_model import ours
from tests.unit.examples import cases
from zvault.core.model import Base, Bookmark, Dataset, Snapshot, Tree
from zvault.core.names import DatasetName
from zvault.core.policy.cached_verdicts import CachedVerdicts
from zvault.core.policy.prune_limit import find_prune_excess, limit_prune
from zvault.core.policy.retention import KeepRules, order_by_prune
from zvault.core.replication.dataset_plan import DatasetCase, RelatedSnapshot, plan_transfer
from zvault.core.replication.forecast import apply_plans
from zvault.core.replication.pair_datasets import pair_datasets
from zvault.core.replication.plan_model import (
    MOST_IN_A_STREAM,
    TransferAction,
    TransferPlan,
    TransferStep,
    list_sent_by,
    make_incremental_steps,
)
from zvault.core.replication.planner import plan_tree
from zvault.core.replication.sent_reason import find_snapshot_fate
from zvault.core.snapshot_list import SnapshotList, list_newer_snapshots, list_snapshots_between

SOURCE, VAULT = DatasetName("tank/a"), DatasetName("cold/a")

# The rules as they were, which looked at all snapshots for each step: slow, and plainly right.


def all_sent_by(step: TransferStep, snapshots: Sequence[Snapshot]) -> list[Snapshot]:
    if step.base is None or not step.intermediates:
        return [step.to]
    return [one for one in snapshots if step.base.createtxg < one.createtxg <= step.to.createtxg]


def all_steps(
    snapshots: Sequence[Snapshot], base: Base, wanted: Sequence[Snapshot]
) -> Iterator[TransferStep]:
    def step(current: Base, run: list[Snapshot]) -> TransferStep:
        reason = f"the snapshot after {current.shortname}"
        if len(run) > 1:
            reason = f"{len(run)} snapshots after {current.shortname}"
        return TransferStep(
            TransferAction.INCREMENTAL, run[-1], current, intermediates=len(run) > 1, reason=reason
        )

    wanted_guids = {one.guid for one in wanted}
    current, run, adjacent = base, list[Snapshot](), True
    for one in [one for one in snapshots if one.createtxg > base.createtxg]:
        if one.guid not in wanted_guids:
            if run:
                yield step(current, run)
                current, run = run[-1], []
            adjacent = False
        elif not adjacent or (not run and (isinstance(current, Bookmark) or current.dataset != one.dataset)):
            yield step(current, [one])
            current, adjacent = one, True
        else:
            run.append(one)
            if len(run) == MOST_IN_A_STREAM:
                yield step(current, run)
                current, run = one, []
    if run:
        yield step(current, run)


def all_begin(kin: Sequence[RelatedSnapshot], wanted: Sequence[Snapshot]) -> RelatedSnapshot | None:
    return next((one for one in kin if any(it.createtxg > one.base.createtxg for it in wanted)), None)


@st.composite
def histories(draw: st.DrawFn) -> list[Snapshot]:
    """Snapshots by zvault and by others, oldest first; some have come in the same transaction group."""
    made = draw(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=30))
    found, txg = list[Snapshot](), 1
    for number, (later, by_zvault) in enumerate(made):
        txg += later
        name = f"zvault_{number}" if by_zvault else f"hourly_{number}"
        found.append(Snapshot(SOURCE, name, 100 + number, txg, number))
    return found


def forms(found: Sequence[Snapshot]) -> list[Sequence[Snapshot]]:
    rows = ((one.snapname, one.guid, one.createtxg, one.creation) for one in found)
    return [tuple(found), SnapshotList.of(SOURCE, rows)]


@settings(max_examples=cases(200))
@given(histories(), st.integers(-1, 70), st.integers(-1, 70))
def test_what_bisection_finds_is_what_there_is(found: list[Snapshot], first: int, last: int) -> None:
    for snapshots in forms(found):
        assert list(list_newer_snapshots(snapshots, first)) == [one for one in found if one.createtxg > first]
        assert list(list_snapshots_between(snapshots, first, last)) == [
            one for one in found if first < one.createtxg <= last
        ]


@settings(max_examples=cases(200))
@given(histories(), st.data())
def test_the_steps_and_what_they_send_are_as_they_were(found: list[Snapshot], data: st.DataObject) -> None:
    bases: list[Base] = [*found, *(Bookmark(SOURCE, "m", o.guid, o.createtxg, 0) for o in found)]
    bases.append(Snapshot(DatasetName("tank/other"), "zvault_x", 7, data.draw(st.integers(0, 40)), 0))
    base = data.draw(st.sampled_from(bases))
    wanted = [one for one in found if ours(one) and one.createtxg > base.createtxg]
    for snapshots in forms(found):
        steps = list(make_incremental_steps(snapshots, base, wanted))
        assert steps == list(all_steps(found, base, wanted))
        assert [list_sent_by(one, snapshots) for one in steps] == [all_sent_by(one, found) for one in steps]


@settings(max_examples=cases(100))
@given(histories(), st.data())
def test_a_dataset_begins_from_the_same_relative(found: list[Snapshot], data: st.DataObject) -> None:
    """The first of its relatives after which there is anything to send."""
    kin = tuple(
        RelatedSnapshot(one, VAULT.add_suffix("-old").snapshot(one.snapname))
        for one in reversed(data.draw(st.lists(st.sampled_from(found), unique=True)) if found else [])
    )
    dataset = Dataset(SOURCE, 1, "filesystem", snapshots=tuple(found))
    made = plan_transfer(DatasetCase(dataset, VAULT, kin=kin), ours)
    wanted = [one for one in found if ours(one)]
    begun = all_begin(kin, wanted) if wanted else None
    assert made.action is (
        TransferAction.NOTHING
        if not wanted
        else TransferAction.INCREMENTAL
        if begun is not None
        else TransferAction.FULL
    )
    if begun is not None:
        assert made.base == begun.base
        assert list(made.steps) == list(
            all_steps(found, begun.base, [one for one in wanted if one.createtxg > begun.base.createtxg])
        )


# How much is looked at


class Counted(SnapshotList):
    """Counts the snapshots that it hands out, and what was asked of their transaction groups."""

    __slots__ = ()
    handed_out = 0

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        Counted.handed_out += len(found) if isinstance(found, tuple) else 1
        return found

    def __iter__(self) -> Iterator[Snapshot]:
        for one in super().__iter__():
            Counted.handed_out += 1
            yield one


def counted(dataset: DatasetName, numbers: Sequence[int]) -> Counted:
    """Every fifth snapshot is another tool's: of four between two of those one goes alone, and three together."""
    rows = [(snap(n).snapname if n % 5 else f"hourly_{n}", 100 + n, n, n) for n in numbers]
    made = SnapshotList.of(dataset, rows)
    return Counted(made.dataset, made.column, made.guids, made.createtxgs)


def plan_one(count: int) -> TransferPlan:
    source = Dataset(SOURCE, 1, "filesystem", snapshots=counted(SOURCE, range(1, count)))
    there = Dataset(VAULT, 2, "filesystem", snapshots=counted(VAULT, [1]))
    pairing = pair_datasets(Tree({SOURCE: source}), ((source, VAULT),), Tree({VAULT: there}))
    (plan,) = plan_tree(pairing, Tree({VAULT: there}), wanted=ours)
    assert len(plan.steps) > count // 3
    return plan


def plan_promoted(count: int) -> TransferPlan:
    """The history is on the vault already, in another dataset, and nothing newer is to be sent."""
    source = Dataset(SOURCE, 1, "filesystem", snapshots=counted(SOURCE, range(1, count)))
    kin = tuple(RelatedSnapshot(one, VAULT.snapshot(one.snapname)) for one in reversed(source.snapshots))
    return plan_transfer(
        DatasetCase(source, DatasetName("cold/b"), kin=kin), lambda one: one.snapname == "zvault_1"
    )


def foresee(count: int) -> Tree:
    plan = plan_one(count)
    source = Dataset(SOURCE, 1, "filesystem", snapshots=counted(SOURCE, range(1, count)))
    return apply_plans(Tree(), Tree({SOURCE: source}), [(plan, None)])


def tell_fate(count: int) -> None:
    plan = plan_one(count)
    source = Dataset(SOURCE, 1, "filesystem", snapshots=counted(SOURCE, range(1, count)))
    assert find_snapshot_fate(source.snapshots[-1], plan, source, (), wanted=ours).fate in {
        "to be sent",
        "not sent",
    }


def judge(count: int) -> None:
    """What retention makes of it, and prune_limit of that."""
    snapshots = counted(SOURCE, range(1, count))
    rules = KeepRules(last=3, hourly=24, daily=7, weekly=4, monthly=12, yearly=3)
    verdicts = CachedVerdicts(UTC, ours, lasting=False).decide(snapshots, rules, now=count, protected={})
    over = find_prune_excess(verdicts, 0.1, ours)
    assert over is not None
    assert len(order_by_prune(limit_prune(verdicts, over))) == over.allowed


@pytest.mark.parametrize("work", [plan_one, plan_promoted, foresee, tell_fate, judge])
def test_no_snapshot_is_looked_at_again_for_each_step(work: Callable[[int], object]) -> None:
    """At each some times: 25 of each is far from 1,000 of each, which it was."""
    count = 3000
    Counted.handed_out = 0
    work(count)
    assert Counted.handed_out <= 25 * count
