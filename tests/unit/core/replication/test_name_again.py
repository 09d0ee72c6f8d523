"""A snapshot that only ``also`` names and whose name comes again: no full stream, and nothing else is held up by it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.replication.dataset_plans import snap, streams
from tests.unit.core.replication.zfs_model import ours
from zvault.core.model import Dataset, Snapshot
from zvault.core.names import DatasetName
from zvault.core.replication.dataset_plan import DatasetCase, plan_transfer
from zvault.core.replication.plan_model import (
    OnConflict,
    TransferAction,
    TransferPlan,
    TransferPolicy,
    list_sent_by,
)
from zvault.core.replication.vault_changes import BranchDataset, RenameDataset, RenameSnapshot

STAMP = "20261121T090000Z"
POLICIES: tuple[OnConflict, ...] = ("stop", "rollback", "new-dataset")


def side(name: str, *snapshots: Snapshot, written: int = 0) -> Dataset:
    mine = tuple(replace(one, dataset=DatasetName(name)) for one in snapshots)
    return Dataset(DatasetName(name), 2, "filesystem", snapshots=mine, written=written)


def plan(
    source: Dataset, vault: Dataset, on_conflict: OnConflict = "stop", *, newest: bool = False
) -> TransferPlan:
    case = DatasetCase(source, DatasetName("cold/a"), vault)
    return plan_transfer(case, lambda _: True, TransferPolicy(newest, on_conflict, STAMP, ours=ours))


@pytest.mark.parametrize("on_conflict", POLICIES)
@pytest.mark.parametrize("newest", [False, True])
def test_what_comes_with_the_next_snapshot_is_left_out(on_conflict: OnConflict, newest: bool) -> None:
    source = side("tank/a", snap(1), snap(3, "vzdump"), snap(4))
    vault = side("cold/a", snap(1), replace(snap(2, "vzdump"), createtxg=0))
    vault = replace(vault, snapshots=tuple(sorted(vault.snapshots, key=lambda one: one.createtxg)))
    made = plan(source, vault, on_conflict, newest=newest)
    assert made.action is TransferAction.INCREMENTAL
    assert streams(made) == [("-i", snap(1).name, snap(4).name)]
    assert not made.changes
    assert made.left_out == ("tank/a@vzdump",)


@pytest.mark.parametrize("on_conflict", POLICIES)
def test_where_nothing_else_brings_it_the_stale_one_is_renamed(on_conflict: OnConflict) -> None:
    """Also where the stale one is the base: a base is known by its GUID."""
    vault = side("cold/a", snap(1), snap(2, "daily.0"))
    source = side("tank/a", snap(1), snap(2, "daily.1"), snap(3, "daily.0"))
    made = plan(source, vault, on_conflict)
    assert streams(made) == [("-i", "tank/a@daily.1", "tank/a@daily.0")]
    (change,) = made.changes
    assert isinstance(change, RenameSnapshot)
    assert (change.old, change.new) == ("cold/a@daily.0", f"cold/a@daily.0_zvault-replaced-{STAMP}")
    assert not made.left_out


def test_a_name_too_long_to_be_lengthened_is_a_conflict() -> None:
    name = "d" * 240
    made = plan(
        side("tank/a", snap(1), snap(3, name)), side("cold/a", replace(snap(2, name), createtxg=0), snap(1))
    )
    assert made.action is TransferAction.CONFLICT
    assert "zfs rename" in made.next


def test_one_of_our_own_stops_unless_conflicts_are_set_aside() -> None:
    taken = snap(3)
    vault = side("cold/a", replace(taken, guid=999, createtxg=0), snap(1))
    source = side("tank/a", snap(1), taken)
    assert plan(source, vault).action is TransferAction.CONFLICT
    made = plan(source, vault, "new-dataset")
    assert made.action is TransferAction.INCREMENTAL
    assert [type(one) for one in made.changes] == [RenameSnapshot]


def test_what_was_set_aside_for_another_reason_goes_on_incrementally_all_the_same() -> None:
    vault = side("cold/a", replace(snap(2, "x"), createtxg=0), snap(1), snap(7, "by hand"))
    source = side("tank/a", snap(1), snap(3, "x"))
    made = plan(source, vault, "new-dataset")
    assert made.action is TransferAction.INCREMENTAL
    assert [type(one) for one in made.changes] == [RenameDataset, BranchDataset, RenameSnapshot]


@given(
    st.lists(st.sampled_from("abcO"), min_size=1, max_size=6),
    st.lists(st.sampled_from("abc"), max_size=3, unique=True),
    st.sampled_from(POLICIES),
    st.booleans(),
)
def test_with_a_base_nothing_is_ever_sent_in_full_and_no_name_is_sent_twice(
    names: list[str], stale: list[str], on_conflict: OnConflict, newest: bool
) -> None:
    fresh = [
        snap(10 + number, None if name == "O" else f"{name}{names[:number].count(name)}")
        for number, name in enumerate(names)
    ]
    old = [replace(snap(100 + place, f"{name}0"), createtxg=0) for place, name in enumerate(stale)]
    made = plan(side("tank/a", snap(1), *fresh), side("cold/a", *old, snap(1)), on_conflict, newest=newest)
    assert made.action is TransferAction.INCREMENTAL
    renamed = {change.old.snapname for change in made.changes if isinstance(change, RenameSnapshot)}
    sent = [one for step in made.steps for one in list_sent_by(step, fresh)]
    there = {one.snapname for one in old} - renamed
    assert there.isdisjoint(one.snapname for one in sent)
    assert {one.name for one in sent}.isdisjoint(made.left_out)
    assert not (renamed and made.left_out)
    if not newest:
        assert len(sent) + len(made.left_out) == len(fresh)
    assert made.steps[-1].to == max(
        (one for one in fresh if one.name not in made.left_out), key=lambda one: one.createtxg
    )
