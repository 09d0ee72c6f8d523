"""Hold what is to be held on a vault, and release what is not any more: once a run, before it prunes. And say why.

The same goes for a replica that another host sends and this one only prunes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from zvault.api.backups import Side
from zvault.api.emit import Emit
from zvault.config.schema import Backup
from zvault.core.errors import ZvaultError
from zvault.core.model import Dataset, Snapshot, Tree
from zvault.core.names import SnapshotName
from zvault.core.policy.retention import decide
from zvault.core.policy.vault_holds import perhaps_held, to_hold
from zvault.core.replication.base_names import KEEP_HOLD
from zvault.ops.context import Context
from zvault.ops.replication.batched_changes import BatchedChanges
from zvault.ops.replication.sides_and_plan import ours_of, wanted_of
from zvault.ops.retention.prune_plan import PrunePlan
from zvault.ops.state.environment import Environment
from zvault.zfs.changes import NamesGone
from zvault.zfs.client import Zfs


@dataclass(frozen=True, slots=True)
class HoldMove:
    """What is to be held on a vault, and what is to be asked whether it is held: by name."""

    wanted: tuple[SnapshotName, ...]
    asked: tuple[SnapshotName, ...]


def plan_holds(context: Context, backup: Backup, plan: PrunePlan) -> HoldMove:
    """What the verdicts on a backup's vault make of its holds."""
    brought, zone = wanted_of(backup), context.env.zone
    wanted: list[SnapshotName] = []
    asked: list[SnapshotName] = []
    for _, group in groupby(plan.judged, key=lambda verdict: verdict.snapshot.dataset):
        verdicts = list(group)
        wanted += [snap.name for snap in to_hold(verdicts, brought)]
        asked += [snap.name for snap in perhaps_held(verdicts, brought, plan.ours, zone, plan.arrived)]
    return HoldMove(tuple(wanted), tuple(asked))


async def move_holds(
    context: Context, backup: Backup, clients: Mapping[Side, Zfs], plans: Sequence[PrunePlan], emit: Emit
) -> None:
    """Have held on the vault what is to be held there, and nothing else; the new ones first. ``clients`` by side.

    Waits for no transaction group where that is so already. What cannot be done is a warning: nothing depends on it,
    but that what cannot be released is not pruned.
    """
    for plan in plans:
        if not plan.replica or plan.side not in clients:
            continue
        try:
            await _move(clients[plan.side], plan_holds(context, backup, plan))
        except ZvaultError as error:
            emit("warning", text=f"the holds on the {plan.side} are not as they should be: {error}")


async def _move(vault: Zfs, move: HoldMove) -> None:
    held = await vault.tagged(move.asked, KEEP_HOLD)
    changes = BatchedChanges(vault.lzc)
    if new := [name for name in move.wanted if name not in held]:
        with contextlib.suppress(NamesGone):  # somebody destroyed some of them: the others are held
            await changes.hold(new, KEEP_HOLD)
    if old := [name for name in move.asked if name in held.difference(move.wanted)]:
        await changes.release(old, KEEP_HOLD)


def why_held(
    env: Environment, name: SnapshotName, backups: Sequence[tuple[Backup, Tree]]
) -> tuple[Snapshot | None, str]:
    """The snapshot of that name among what ``backups`` have on a vault, and what zvault holds it for.

    The reason is empty where it need not be held, the snapshot None where no backup has it there.
    """
    for backup, tree in backups:
        dataset, snap = tree.get(name.dataset), tree.snapshot(name)
        if dataset is not None and snap is not None:
            return snap, _reason(env, backup, dataset, snap)
    return None, ""


def _reason(env: Environment, backup: Backup, dataset: Dataset, snap: Snapshot) -> str:
    """As ``why_held``. Of a dataset that the source may have lost either rules may be those that count."""
    here = (backup.keep.source,) if backup.prunes_only else (backup.keep.vault, backup.keep.gone)
    for rules in here:
        verdicts = decide(
            dataset.snapshots,
            rules,
            now=env.clock.time(),
            zone=env.zone,
            protected={},
            ours=ours_of(backup),
            lasting=backup.snapshot.skip_unchanged,
        )
        if snap in to_hold(verdicts, wanted_of(backup)):
            long = any(one.long for one in verdicts if one.snapshot == snap)
            return "a weekly, monthly or yearly rule keeps it" if long else f"the newest of {dataset.name}"
    return ""
