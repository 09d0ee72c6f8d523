"""What is planned for a history of two pools, in the words that a person sees: single cases."""

import pytest

from tests.unit.core.replication.pool_histories import (
    OURS,
    listing,
    ours,
    pairing,
    planned,
    pools,
    take_ours,
)
from tests.unit.core.replication.pools_model import Pools
from zvault.core.replication.lineage import is_aside
from zvault.core.replication.name_length import NameConflict
from zvault.core.replication.plan_model import OnConflict, TransferAction, TransferPlan
from zvault.core.replication.planner import plan_tree
from zvault.core.replication.vault_changes import BranchDataset, RenameDataset


def story(*events: tuple[str, ...]) -> Pools:
    two = pools()
    for what, *words in events:
        if what == "run":
            snapname = f"{OURS}{two.source.clock.tick()}"
            for name in list(two.source.data):
                if "/" in name:
                    two.source.snapshot(name, snapname)
            two.carry_out(planned(two, "stop"))
        else:
            getattr(two.source, what)(*words)
    return two


def next_run(two: Pools, on_conflict: OnConflict = "stop") -> dict[str, TransferPlan]:
    take_ours(two, 0)
    plans = planned(two, on_conflict)
    two.copy().carry_out(plans)
    return {plan.dataset: plan for plan in plans}


def told(plan: TransferPlan) -> list[str]:
    return [str(change) for change in plan.changes]


def test_a_renamed_dataset_is_renamed_on_the_vault_and_its_children_come_along() -> None:
    two = story(
        ("create", "tank/s/a"), ("create", "tank/s/a/b"), ("run",), ("rename", "tank/s/a", "tank/s/c")
    )
    plans = next_run(two)
    assert told(plans["tank/s/c"]) == ["rename cold/s/a to cold/s/c: it follows tank/s/c"]
    assert told(plans["tank/s/c/b"]) == []
    assert plans["tank/s/c/b"].after == ("tank/s/c",)
    assert {plan.action for plan in plans.values()} == {TransferAction.INCREMENTAL}


def test_a_dataset_whose_name_is_too_long_is_told_and_the_others_go_on() -> None:
    two = story(("create", "tank/s/a"), ("create", "tank/s/b"))
    found = pairing(two)
    conflict = NameConflict("it is too long", "rename it")
    plans = plan_tree(found, listing(two), wanted=ours, conflicts={"tank/s/a": conflict})
    made = {plan.dataset: plan for plan in plans}
    assert (made["tank/s/a"].action, made["tank/s/a"].reason) == (TransferAction.CONFLICT, "it is too long")
    assert (made["tank/s/a"].next, made["tank/s/a"].changes) == ("rename it", ())
    assert made["tank/s/b"].action is not TransferAction.CONFLICT


def test_a_clone_waits_for_what_it_branched_off_from_to_be_renamed() -> None:
    two = story(
        ("create", "tank/s/a"),
        ("run",),
        ("rename", "tank/s/a", "tank/s/c"),
        ("clone", "tank/s/c", f"{OURS}5", "tank/s/b"),
    )
    plans = next_run(two)
    assert plans["tank/s/b"].steps[0].origin == f"cold/s/c@{OURS}5"
    assert plans["tank/s/b"].after == ("tank/s/c",)


def test_a_child_waits_for_its_parent_only_until_that_is_there() -> None:
    two = story(("create", "tank/s/a"), ("create", "tank/s/a/b"))
    assert {name: plan.after for name, plan in next_run(two).items()} == {
        "tank/s": (),
        "tank/s/a": ("tank/s",),
        "tank/s/a/b": ("tank/s", "tank/s/a"),
    }
    two = story(("create", "tank/s/a"), ("run",), ("create", "tank/s/a/b"))
    assert {name: plan.after for name, plan in next_run(two).items()} == dict.fromkeys(
        ("tank/s", "tank/s/a", "tank/s/a/b"), ()
    )


def test_two_that_swapped_their_names_do_so_on_the_vault() -> None:
    two = story(
        ("create", "tank/s/a"),
        ("create", "tank/s/b"),
        ("run",),
        ("rename", "tank/s/a", "tank/s/t"),
        ("rename", "tank/s/b", "tank/s/a"),
        ("rename", "tank/s/t", "tank/s/b"),
    )
    plans = next_run(two)
    assert told(plans["tank/s/a"]) == [
        "rename cold/s/a to cold/s/a_zvault-moving: it follows tank/s/b",
        "rename cold/s/b to cold/s/a: it follows tank/s/a",
    ]
    assert told(plans["tank/s/b"]) == ["rename cold/s/a_zvault-moving to cold/s/b: it follows tank/s/b"]
    assert plans["tank/s/b"].after == ("tank/s/a",)


def test_what_is_taken_out_of_a_dataset_goes_before_that_dataset_is_renamed() -> None:
    two = story(
        ("create", "tank/s/b"),
        ("create", "tank/s/b/low"),
        ("create", "tank/s/b/stays"),
        ("run",),
        ("rename", "tank/s/b/low", "tank/s/a"),
        ("rename", "tank/s/b", "tank/s/c"),
    )
    plans = next_run(two)
    assert told(plans["tank/s/a"]) == ["rename cold/s/b/low to cold/s/a: it follows tank/s/a"]
    assert told(plans["tank/s/c"]) == ["rename cold/s/b to cold/s/c: it follows tank/s/c"]
    assert plans["tank/s/a"].after == ()
    assert plans["tank/s/c"].after == ("tank/s/a",)


def test_a_clone_begins_at_its_origin() -> None:
    two = story(("create", "tank/s/b"), ("run",))
    snapname = two.source.data["tank/s/b"].snaps[-1].snapname
    two.source.clone("tank/s/b", snapname, "tank/s/a")
    plan = next_run(two)["tank/s/a"]
    assert plan.action is TransferAction.INCREMENTAL
    assert plan.steps[0].origin == f"cold/s/b@{snapname}"
    assert (
        plan.reason
        == f"tank/s/a is a clone of tank/s/b@{snapname}, which the vault has as cold/s/b@{snapname}"
    )


def test_a_clone_made_since_the_last_run_waits_for_its_origin() -> None:
    two = story(("create", "tank/s/b"))
    two.source.snapshot("tank/s/b", f"{OURS}x")
    two.source.clone("tank/s/b", f"{OURS}x", "tank/s/a")
    plan = next_run(two)["tank/s/a"]
    assert plan.steps[0].origin == f"cold/s/b@{OURS}x"
    assert "tank/s/b" in plan.after


def test_a_clone_of_what_the_vault_lacks_goes_in_full() -> None:
    two = story(("create", "tank/s/b"), ("snapshot", "tank/s/b", "by-hand"))
    two.source.clone("tank/s/b", "by-hand", "tank/s/a")
    plan = next_run(two)["tank/s/a"]
    assert plan.action is TransferAction.FULL
    assert plan.reason.endswith("and not tank/s/b@by-hand either, of which tank/s/a is a clone")


def test_a_dataset_replaced_by_its_promoted_clone() -> None:
    """The way that zfs-promote(8) shows: clone, promote, rename both."""
    two = story(("create", "tank/s/a"), ("run",), ("run",))
    first = two.source.data["tank/s/a"].snaps[0].snapname
    for step in (
        ("clone", "tank/s/a", first, "tank/s/b"),
        ("promote", "tank/s/b"),
        ("rename", "tank/s/a", "tank/s/c"),
        ("rename", "tank/s/b", "tank/s/a"),
    ):
        getattr(two.source, step[0])(*step[1:])
    plans = next_run(two)
    assert told(plans["tank/s/a"]) == [
        "rename cold/s/a to cold/s/c: it follows tank/s/c",
        f"make cold/s/a from cold/s/c@{first}, and promote it: the history of tank/s/a up to there is in cold/s/c",
    ]
    assert plans["tank/s/c"].action is plans["tank/s/a"].action is TransferAction.INCREMENTAL
    assert plans["tank/s/c"].after == ("tank/s/a",)


def test_a_base_that_another_dataset_owns_now_is_borrowed() -> None:
    two = story(("create", "tank/s/a"), ("run",))
    snapname = two.source.data["tank/s/a"].snaps[-1].snapname
    two.source.clone("tank/s/a", snapname, "tank/s/b")
    take_ours(two, 0)
    two.carry_out(planned(two, "stop"))
    two.source.data["tank/s/a"].snaps.pop()
    two.vault.data["cold/s/a"].snaps.pop()
    two.source.promote("tank/s/b")
    plan = next_run(two)["tank/s/a"]
    assert plan.borrowed is not None
    assert plan.borrowed.name == f"tank/s/b@{snapname}"
    assert plan.reason == f"the newest snapshot both sides share is {snapname}, which tank/s/b owns now"


def diverged() -> Pools:
    two = story(("create", "tank/s/a"), ("create", "tank/s/a/b"), ("run",))
    two.vault.data["cold/s/a"].written = 4096
    two.vault.snapshot("cold/s/a", "mine")
    two.vault.data["cold/s/a"].written = 8192
    return two


def test_a_changed_dataset_is_left_as_it_is_unless_told_otherwise() -> None:
    plan = next_run(diverged())["tank/s/a"]
    assert plan.action is TransferAction.CONFLICT
    assert "cold/s/a has mine, newer than the base" in plan.reason


def test_a_rollback_tells_what_is_lost() -> None:
    (change,) = next_run(diverged(), "rollback")["tank/s/a"].changes
    assert str(change).startswith("roll cold/s/a back to @zvault_")
    assert str(change).endswith(", giving up @mine and 8K written since")


@pytest.mark.parametrize("why", ["held", "cloned"])
def test_nothing_that_somebody_needs_is_rolled_back(why: str) -> None:
    two = diverged()
    if why == "held":
        two.vault.data["cold/s/a"].snaps[-1].held = True
    else:
        two.vault.clone("cold/s/a", "mine", "cold/s/mine")
    plan = next_run(two, "rollback")["tank/s/a"]
    assert plan.action is TransferAction.CONFLICT
    expected = "@mine is held" if why == "held" else "cold/s/mine is a clone of @mine"
    assert plan.reason.endswith(f"it is not rolled back: {expected}")


def test_a_changed_dataset_is_set_aside_and_nothing_is_sent_twice() -> None:
    two = diverged()
    plans = next_run(two, "new-dataset")
    rename, branch = plans["tank/s/a"].changes
    assert isinstance(rename, RenameDataset)
    assert is_aside(rename.new)
    assert isinstance(branch, BranchDataset)
    assert branch.origin.startswith(f"{rename.new}@zvault_")
    assert plans["tank/s/a"].action is TransferAction.INCREMENTAL
    # What lies below it comes back.
    assert told(plans["tank/s/a/b"]) == [f"rename {rename.new}/b to cold/s/a/b: it follows tank/s/a/b"]
    assert plans["tank/s/a/b"].after == ("tank/s/a",)


def test_what_shares_nothing_is_set_aside_and_sent_in_full() -> None:
    two = story(("create", "tank/s/a"))
    two.vault.create("cold/s")
    two.vault.create("cold/s/a")
    two.vault.snapshot("cold/s", "other")
    two.vault.snapshot("cold/s/a", "other")
    assert next_run(two)["tank/s/a"].action is TransferAction.CONFLICT
    assert next_run(two, "rollback")["tank/s/a"].action is TransferAction.CONFLICT
    plans = next_run(two, "new-dataset")
    assert [plans[name].action for name in ("tank/s", "tank/s/a")] == [TransferAction.FULL] * 2


def test_a_placeholder_becomes_the_real_dataset() -> None:
    two = story(("create", "tank/s/x"), ("create", "tank/s/x/a"), ("run",))
    assert two.vault.data["cold/s/x"].placeholder
    take_ours(two, 0)
    plans = {plan.dataset: plan for plan in planned(two, "stop", all_in=True)}
    assert plans["tank/s/x"].steps[0].over
    assert plans["tank/s/x"].reason == "cold/s/x is only a placeholder so far"
    assert plans["tank/s/x/a"].action is TransferAction.INCREMENTAL


def test_what_vanished_is_gone_but_not_what_is_only_excluded() -> None:
    two = story(("create", "tank/s/a"), ("create", "tank/s/b"), ("create", "tank/s/c"), ("run",))
    two.source.destroy("tank/s/a")
    two.source.rename("tank/s/b", "tank/s/x")
    assert [dataset.name for dataset in pairing(two).gone] == ["cold/s/a"]


def run_all(two: Pools) -> None:
    take_ours(two, 0)
    two.carry_out(planned(two, "stop"))


def test_an_encrypted_dataset_cannot_go_over_a_placeholder_nor_over_foreign_snapshots() -> None:
    two = story()
    two.source.create("tank/s/x", encrypted=True)
    two.source.create("tank/s/x/a")
    run_all(two)
    plans = {plan.dataset: plan for plan in planned(two, "stop", all_in=True)}
    (rename,) = plans["tank/s/x"].changes
    assert isinstance(rename, RenameDataset)
    assert rename.reason == "cold/s/x is only a placeholder, which tank/s/x cannot replace"
    two.copy().carry_out(list(plans.values()))
    two.carry_out(list(plans.values()))
    two.vault.snapshot("cold/s/x", "mine")
    take_ours(two, 0)
    again = {plan.dataset: plan for plan in planned(two, "stop", all_in=True)}
    assert again["tank/s/x"].action is TransferAction.CONFLICT
    two.vault.snapshot("cold/s/x/a", "mine")
    assert {p.dataset: p for p in planned(two, "stop", all_in=True)}[
        "tank/s/x/a"
    ].action is TransferAction.INCREMENTAL
