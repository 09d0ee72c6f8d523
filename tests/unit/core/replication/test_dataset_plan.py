import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.unit.core.replication.zfs_model import OURS, Illegal, Partial, World, fewest_streams, ours
from tests.unit.examples import cases
from zvault.core.model import Bookmark, Dataset, Snapshot
from zvault.core.names import DatasetName
from zvault.core.replication.dataset_plan import DatasetCase, plan_transfer
from zvault.core.replication.lineage import find_base
from zvault.core.replication.plan_model import (
    MOST_IN_A_STREAM,
    Action,
    Interrupted,
    Ours,
    Policy,
    Step,
    TransferPlan,
    incremental_steps,
    sent_by,
)
from zvault.core.replication.vault_changes import Abort

CASES = {
    "what is wanted": 2500,
    "fewest streams": 1000,
    "conflicts": 1000,
    "bases": 1000,
    "nothing left": 1000,
}

# Histories: what may befall the two sides, in any order.


def aborted(plan: TransferPlan) -> str:
    """Why the vault's resume token is of no use and has to go; empty where it does not."""
    return next((change.reason for change in plan.changes if isinstance(change, Abort)), "")


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


def plan(world: World, *, newest_only: bool = False, wanted: Ours = ours) -> TransferPlan:
    base = newest_common(world)
    case = DatasetCase(
        world.source_dataset(),
        world.target,
        world.vault_dataset(),
        interrupted=world.interrupted(),
        unchanged=base is not None and not world.written and world.quiet.issuperset(world.after(base)),
    )
    return plan_transfer(case, wanted, Policy(newest_only))


def newest_common(world: World) -> int | None:
    """By brute force: walk the vault back until a GUID is on the source."""
    known = {point.guid for point in (*world.source, *world.marks)}
    return next((guid for guid in reversed(world.had()) if guid in known), None)


def goal_of(world: World, *, newest_only: bool = False, wanted: Ours = ours) -> list[int]:
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
    history: bytes, newest_only: bool, wanted: Ours
) -> None:
    world = world_of(history)
    made = plan(world, newest_only=newest_only, wanted=wanted)
    event(str(made.action))
    assert made.reason
    if made.action is Action.CONFLICT:
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
    assert (made.action is Action.NOTHING) == (not made.steps)
    assert all(step.reason for step in made.steps)


@settings(max_examples=cases(CASES["fewest streams"]))
@given(histories(14))
def test_no_other_plan_needs_fewer_streams(history: bytes) -> None:
    world = world_of(history)
    made = plan(world)
    if made.action is Action.CONFLICT:
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
    if made.action is Action.CONFLICT:
        assert way is None
    assert (plan(world).action is Action.CONFLICT) == (way is None)


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
    if made.action is not Action.CONFLICT:
        again = plan(carry_out(world, made))
        assert (again.action, again.steps, aborted(again), again.pending) == (Action.NOTHING, (), "", 0)


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
        incremental_steps(world.source, start, [s for s in world.source[:] if ours(s) and s != base])
    )
    goal = goal_of(world)
    assert len(steps) == fewest_streams(world, goal)
    for step in steps:
        world.run(step)
    assert world.had() == goal


# Single cases, in the words a person sees.


def snap(number: int, snapname: str | None = None, dataset: str = "tank/a") -> Snapshot:
    return Snapshot(DatasetName(dataset), snapname or f"{OURS}{number}", 100 + number, number, number)


def mark(number: int) -> Bookmark:
    return Bookmark(DatasetName("tank/a"), f"b{number}", 100 + number, number, number)


def source(*points: Snapshot | Bookmark) -> Dataset:
    return Dataset(
        DatasetName("tank/a"),
        1,
        "filesystem",
        snapshots=tuple(point for point in points if isinstance(point, Snapshot)),
        bookmarks=tuple(point for point in points if isinstance(point, Bookmark)),
    )


def vault(*numbers: int, written: int = 0, token: str | None = None) -> Dataset:
    snapshots = tuple(
        Snapshot(DatasetName("cold/a"), f"was{number}", 100 + number, 900 + place, number)
        for place, number in enumerate(numbers)
    )
    return Dataset(
        DatasetName("cold/a"), 2, "filesystem", written=written, resume_token=token, snapshots=snapshots
    )


def streams(made: TransferPlan) -> list[tuple[str, str | None, str]]:
    return [
        (
            "-I" if step.intermediates else "-i" if step.base else "",
            step.base and step.base.name,
            step.to.name,
        )
        for step in made.steps
    ]


def test_a_new_dataset_goes_in_full_and_its_history_after_it() -> None:
    made = plan_transfer(DatasetCase(source(snap(1), snap(2), snap(3)), "cold/a", None), ours)
    assert made.action is Action.FULL
    assert streams(made) == [
        ("", None, "tank/a@zvault_1"),
        ("-I", "tank/a@zvault_1", "tank/a@zvault_3"),
    ]
    assert (made.reason, made.pending) == ("the vault has no cold/a", 3)


def test_neighbours_go_in_one_stream_and_what_is_not_ours_is_jumped() -> None:
    made = plan_transfer(
        DatasetCase(
            source(snap(1), snap(2), snap(3), snap(4, "by-hand"), snap(5), snap(6)), "cold/a", vault(1)
        ),
        ours,
    )
    assert streams(made) == [
        ("-I", "tank/a@zvault_1", "tank/a@zvault_3"),
        ("-i", "tank/a@zvault_3", "tank/a@zvault_5"),
        ("-i", "tank/a@zvault_5", "tank/a@zvault_6"),
    ]
    assert made.reason == "the newest snapshot both sides share is zvault_1"


def test_a_bookmark_starts_only_the_first_single_step() -> None:
    made = plan_transfer(DatasetCase(source(mark(1), snap(2), snap(3), snap(4)), "cold/a", vault(1)), ours)
    assert streams(made) == [
        ("-i", "tank/a#b1", "tank/a@zvault_2"),
        ("-I", "tank/a@zvault_2", "tank/a@zvault_4"),
    ]
    assert made.reason == "the newest bookmark both sides share is b1"


def test_a_snapshot_is_preferred_to_a_bookmark_of_it() -> None:
    made = plan_transfer(DatasetCase(source(mark(1), snap(1), snap(2), snap(3)), "cold/a", vault(1)), ours)
    assert streams(made) == [("-I", "tank/a@zvault_1", "tank/a@zvault_3")]


def test_an_older_snapshot_that_never_arrived_stays_behind() -> None:
    made = plan_transfer(DatasetCase(source(snap(1), snap(2), snap(3)), "cold/a", vault(2)), ours)
    assert streams(made) == [("-i", "tank/a@zvault_2", "tank/a@zvault_3")]


def test_a_vault_that_is_up_to_date_says_with_what() -> None:
    made = plan_transfer(DatasetCase(source(snap(1)), "cold/a", vault(1)), ours)
    assert (made.action, made.reason) == (Action.NOTHING, "the vault has was1, the newest")


def test_a_source_without_our_snapshots_has_nothing_to_send() -> None:
    made = plan_transfer(DatasetCase(source(snap(1, "by-hand")), "cold/a", None), ours)
    assert (made.action, made.reason) == (Action.NOTHING, "the source has no snapshot made by zvault yet")


@pytest.mark.parametrize(
    ("there", "reason"),
    [
        (vault(), "holds no snapshot"),
        (vault(77), "have no snapshot or bookmark in common"),
        (vault(1, 77), "cold/a has was77, newer than the base was1 and unknown to the source"),
        (vault(1, written=8192), "was written to after was1 (8192 bytes)"),
    ],
)
def test_a_conflict_says_why_and_what_to_do(there: Dataset, reason: str) -> None:
    made = plan_transfer(DatasetCase(source(snap(1), snap(2)), "cold/a", there), ours)
    assert made.action is Action.CONFLICT
    assert reason in made.reason
    assert "cold/a" in made.next
    assert made.steps == ()


def test_the_advice_for_a_conflict_begins_with_what_loses_nothing() -> None:
    made = plan_transfer(DatasetCase(source(snap(1), snap(2)), "cold/a", vault(1, 77, written=8192)), ours)
    rename, rollback = made.next.index("zfs rename cold/a"), made.next.index("zfs rollback -r cold/a@was1")
    assert rename < rollback
    assert "destroys @was77 and 8K written since for good" in made.next


def test_an_interrupted_receive_is_resumed_and_the_rest_follows() -> None:
    there = vault(1, token="t")
    case = DatasetCase(
        source(snap(1), snap(2), snap(3), snap(4)), "cold/a", there, interrupted=Interrupted("t", 102)
    )
    made = plan_transfer(case, ours)
    assert made.action is Action.RESUME
    assert made.steps[0] == Step(
        Action.RESUME, snap(2), token="t", reason="an interrupted receive of zvault_2 waits on the vault"
    )
    assert streams(made)[1:] == [("-I", "tank/a@zvault_2", "tank/a@zvault_4")]
    assert made.pending == 3


@pytest.mark.parametrize(
    ("interrupted", "why"),
    [
        (Interrupted("t", 102, "used in the initial send no longer exists"), "no longer exists"),
        (Interrupted("t", 999), "the snapshot it was sending is gone from the source"),
        (Interrupted("t", 103, from_guid=0), "starts from another snapshot"),
        (Interrupted("t", 103, from_guid=102), "starts from another snapshot"),
        (Interrupted("t", 103, pool="other"), "for the pool other, not tank"),
    ],
)
def test_a_stale_token_is_given_up_with_its_reason(interrupted: Interrupted, why: str) -> None:
    made = plan_transfer(
        DatasetCase(source(snap(1), snap(3)), "cold/a", vault(1, token="t"), interrupted=interrupted), ours
    )
    assert made.action is Action.INCREMENTAL
    assert why in aborted(made)
    assert streams(made) == [("-i", "tank/a@zvault_1", "tank/a@zvault_3")]


def test_who_may_destroy_nothing_on_the_vault_says_who_can_give_a_stale_token_up() -> None:
    case = DatasetCase(
        source(snap(1), snap(3)), "cold/a", vault(1, token="t"), interrupted=Interrupted("t", 999)
    )
    made = plan_transfer(case, ours, Policy(destroys=False))
    assert (made.action, made.changes, made.pending) == (Action.CONFLICT, (), 2)
    assert "gone from the source; this host may not give it up" in made.reason
    assert made.next == "run 'zfs receive -A cold/a' on the vault's host"


@pytest.mark.parametrize("numbers", [(), (1,)])
def test_a_token_that_starts_from_what_was_received_is_resumed(numbers: tuple[int, ...]) -> None:
    interrupted = Interrupted("t", 103, from_guid=101 if numbers else 0, pool="tank")
    there = vault(*numbers, token="t")
    made = plan_transfer(
        DatasetCase(source(snap(1), snap(3)), "cold/a", there, interrupted=interrupted), ours
    )
    assert made.action is Action.RESUME


def test_a_full_receive_that_cannot_be_resumed_begins_anew() -> None:
    made = plan_transfer(
        DatasetCase(source(snap(3)), "cold/a", vault(token="t"), interrupted=Interrupted("t", 102)), ours
    )
    assert made.action is Action.FULL
    assert aborted(made)


def test_the_model_refuses_what_zfs_refuses() -> None:
    world = World()
    for _ in range(3):
        _take_ours(world, 0)
    first, second, third = world.source
    world.bookmark(first)
    world.run(Step(Action.FULL, first))
    for wrong in (
        Step(Action.FULL, second),
        Step(Action.INCREMENTAL, third, second),
        Step(Action.INCREMENTAL, first, first),
        Step(Action.INCREMENTAL, third, world.marks[0], intermediates=True),
        Step(Action.RESUME, second, token="none"),
    ):
        with pytest.raises(Illegal):
            world.copy().run(wrong)


def test_a_very_long_backlog_comes_in_several_streams_that_follow_on_each_other() -> None:
    snapshots = tuple(snap(number) for number in range(1, MOST_IN_A_STREAM + 12))
    steps = list(incremental_steps(snapshots, snapshots[0], snapshots[1:]))
    assert [(step.base, step.to) for step in steps] == [
        (snapshots[0], snapshots[MOST_IN_A_STREAM]),
        (snapshots[MOST_IN_A_STREAM], snapshots[-1]),
    ]
    assert [snap for step in steps for snap in sent_by(step, snapshots)] == list(snapshots[1:])
