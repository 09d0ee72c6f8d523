"""Finds the datasets of a backup that need no snapshot, because the vault has them as they are."""

from __future__ import annotations

from zvault.api.events import Emit, WarningEvent
from zvault.config.schema import Backup
from zvault.core.errors import ZvaultError
from zvault.core.model import Snapshot
from zvault.core.replication.lineage import DatasetPair
from zvault.core.replication.steering_properties import list_left_out_steering
from zvault.core.replication.unchanged_datasets import (
    NOTHING_UNCHANGED,
    UnchangedDatasets,
    explain_needed_snapshot,
    has_same_properties,
)
from zvault.ops.context import Context
from zvault.ops.replication.listing import BothListings, list_both_sides, make_own_filter
from zvault.zfs import compare_settings
from zvault.zfs.client import Zfs


async def find_unchanged(context: Context, backup: Backup, vault: Zfs, emit: Emit) -> UnchangedDatasets:
    """Those that are unchanged now, if the backup skips them. Their pool is synced: ``written`` is of what is on disk.

    Where that cannot be done all are to be snapshotted, and it is told.
    """
    if not backup.snapshot.skip_unchanged:
        return NOTHING_UNCHANGED
    at = context.env.clock.time()
    if not await _sync_source(context, backup, emit):
        return NOTHING_UNCHANGED
    return await list_unchanged_among(
        context, backup, vault, await list_both_sides(context, backup, vault), at
    )


async def find_unwritten(context: Context, backup: Backup, emit: Emit) -> UnchangedDatasets:
    """Those of which the newest snapshot is zvault's and nothing was written since, whatever a vault has of them.

    For a run that cannot have its vault while another vault of the backup has its own run: whoever snapshots all of
    them would have that one send what is unchanged for it. Never an encrypted one, as in ``explain_needed_snapshot``.
    """
    if not backup.snapshot.skip_unchanged:
        return NOTHING_UNCHANGED
    at, ours = context.env.clock.time(), make_own_filter(backup)
    if not await _sync_source(context, backup, emit):
        return NOTHING_UNCHANGED
    sides = await list_both_sides(context, backup, None)
    stands: dict[str, Snapshot] = await sides.compute(
        lambda: {
            dataset.name: newest
            for dataset, _ in sides.pairs
            if not (dataset.written or dataset.encrypted)
            and (newest := dataset.newest()) is not None
            and ours(newest)
        }
    )
    return UnchangedDatasets(at, stands)


async def _sync_source(context: Context, backup: Backup, emit: Emit) -> bool:
    """Have what was written on disk, where it counts; whether that went."""
    try:
        await context.clients.zpool_at(backup.source.host).sync(backup.source.dataset.pool)
    except ZvaultError as error:
        told = f"all datasets are snapshotted, as it is not known which are unchanged: {error}"
        emit(WarningEvent(text=told))
        return False
    return True


async def list_unchanged_among(
    context: Context, backup: Backup, vault: Zfs, sides: BothListings, at: float
) -> UnchangedDatasets:
    """Those of what a look saw ``at`` this time, with ``written`` of then. Raises ToolFailed."""
    ours, pairs = make_own_filter(backup), sides.pairing.pairs
    why: dict[str, str] = await sides.compute(
        lambda: {pair.source.name: explain_needed_snapshot(pair, ours) for pair in pairs}
    )
    quiet = [pair for pair in pairs if not why[pair.source.name]]
    if quiet and backup.send.properties:
        otherwise = await _set_otherwise(backup, context.clients.source_of(backup), vault, quiet)
        why |= dict.fromkeys(otherwise, "its properties are not those that the vault received")
    stands: dict[str, Snapshot] = {
        pair.source.name: newest
        for pair in quiet
        if not why[pair.source.name] and (newest := pair.source.newest()) is not None
    }
    return UnchangedDatasets(at, stands, {name: told for name, told in why.items() if told})


async def _set_otherwise(backup: Backup, source: Zfs, vault: Zfs, pairs: list[DatasetPair]) -> set[str]:
    """The datasets of which a stream would bring other properties than the last one did, or nobody can tell."""
    names = {pair.source.name: pair.vault.name for pair in pairs if pair.vault is not None}
    steering = {
        name
        for pair in pairs
        if pair.vault is not None
        for name in list_left_out_steering(pair.vault.receive_properties)
    }
    hidden = sorted({*backup.receive.properties.hidden, *steering})
    mine, its = await compare_settings.read_both_settings(
        source, list(names), vault, list(names.values()), hidden
    )
    received = {
        name: {key: one.received for key, one in of_it.items() if one.received != "-"}
        for name, of_it in its.items()
    }
    return {
        here
        for here, there in names.items()
        if here not in mine or there not in received or not has_same_properties(mine[here], received[there])
    }
