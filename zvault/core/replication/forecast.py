"""What a source and a vault would have once a run is over that has not begun: its snapshot, and what that sends. Pure.

A snapshot that is only imagined has a GUID below zero, which none of ZFS's is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from zvault.core.model import Dataset, Snapshot, Tree
from zvault.core.names import DatasetName
from zvault.core.replication.plan_model import TransferPlan, TransferStep, list_sent_by
from zvault.core.snapshot_list import append_snapshots


def is_imagined(snapshot: Snapshot) -> bool:
    """True if a snapshot is one that the run would make."""
    return snapshot.guid < 0


def add_snapshot(source: Tree, names: Collection[str], snapname: str, creation: int) -> Tree:
    """The source with one more snapshot of each dataset named, all of one transaction group."""
    txg = 1 + max((snap.createtxg for dataset in source for snap in dataset.snapshots), default=0)
    found: dict[str, Dataset] = {}
    for number, dataset in enumerate(source, 1):
        if dataset.name in names:
            made = Snapshot(dataset.name, snapname, -number, txg, creation)
            dataset = replace(dataset, snapshots=append_snapshots(dataset.snapshots, [made]), written=0)  # noqa: PLW2901
        found[dataset.name] = dataset
    return replace(source, datasets=found)


def apply_plans(vault: Tree, source: Tree, plans: Sequence[tuple[TransferPlan, Dataset | None]]) -> Tree:
    """The vault once plans were carried out, each given with the vault's dataset that it goes on from.

    A plan that changes names or snapshots on the vault first leaves its dataset as it is: see ``is_predictable``.
    """
    found = dict(vault.datasets)
    for plan, there in plans:
        if not plan.steps or not is_predictable(plan):
            continue
        origin = source.datasets[plan.dataset]
        onto = there or Dataset(plan.target, 0, origin.type)
        have = {snap.guid for snap in onto.snapshots}
        sent = (snap for step in plan.steps for snap in list_sent_by(step, origin.snapshots))
        txg = 1 + max((snap.createtxg for snap in onto.snapshots), default=0)
        came = [
            replace(snap, dataset=onto.name, createtxg=txg + place)
            for place, snap in enumerate(sent)
            if snap.guid not in have
        ]
        found[onto.name] = replace(
            onto,
            snapshots=append_snapshots(onto.snapshots, came),
            written=0,
            resume_token=None,
            placeholder=False,
        )
    return Tree(dict(sorted(found.items(), key=lambda item: DatasetName(item[0]).parts)))


def is_predictable(plan: TransferPlan) -> bool:
    """True if it is known what the vault's dataset has after a plan: not where it is changed in more ways."""
    return not plan.changes and all(step.origin is None for step in plan.steps)


def trim_step_to_existing(step: TransferStep, dataset: Dataset) -> TransferStep | None:
    """The part of a step that ends at a snapshot that is there already, so that ZFS can tell its size.

    None where there is none: then the whole stream is what was ``written`` since the newest snapshot.
    """
    if not is_imagined(step.to):
        return step
    there = next((snap for snap in reversed(dataset.snapshots) if not is_imagined(snap)), None)
    if there is None or (step.base is not None and there.createtxg <= step.base.createtxg):
        return None
    return replace(step, to=there)


def estimate_step(step: TransferStep, written: int, known: int | None) -> int | None:
    """A step's bytes: what ZFS told of its part (``known``), and what was ``written`` to the dataset since."""
    if known is None:
        return None
    return known + (written if is_imagined(step.to) else 0)
