"""What a run is foreseen to leave on the vault: all that the plan sends, after which there is nothing left to send."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from zvault.core.model import Dataset, Snapshot, Tree
from zvault.core.names import DatasetName
from zvault.core.replication.forecast import (
    add_snapshot,
    apply_plans,
    estimate_step,
    is_imagined,
    is_predictable,
    trim_step_to_existing,
)
from zvault.core.replication.pair_datasets import pair_datasets
from zvault.core.replication.plan_model import TransferAction, TransferPlan, TransferPolicy, TransferStep
from zvault.core.replication.planner import plan_tree

SNAPNAME = "zvault_2026-11-21T09:00:00Z"
NOW = 1_800_000_000


def ours(snapshot: Snapshot) -> bool:
    return snapshot.snapname.startswith("zvault")


def history(name: str, kinds: list[bool], first: int) -> tuple[Snapshot, ...]:
    """Snapshots, oldest first, each zvault's or somebody else's."""
    return tuple(
        Snapshot(
            DatasetName(name), f"{'zvault' if mine else 'other'}{number}", first + number, number, number
        )
        for number, mine in enumerate(kinds, 1)
    )


@st.composite
def both_sides(draw: st.DrawFn) -> tuple[Tree, Tree]:
    """A source of a few datasets, and a vault that has a part of each one's history, or nothing."""
    source: dict[str, Dataset] = {}
    vault: dict[str, Dataset] = {}
    for place, path in enumerate(["", "/a", "/a/b", "/c"]):
        name, target = DatasetName(f"tank{path}"), DatasetName(f"cold/tank{path}")
        snaps = history(name, draw(st.lists(st.booleans(), max_size=5)), 1000 * (place + 1))
        source[name] = Dataset(name, place + 1, "filesystem", written=4096, snapshots=snaps)
        upto = draw(st.integers(0, len(snaps)))
        has = tuple(replace(snap, dataset=target) for snap in snaps[:upto] if ours(snap))
        if has and target.parent in {"cold", *vault}:
            vault[target] = Dataset(target, place + 10, "filesystem", snapshots=has)
    return Tree(source), Tree(vault)


def planned(
    source: Tree, vault: Tree, policy: TransferPolicy
) -> tuple[list[TransferPlan], dict[str, Dataset | None]]:
    pairs = tuple((dataset, dataset.name.moved("tank", DatasetName("cold/tank"))) for dataset in source)
    pairing = pair_datasets(source, pairs, vault)
    plans = plan_tree(pairing, vault, wanted=ours, policy=policy)
    return plans, {pair.source.name: pair.vault for pair in pairing.pairs}


@given(both_sides(), st.booleans())
def test_after_what_is_foreseen_nothing_is_left_to_send(sides: tuple[Tree, Tree], newest_only: bool) -> None:
    source, vault = sides
    policy = TransferPolicy(newest_only=newest_only)
    imagined = add_snapshot(source, set(source.datasets), SNAPNAME, NOW)
    plans, at = planned(imagined, vault, policy)
    assert all(plan.steps[-1].to.snapname == SNAPNAME for plan in plans)
    after = apply_plans(vault, imagined, [(plan, at[plan.dataset]) for plan in plans])
    for name, before in vault.datasets.items():
        kept = after.datasets[name].snapshots[: len(before.snapshots)]
        assert kept == before.snapshots, "what is there stays, in its order"
    again, _ = planned(imagined, after, policy)
    assert {plan.action for plan in again} == {TransferAction.NOTHING}


@given(both_sides())
def test_an_imagined_snapshot_is_the_newest_and_nothing_else_changes(sides: tuple[Tree, Tree]) -> None:
    source, _ = sides
    imagined = add_snapshot(source, {"tank", "tank/a"}, SNAPNAME, NOW)
    assert list(imagined.datasets) == list(source.datasets)
    for before, after in zip(source, imagined, strict=True):
        made = [snap for snap in after.snapshots if is_imagined(snap)]
        assert after.snapshots == (*before.snapshots, *made)
        assert [snap.snapname for snap in made] == [SNAPNAME] * (before.name in {"tank", "tank/a"})
        assert all(snap.createtxg > one.createtxg for snap in made for one in before.snapshots)
    guids = [snap.guid for dataset in imagined for snap in dataset.snapshots if is_imagined(snap)]
    assert len(guids) == len(set(guids))


def test_the_size_is_zfs_estimate_up_to_now_and_what_was_written_since() -> None:
    first, second = history("tank", [True, True], 100)
    source = Tree(
        {"tank": Dataset(DatasetName("tank"), 1, "filesystem", written=10, snapshots=(first, second))}
    )
    dataset = add_snapshot(source, {"tank"}, SNAPNAME, NOW).datasets["tank"]
    made = dataset.snapshots[-1]
    whole = TransferStep(TransferAction.INCREMENTAL, made, first, intermediates=True)
    assert trim_step_to_existing(whole, dataset) == replace(whole, to=second)
    assert trim_step_to_existing(TransferStep(TransferAction.INCREMENTAL, made, second), dataset) is None
    assert trim_step_to_existing(TransferStep(TransferAction.FULL, made), dataset) == TransferStep(
        TransferAction.FULL, second
    )
    there = TransferStep(TransferAction.INCREMENTAL, second, first)
    assert trim_step_to_existing(there, dataset) == there
    assert estimate_step(whole, 10, 5) == 15
    assert estimate_step(there, 10, 5) == 5
    assert estimate_step(whole, 10, None) is None


def test_the_first_snapshot_of_all_is_what_was_written() -> None:
    source = Tree({"tank": Dataset(DatasetName("tank"), 1, "filesystem", written=10)})
    dataset = add_snapshot(source, {"tank"}, SNAPNAME, NOW).datasets["tank"]
    assert trim_step_to_existing(TransferStep(TransferAction.FULL, dataset.snapshots[-1]), dataset) is None


def test_what_a_plan_changes_first_is_not_foreseen() -> None:
    source = Tree(
        {"tank": Dataset(DatasetName("tank"), 1, "filesystem", snapshots=history("tank", [True], 100))}
    )
    other = Dataset(DatasetName("cold/tank"), 2, "filesystem", snapshots=history("cold/tank", [False], 900))
    vault = Tree({"cold/tank": other})
    plans, at = planned(source, vault, TransferPolicy(on_conflict="new-dataset", stamp="20261121T090000Z"))
    assert [is_predictable(plan) for plan in plans] == [False]
    assert apply_plans(vault, source, [(plan, at[plan.dataset]) for plan in plans]) == vault
