"""The plan for one dataset, whatever befell its two sides: legal, minimal, and from the newest base."""

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.unit.core.replication.dataset_plans import (
    CASES,
    aborted,
    newest_common,
    plan,
)
from tests.unit.core.replication.zfs_model import OURS, Illegal, Partial, World, fewest_streams, ours
from tests.unit.examples import cases
from zvault.core.model import Snapshot
from zvault.core.replication.lineage import find_base
from zvault.core.replication.plan_model import (
    SnapshotFilter,
    TransferAction,
    TransferPlan,
    TransferStep,
    make_incremental_steps,
)


def _at(number: int, things: list) -> int:
    return number % len(things)


def _take_ours(world: World, number: int) -> None:
    world.snapshot(f"{OURS}{world.tick()}")


def _take_foreign(world: World, number: int) -> None:
    world.snapshot(f"by-hand-{world.tick()}")


def _destroy(world: World, number: int) -> None:
    if world.source:
        del world.source[_at(number, world.source)]


def _bookmark(world: World, number: int) -> None:
    if world.source:
        world.bookmark(world.source[_at(number, world.source)])


def _forget_bookmark(world: World, number: int) -> None:
    if world.marks:
        del world.marks[_at(number, world.marks)]


def _rename(world: World, number: int) -> None:
    world.rename(f"tank/b{number}")


def _retag(world: World, number: int) -> None:
    """Renaming a snapshot may make it ours, or no longer ours."""
    if world.source:
        prefix = OURS if number % 2 else "renamed-"
        world.rename_snapshot(_at(number // 2, world.source), f"{prefix}{world.tick()}")


def _send(world: World, number: int) -> None:
    """An earlier run: one legal stream, to any snapshot, broken off now and then."""
    if world.partial is not None or world.written:
        return
    if world.vault is None:
        later, base = world.source, 0
    elif not world.vault:
        return
    else:
        base = world.vault[-1].guid
        points = [point for point in (*world.source, *world.marks) if point.guid == base]
        later = [snap for snap in world.source if points and snap.createtxg > points[0].createtxg]
    if not later:
        return
    to = later[_at(number // 3, later)]
    if number % 3 == 0:
        world.partial = Partial(f"token-{world.tick()}", to.guid, base)
        world.vault = [] if world.vault is None else world.vault
    elif world.vault is None or to.snapname not in {snap.snapname for snap in world.vault}:
        world.vault = [] if world.vault is None else world.vault
        world.arrive(to.guid, to.snapname, to.creation)


def _prune_vault(world: World, number: int) -> None:
    if world.vault and world.partial is None:
        del world.vault[_at(number, world.vault)]


def _vault_by_hand(world: World, number: int) -> None:
    """A snapshot made on the vault; what was written before is in it. A snapname may be one that is still to come."""
    if number % 3 or not world.vault:
        return
    world.guid += 1
    if not world.written:
        world.quiet.add(world.guid)
    on_vault = {snap.snapname for snap in world.vault}
    snapnames = [snap.snapname for snap in world.source if snap.snapname not in on_vault]
    taken = bool(snapnames) and number % 4 == 0
    world.arrive(world.guid, snapnames[-1] if taken else f"on-vault-{world.tick()}", 1)
    world.written = 0


def _write_to_vault(world: World, number: int) -> None:
    if number % 6 == 0 and world.vault:
        world.written = 4096


def _make_by_hand(world: World, number: int) -> None:
    if number % 8 == 0 and world.vault is None:
        world.vault = []


def _replace_source(world: World, number: int) -> None:
    """Somebody destroyed the dataset and made another of that name."""
    if number % 8 == 0:
        world.source, world.marks = [], []


EVENTS = [
    *[_take_ours] * 4,
    *[_take_foreign] * 2,
    *[_send] * 3,
    *[_destroy] * 2,
    *[_bookmark] * 2,
    _forget_bookmark,
    _rename,
    _retag,
    _prune_vault,
    _vault_by_hand,
    _write_to_vault,
    _make_by_hand,
    _replace_source,
]


def histories(longest: int) -> st.SearchStrategy[bytes]:
    """Two bytes an event: what happened, and to which snapshot."""
    return st.one_of(st.binary(max_size=10), st.binary(min_size=longest, max_size=2 * longest))


def world_of(history: bytes) -> World:
    world = World()
    for which, number in zip(history[::2], history[1::2], strict=False):
        EVENTS[_at(which, EVENTS)](world, number)
    return world


def goal_of(world: World, *, newest_only: bool = False, wanted: SnapshotFilter = ours) -> list[int]:
    """What the vault had, then all that is wanted and newer than what both sides share."""
    resumable = world.interrupted()
    since_begun = world.partial is not None and world.partial.base
    disturbed = world.written or (since_begun and world.had()[-1] != since_begun)
    if resumable is not None and not resumable.problem and not disturbed:
        newest: int | None = resumable.to_guid
        had = [*world.had(), resumable.to_guid]
    else:
        newest, had = newest_common(world), world.had()
    points = [point for point in (*world.source, *world.marks) if point.guid == newest]
    since = points[0].createtxg if points else 0
    missing = [snap.guid for snap in world.source if wanted(snap) and snap.createtxg > since]
    return [*had, *(missing[-1:] if newest_only else missing)]


def carry_out(world: World, made: TransferPlan) -> World:
    after = world.copy()
    if aborted(made):
        after.abort()
    for step in made.steps:
        after.run(step)
    return after


def any_snapshot(snapshot: Snapshot) -> bool:
    return True


@settings(max_examples=cases(CASES["what is wanted"]))
@given(histories(24), st.booleans(), st.sampled_from([ours, ours, any_snapshot]))
def test_a_plan_is_legal_and_leaves_exactly_what_is_wanted(
    history: bytes, newest_only: bool, wanted: SnapshotFilter
) -> None:
    world = world_of(history)
    made = plan(world, newest_only=newest_only, wanted=wanted)
    event(str(made.action))
    assert made.reason
    if made.action is TransferAction.CONFLICT:
        assert not made.steps
        assert not made.changes
        assert made.next
        return
    goal = goal_of(world, newest_only=newest_only, wanted=wanted)
    after = carry_out(world, made)
    assert after.had() == goal
    assert after.partial is None
    missing = len(goal) - len(world.had())
    assert made.pending == missing
    assert bool(made.steps) == bool(missing)
    assert (made.action is TransferAction.NOTHING) == (not made.steps)
    assert all(step.reason for step in made.steps)


@settings(max_examples=cases(CASES["fewest streams"]))
@given(histories(14))
def test_no_other_plan_needs_fewer_streams(history: bytes) -> None:
    world = world_of(history)
    made = plan(world)
    if made.action is TransferAction.CONFLICT:
        return
    start = world.copy()
    if aborted(made):
        start.abort()
    assert len(made.steps) == fewest_streams(start, goal_of(world))


@settings(max_examples=cases(CASES["conflicts"]))
@given(histories(14))
def test_a_conflict_is_one_that_the_next_snapshot_cannot_overcome(history: bytes) -> None:
    """A run begins with a snapshot; a conflict says that it cannot reach the vault without a rollback."""
    world = world_of(history)
    made = plan(world)
    _take_ours(world, 0)
    start = world.copy()
    if aborted(made):
        start.abort()
    way = fewest_streams(start, goal_of(world))
    if made.action is TransferAction.CONFLICT:
        assert way is None
    assert (plan(world).action is TransferAction.CONFLICT) == (way is None)


@settings(max_examples=cases(CASES["bases"]))
@given(histories(20))
def test_the_base_is_the_newest_that_both_sides_share_by_guid(history: bytes) -> None:
    world = world_of(history)
    there = world.vault_dataset()
    if there is None:
        return
    found = find_base(world.source_dataset(), there)
    expected = newest_common(world)
    if found is None:
        assert expected is None
        return
    base, on_vault = found
    assert base.guid == on_vault.guid == expected
    assert world.find(base) is base
    assert isinstance(base, Snapshot) == (expected in {snap.guid for snap in world.source})
    made = plan(world)
    if made.base is not None:
        assert made.base.guid == expected


@settings(max_examples=cases(CASES["nothing left"]))
@given(histories(20))
def test_after_a_plan_there_is_nothing_left_to_do(history: bytes) -> None:
    world = world_of(history)
    made = plan(world)
    if made.action is not TransferAction.CONFLICT:
        again = plan(carry_out(world, made))
        assert (again.action, again.steps, aborted(again), again.pending) == (
            TransferAction.NOTHING,
            (),
            "",
            0,
        )


@given(st.lists(st.booleans(), max_size=10), st.booleans())
def test_streams_from_a_base_bring_what_is_wanted_and_nothing_else(
    wanted: list[bool], from_bookmark: bool
) -> None:
    world = World()
    _take_ours(world, 0)
    base = world.source[0]
    world.vault = []
    world.arrive(base.guid, base.snapname, 0)
    for is_ours in wanted:
        (_take_ours if is_ours else _take_foreign)(world, 0)
    start = base
    if from_bookmark:
        world.bookmark(base)
        del world.source[0]
        start = world.marks[0]
    steps = list(
        make_incremental_steps(world.source, start, [s for s in world.source[:] if ours(s) and s != base])
    )
    goal = goal_of(world)
    assert len(steps) == fewest_streams(world, goal)
    for step in steps:
        world.run(step)
    assert world.had() == goal


def test_the_model_refuses_what_zfs_refuses() -> None:
    world = World()
    for _ in range(3):
        _take_ours(world, 0)
    first, second, third = world.source
    world.bookmark(first)
    world.run(TransferStep(TransferAction.FULL, first))
    for wrong in (
        TransferStep(TransferAction.FULL, second),
        TransferStep(TransferAction.INCREMENTAL, third, second),
        TransferStep(TransferAction.INCREMENTAL, first, first),
        TransferStep(TransferAction.INCREMENTAL, third, world.marks[0], intermediates=True),
        TransferStep(TransferAction.RESUME, second, token="none"),
    ):
        with pytest.raises(Illegal):
            world.copy().run(wrong)
