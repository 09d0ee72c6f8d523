"""Hold what is to be held on a vault, and release what is not any more: once a run, before it prunes. And say why.

The same goes for a replica that another host sends and this one only prunes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass

from zvault.api.backups import Side
from zvault.api.events import Emit, WarningEvent
from zvault.config.schema import Backup
from zvault.core.cached_results import list_new_ones
from zvault.core.errors import ToolFailed, ZvaultError
from zvault.core.model import Dataset, Snapshot, Tree
from zvault.core.names import DatasetName, SnapshotName
from zvault.core.policy.retention import KeepDecision, decide_retention
from zvault.core.policy.vault_holds import select_possibly_held, select_snapshots_to_hold
from zvault.core.replication.base_names import KEEP_HOLD
from zvault.ops.context import Context
from zvault.ops.replication.batched_changes import BatchedChanges
from zvault.ops.replication.listing import make_own_filter, make_sent_filter
from zvault.ops.retention.prune_plan import PrunePlan, find_verdicts_dataset
from zvault.ops.run_outcome import describe_refusals
from zvault.ops.state.cached_backups import HeldAsWanted
from zvault.ops.state.environment import Environment
from zvault.system.side_threads import LongList, compute_aside
from zvault.zfs.changes import NamesGone
from zvault.zfs.client import Zfs


@dataclass(frozen=True, slots=True)
class HoldMove:
    """The names of what is to be held on a vault, and of what to ask whether it is held."""

    wanted: Sequence[SnapshotName]
    asked: Sequence[SnapshotName]


def plan_holds(context: Context, backup: Backup, plan: PrunePlan, lapses: int | None = None) -> HoldMove:
    """Plan the holds on a backup's vault by the verdicts on it.

    Left out are datasets whose holds were as they should be, which are the same as then: an event would tell of one
    that was held or released since. Where events were lost since (``lapses``), or none tell, all are asked.
    """
    brought, zone = make_sent_filter(backup), context.env.zone
    wanted: list[SnapshotName] = LongList()
    asked: list[SnapshotName] = LongList()
    for group in _unsettled(plan, lapses):
        verdicts = list(group)  # made once, for each is made anew where it is asked for
        wanted += [snap.name for snap in select_snapshots_to_hold(verdicts, brought)]
        asked += [
            snap.name for snap in select_possibly_held(verdicts, brought, plan.ours, zone, plan.arrived)
        ]
    return HoldMove(wanted, asked)


def _unsettled(plan: PrunePlan, lapses: int | None) -> Sequence[Sequence[KeepDecision]]:
    """The verdicts whose holds are not known to be as they should be."""
    held = plan.known.held if plan.known is not None else None
    if held is None or lapses is None or held.lapses != lapses:
        return plan.groups
    new = list_new_ones(held.groups, plan.groups)
    known = set(map(id, plan.groups)) if held.but else set()
    return [*new, *(group for group in held.but if id(group) in known)]


async def move_holds(
    context: Context, backup: Backup, clients: Mapping[Side, Zfs], plans: Sequence[PrunePlan], emit: Emit
) -> None:
    """Have held on the vault what is to be held there, and nothing else; the new ones first. ``clients`` by side.

    Waits for no transaction group where that is so already. What cannot be done is a warning: nothing depends on it,
    but that what cannot be released is not pruned.
    """
    for plan in plans:
        zfs = clients.get(plan.side)
        if not plan.replica or zfs is None:
            continue
        lapses = zfs.lapses
        try:
            move = await plan.compute(plan_holds, context, backup, plan, lapses)
            moved, troubles = await _move(zfs, move)
        except ZvaultError as error:
            emit(WarningEvent(text=f"the holds on the {plan.side} are not as they should be: {error}"))
            continue
        if troubles:
            emit(
                WarningEvent(
                    text=f"the holds on the {plan.side} are not as they should be: {describe_refusals(troubles)}",
                )
            )
        else:
            note_held(plan, moved, lapses)


Troubles = Mapping[DatasetName, ZvaultError]
"""By dataset, why its holds are not known, or not as they should be."""


async def _move(vault: Zfs, move: HoldMove) -> tuple[set[DatasetName], Troubles]:
    """Make the changes; the datasets of which any was made, and what kept others from having theirs."""
    held, untold = await _tagged(vault, move.asked)
    changes = BatchedChanges(vault.lzc)
    new, old, moved = await compute_aside(
        len(move.wanted) + len(move.asked), None, _differences, move, held, untold.keys()
    )
    refused = await _change(changes.hold, new)
    refused |= await _change(changes.release, old)
    return moved, {**untold, **refused}


async def _tagged(vault: Zfs, names: Sequence[SnapshotName]) -> tuple[set[str], Troubles]:
    """Which snapshots zvault holds there; and the datasets that do not tell theirs, as one may be damaged, with why.

    Raises ToolFailed where none does.
    """
    try:
        return await vault.tagged(names, KEEP_HOLD), {}
    except ToolFailed as error:
        by_dataset = _by_dataset(names)
        if len(by_dataset) == 1:
            raise
        failure = error
    held: set[str] = set()
    untold: dict[DatasetName, ZvaultError] = {}
    for dataset, of_it in by_dataset.items():
        try:
            held |= await vault.tagged(of_it, KEEP_HOLD)
        except ToolFailed as error:
            untold[dataset] = error
    if len(untold) == len(by_dataset):
        raise failure
    return held, untold


def _by_dataset(names: Sequence[SnapshotName]) -> dict[DatasetName, list[SnapshotName]]:
    found: dict[DatasetName, list[SnapshotName]] = {}
    for name in names:
        found.setdefault(name.dataset, []).append(name)
    return found


def _differences(
    move: HoldMove, held: Set[str], untold: Set[DatasetName]
) -> tuple[list[SnapshotName], list[SnapshotName], set[DatasetName]]:
    """What is to be held and is not, what is held and need not be, and the datasets of both.

    ``untold`` datasets have none of it: nobody knows what is held of them.
    """
    new = [name for name in move.wanted if name not in held and name.dataset not in untold]
    needless = held - set(move.wanted)
    old = [name for name in move.asked if name in needless]
    return new, old, {name.dataset for name in (*new, *old)}


async def _change(
    call: Callable[[Sequence[str], str], Awaitable[None]], names: Sequence[SnapshotName]
) -> dict[DatasetName, ZvaultError]:
    """Hold or release, by one call for all, or where that is refused by one for each dataset; what each refused.

    One that is gone is no error: somebody destroyed it, and the others are held.
    """
    if not names:
        return {}
    try:
        await call(names, KEEP_HOLD)
    except NamesGone:
        return {}
    except ToolFailed as error:
        by_dataset = _by_dataset(names)
        if len(by_dataset) == 1:
            return {names[0].dataset: error}
        refused: dict[DatasetName, ZvaultError] = {}
        for of_it in by_dataset.values():
            refused |= await _change(call, of_it)
        return refused
    return {}


def note_held(plan: PrunePlan, moved: Set[str], lapses: int | None) -> None:
    """Note of which datasets all holds were as they should be before anything was done."""
    if plan.known is None or lapses is None:
        return
    but = [group for group in plan.groups if find_verdicts_dataset(group) in moved] if moved else []
    plan.known.held = HeldAsWanted(plan.groups, lapses, but)


def explain_hold(
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
    """As ``explain_hold``. Of a dataset that the source may have lost either rules may be those that count."""
    here = (backup.keep.source,) if backup.prunes_only else (backup.keep.vault, backup.keep.gone)
    for rules in here:
        verdicts = decide_retention(
            dataset.snapshots,
            rules,
            now=env.clock.time(),
            zone=env.zone,
            protected={},
            ours=make_own_filter(backup),
            lasting=backup.snapshot.skip_unchanged,
        )
        if snap in select_snapshots_to_hold(verdicts, make_sent_filter(backup)):
            long = any(one.long for one in verdicts if one.snapshot == snap)
            return "a weekly, monthly or yearly rule keeps it" if long else f"the newest of {dataset.name}"
    return ""
