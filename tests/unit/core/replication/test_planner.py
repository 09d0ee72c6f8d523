"""Whatever befalls two pools, a plan is one that zfs carries out, loses nothing untold, and ends with both alike."""

from random import Random

from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from tests.unit.core.replication.pool_histories import (
    ON_SOURCE,
    OURS,
    SOURCE,
    VAULT,
    _promote,
    _rename,
    _swap,
    after,
    histories,
    pairing,
    planned,
)
from tests.unit.core.replication.pools_model import Pools, Stop
from tests.unit.examples import cases, same_cases
from zvault.core.replication.lineage import is_aside
from zvault.core.replication.plan_model import OnConflict, TransferAction, TransferPlan
from zvault.core.replication.vault_changes import RenameDataset, RollbackDataset

CASES = {
    "any history": 2500,
    "any order": 1500,
    "power fails": 1500,
    "renamed, cloned": 1000,
    "promoted": 1000,
    "one thing": 500,
    "written since": 500,
}


def has_all(two: Pools, plan: TransferPlan) -> bool:
    """Whether the vault has, at its place, the newest snapshot that is to be sent."""
    newest = [snap for snap in two.source.data[plan.dataset].snaps if snap.snapname.startswith(OURS)][-1]
    there = two.vault.data.get(plan.target)
    return there is not None and newest.guid in {snap.guid for snap in there.snaps}


def assert_nothing_lost(before: Pools, now: Pools) -> None:
    """Every dataset and snapshot of the vault is still there, but what a rollback said that it gives up."""
    born = {name for name, data in before.vault.data.items() if data.partial and data.partial.newborn}
    was = {data.guid for name, data in before.vault.data.items() if name not in born}
    assert was <= {data.guid for data in now.vault.data.values()}
    snaps = {snap.guid for data in before.vault.data.values() for snap in data.snaps}
    assert snaps - {snap.guid for data in now.vault.data.values() for snap in data.snaps} <= now.given_up


TAKEN_TWICE = bytes.fromhex(
    "00000600060006003c003c003c007800000000000400040004003a017200c94018050cac0000cb6e"
)
"""Two promotions in one run, of which the first takes a snapshot from a dataset that the second takes others from."""


GIVEN_ON = bytes.fromhex("00002700ae010400040006001f0029003a000000120b4e01")
"""A dataset that is set aside and branched anew, of which a clone that was begun before is promoted then."""

RECEIVED_TWICE = bytes.fromhex(
    "060006000600060014003c000000720093010600000006000401ef047001c6089b010400b0002100d10100000000bbb6"
)
"""A snapshot that the vault has in two datasets, of which one has it cloned and the other is rolled back over it."""


@settings(max_examples=cases(CASES["any history"]))
@example(TAKEN_TWICE, "new-dataset", False)
@example(GIVEN_ON, "new-dataset", False)
@example(RECEIVED_TWICE, "rollback", False)
@given(histories(24), st.sampled_from(["stop", "rollback", "new-dataset"]), st.booleans())
def test_a_plan_is_legal_loses_nothing_untold_and_leaves_both_sides_alike(
    history: bytes, on_conflict: OnConflict, all_in: bool
) -> None:
    before = after(history)
    plans = planned(before, on_conflict, all_in)
    for plan in plans:
        event(f"{on_conflict}: {plan.action}")
        for change in plan.changes:
            event(type(change).__name__)
        assert plan.reason
        assert (plan.action is TransferAction.CONFLICT) <= bool(plan.next)
        assert plan.action is not TransferAction.CONFLICT or all(
            isinstance(one, RenameDataset) for one in plan.changes
        )
        assert on_conflict == "rollback" or not any(isinstance(one, RollbackDataset) for one in plan.changes)
    two = before.copy()
    failed = two.carry_out(plans)
    assert_nothing_lost(before, two)
    assert on_conflict != "new-dataset" or not failed
    for plan in plans:
        assert plan.dataset in failed or has_all(two, plan)
    for plan in planned(two, on_conflict, all_in):
        if plan.dataset not in failed:
            assert (plan.action, plan.steps, plan.changes) == (TransferAction.NOTHING, (), ())


@settings(max_examples=cases(CASES["written since"]))
@given(histories(20), st.sampled_from(["stop", "rollback", "new-dataset"]), st.integers(0), st.integers(0))
def test_where_nothing_is_left_to_do_it_does_not_matter_what_was_written_on_the_vault(
    history: bytes, on_conflict: OnConflict, seen: int, is_now: int
) -> None:
    two = after(history)
    two.carry_out(planned(two, on_conflict))
    listed = two.copy()
    for place, name in enumerate(sorted(two.vault.data)):
        listed.vault.data[name].written = 4096 * (seen >> place & 1)
        two.vault.data[name].written = 4096 * (is_now >> place & 1)
    plans = planned(listed, on_conflict, is_now=two)
    idle = all(plan.action is TransferAction.NOTHING and not plan.changes for plan in plans)
    event(f"nothing left to do: {idle}")
    if idle:
        assert plans == planned(two, on_conflict)


def in_some_order(plans: list[TransferPlan], chance: Random) -> list[TransferPlan]:
    """The plans as several that go at once may be carried out: each after those it needs, and else in any order."""
    left, ordered = list(plans), []
    while left:
        done = {plan.dataset for plan in ordered}
        able = [plan for plan in left if set(plan.after) <= done]
        ordered.append(chance.choice(able))
        left.remove(ordered[-1])
    return ordered


@settings(max_examples=cases(CASES["any order"]))
@given(histories(24), st.sampled_from(["stop", "rollback", "new-dataset"]), st.randoms(use_true_random=False))
@example(
    # What another's rename brings below it must not come before it.
    b"\x00\x00\x04\x00\x04\x00\x04\x00\x04\x00\x04\x00\xa6\x01e\x00\x00\x00\x04\x00\x04\x00\x04\x00\xfc\xdb\x04\x00"
    b"\x04\x00\x06\x00]'\x00\x00\x00\x00\x00\x00\x00\x00D\x00",
    "stop",
    Random(4),
)
@example(
    # It is to go below its own name, where an excluded one is now.
    b"\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00B\x03W\x00w\xfa\x00\x00"
    b"\x00\x00\x00\x00\xa8\x00\x00\x00\xe4\xdc\x00\x00&w\xad\xf5",
    "stop",
    Random(0),
)
@example(
    # One is renamed out of another that is renamed as well: after that its old name is gone.
    b"\x00\x00\x00\x00\x00\x00\xf7\x01<\x00\x00\x00x\x03\x00\x00\x00\x00\x00\x00\xdc\xdc\xf0\x01\x04\x00"
    b"\x00\x00W\x00\x00\x00\x00\x00\xc6~",
    "new-dataset",
    Random(0),
)
def test_in_whatever_order_plans_are_carried_out_that_need_not_wait_all_end_the_same(
    history: bytes, on_conflict: OnConflict, chance: Random
) -> None:
    before = after(history)
    plans = planned(before, on_conflict)
    two, other = before.copy(), before.copy()
    failed = two.carry_out(plans)
    assert other.carry_out(in_some_order(plans, chance)).keys() == failed.keys()
    assert_nothing_lost(before, other)
    for plan in plans:
        assert plan.dataset in failed or has_all(other, plan)


@settings(max_examples=cases(CASES["power fails"]))
@given(histories(20), st.sampled_from(["stop", "rollback", "new-dataset"]), st.integers(0, 12))
# The vault has a snapshot twice, and a clone of one of them: it is promoted over that, and over no other.
@example(bytes.fromhex("060006002700040004003a005f000000b4009f0100000000b4040401000042404401"), "stop", 4)
@example(bytes.fromhex("060006002700040004003a005f00000004009f0100000000b4030401000042404401"), "stop", 4)
def test_wherever_the_power_fails_the_next_run_ends_as_the_first_would_have(
    history: bytes, on_conflict: OnConflict, fuel: int
) -> None:
    before = after(history)
    whole = before.copy()
    failed = whole.carry_out(planned(whole, on_conflict))
    two = before.copy()
    two.fuel = fuel
    try:
        two.carry_out(planned(two, on_conflict))
    except Stop:
        event("cut short")
    two.fuel = None
    plans = planned(two, on_conflict)
    later = two.carry_out(plans)
    assert_nothing_lost(before, two)
    assert later.keys() <= failed.keys()
    for plan in plans:
        assert plan.dataset in later or has_all(two, plan)


# How little is sent is no promise for whatever history one may think of, so these are the same cases every time.


@settings(max_examples=same_cases(CASES["renamed, cloned"]), derandomize=True)
@given(histories(20))
def test_what_was_renamed_or_cloned_is_not_sent_again(history: bytes) -> None:
    """As long as nobody touches the vault, and no snapshot goes, whatever the vault has is built upon."""
    two = after(history, [what for what in ON_SOURCE if what is not _promote])
    had = {snap.guid for data in two.vault.data.values() for snap in data.snaps}
    for plan in planned(two, "stop"):
        event(str(plan.action))
        assert plan.action is not TransferAction.CONFLICT
        there = two.vault.data.get(plan.target)
        shared = any(snap.guid in had for _, snap in two.source.lineage(plan.dataset))
        if shared and not (there and there.placeholder):
            assert plan.action is not TransferAction.FULL


@settings(max_examples=same_cases(CASES["promoted"]), derandomize=True)
@given(histories(20))
def test_what_was_sent_is_not_sent_again_whoever_is_promoted(history: bytes) -> None:
    """Renames apart: to promote one and give its name to another, several times within a run, may be too much."""
    two = after(history, [what for what in ON_SOURCE if what not in {_rename, _swap}])
    for plan in planned(two, "stop"):
        assert plan.action is not TransferAction.CONFLICT
        there = two.vault.data.get(plan.target)
        if not (there and there.placeholder) and two.source.data[plan.dataset].guid in two.sent:
            event(f"{plan.action}, borrowed" if plan.borrowed else str(plan.action))
            assert plan.action is not TransferAction.FULL
    two.carry_out(planned(two, "stop"))


@settings(max_examples=cases(CASES["one thing"]))
@given(histories(20), st.booleans())
def test_every_dataset_of_the_vault_is_one_thing(history: bytes, all_in: bool) -> None:
    two = after(history)
    found = pairing(two, all_in)
    paired = [pair.vault.name for pair in found.pairs if pair.vault is not None]
    gone = [dataset.name for dataset in found.gone]
    aside = [dataset.name for dataset in found.aside]
    assert len({*paired, *gone, *aside}) == len(paired) + len(gone) + len(aside)
    assert not any(is_aside(name) for name in gone)
    for dataset in found.gone:
        assert dataset.snapshots
        name = SOURCE + dataset.name[len(VAULT) :]
        assert name not in two.source.data


def test_the_numbers_of_cases_are_what_they_are_said_to_be() -> None:
    from tests.unit.core.replication.dataset_plans import CASES as SINGLE

    numbers = [*CASES.values(), *SINGLE.values()]
    assert sum(numbers) >= 10_000
    assert sum(map(cases, numbers)) >= 5_000
