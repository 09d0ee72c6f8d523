"""Gives up the snapshots that a run made just now and made anew, as their name is another snapshot's on the vault."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from zvault.api.events import Emit, PrunedEvent, WarningEvent
from zvault.config.schema import Backup
from zvault.core.errors import ZvaultError
from zvault.core.model import Snapshot, Tree
from zvault.core.names import SnapshotName
from zvault.core.replication.name_clash import (
    find_clashes,
    list_left_behind,
    list_still_own,
    list_waiting_guids,
)
from zvault.core.snapshot_list import SnapnameIndex
from zvault.ops.context import Context
from zvault.ops.replication.listing import BothListings
from zvault.ops.retention.other_backups import OtherBackups
from zvault.ops.retention.prune import destroy_in_batches
from zvault.ops.state.source_tree import list_source

WARNED_DATASETS = 3
"""Datasets named in one warning."""


def list_names_on_vault(context: Context, backup: Backup) -> SnapnameIndex:
    """The snapnames that a backup's datasets had on the vault, or on any of its table's vaults, when they were listed
    last, if they were.
    """
    backups = [context.env.backup(name) for name in backup.siblings or (backup.name,)]
    known = [context.known.of(context.env, one).pairs.pairs.values() for one in backups]
    return SnapnameIndex(pair.vault.snapshots for pairs in known for pair in pairs if pair.vault is not None)


async def list_to_replace(
    context: Context, backup: Backup, sides: BothListings, calls: Sequence[Sequence[str]], emit: Emit
) -> list[Snapshot]:
    """The snapshots that a run made by some calls (the full names of each), where some have to be made anew.

    None where no clash would go with them: it is told why those stay.
    """
    made_now = {name for names in calls for name in names}
    clashing = await sides.compute(find_clashes, made_now, sides.pairing.pairs) if calls else []
    if not clashing:
        return []
    why = f"the vault has another snapshot of that name (the clock was set back?): {_named(clashing)}"
    if context.env.min_age_of(backup.source):
        emit(WarningEvent(text=f"{why}; it stays, for the source lies in a vault with min_age"))
        return []
    made = await sides.compute(list_still_own, calls, sides.source, sides.vault)
    needed = await sides.compute(_still_needed, context, backup, sides.source, made)
    names = {snap.name for snap in made}
    if not any(name in names and name not in needed for name in clashing):
        reason = next(
            (needed[name] for name in clashing if name in needed), "it may not be the one that this run made"
        )
        emit(WarningEvent(text=f"{why}; it stays: {reason}"))
        return []
    emit(WarningEvent(text=f"the snapshot is made anew under a later name, as {why}"))
    return made


async def list_to_give_up(
    context: Context, backup: Backup, sides: BothListings, snapname: str, emit: Emit
) -> list[Snapshot]:
    """The snapshots that an earlier run was to make anew and destroy, but for a crash, where this one has made its own.

    ``snapname`` is this run's; where it has none they stay written down.
    """
    written_down = context.records.replaced.of(backup.name)
    if not written_down or not snapname or context.env.min_age_of(backup.source):
        return []
    found = await sides.compute(list_left_behind, written_down, snapname, sides.source, sides.pairing.pairs)
    left = {snap.guid for snap in found} | list_waiting_guids(written_down, snapname, sides.source)
    context.records.replaced.remove(backup.name, {one.guid for one in written_down} - left)
    needed = await sides.compute(_still_needed, context, backup, sides.source, found)
    found = [snap for snap in found if snap.name not in needed]
    if found:
        named = _named([snap.name for snap in found])
        emit(WarningEvent(text=f"left by an earlier run that was to make them anew: {named}"))
    return found


def _named(names: Sequence[SnapshotName]) -> str:
    """Some of the names, and how many more there are."""
    return ", ".join(names[:WARNED_DATASETS]) + (
        f" and {len(names) - WARNED_DATASETS} more" * (len(names) > WARNED_DATASETS)
    )


def _still_needed(
    context: Context, backup: Backup, source: Tree, snapshots: Iterable[Snapshot]
) -> dict[SnapshotName, str]:
    """Which of a source's snapshots another backup has still to send, by full name, with the reason."""
    others = OtherBackups.of(context, backup)
    found: dict[SnapshotName, str] = {}
    for snap in snapshots:
        dataset = source.get(snap.dataset)
        why = others.need(dataset).get(snap.guid) if dataset is not None else None
        if why is not None:
            found[snap.name] = why
    return found


async def give_up_snapshots(
    context: Context, backup: Backup, replaced: Sequence[Snapshot], emit: Emit
) -> None:
    """Destroy snapshots of the source that were made anew, and nothing else.

    What is another one by now stays. So does, and is told, what somebody holds or uses, or another backup has still to
    send. After an error it is looked at what went: some may have gone. The others stay written down for the next run.
    """
    source = context.clients.source_of(backup)
    gone: list[Snapshot] = []
    try:
        before = await list_source(context.clients, backup, sizes=False)
        there = [snap for snap in replaced if before.snapshot(snap.name) == snap]
        needed = _still_needed(context, backup, before, there)
        for name, why in needed.items():
            emit(WarningEvent(text=f"kept {name}: {why}"))
        mine = [snap for snap in there if snap.name not in needed]
        gone, trouble = await destroy_in_batches(source, mine, emit)
        if trouble is not None:
            emit(
                WarningEvent(
                    text=f"not all of the snapshots that were made first could be destroyed: {trouble}"
                )
            )
            after = await list_source(context.clients, backup, sizes=False)
            gone = [snap for snap in mine if after.snapshot(snap.name) != snap]
    except ZvaultError as error:
        emit(WarningEvent(text=f"the snapshots that were made first may still be there: {error}"))
    if gone:
        emit(PrunedEvent(side="source", count=len(gone), snapshots=[snap.name for snap in gone]))
    context.records.replaced.remove(backup.name, {snap.guid for snap in gone})
