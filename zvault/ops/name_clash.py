"""Gives up the snapshots that a run made just now and made anew, as their name is another snapshot's on the vault."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from zvault.api.emit import Emit
from zvault.config.schema import Backup
from zvault.core.errors import ZvaultError
from zvault.core.names import SnapshotName
from zvault.core.replication.name_clash import of
from zvault.core.snapshot_list import Snapnames
from zvault.ops.context import Context
from zvault.ops.replication.sides_and_plan import Sides
from zvault.ops.retention.prune import destroy_in_batches
from zvault.ops.state.source_tree import source_tree

NAMED = 3
"""Datasets named in one warning."""


def names_on_vault(context: Context, backup: Backup) -> Snapnames:
    """The snapnames that a backup's datasets had on the vault when they were listed last, if they were."""
    pairs = context.known.of(context.env, backup).pairs.pairs.values()
    return Snapnames(pair.vault.snapshots for pair in pairs if pair.vault is not None)


def told(clashing: Sequence[SnapshotName]) -> str:
    """Which snapshots clash, in words."""
    named = ", ".join(clashing[:NAMED]) + (f" and {len(clashing) - NAMED} more" * (len(clashing) > NAMED))
    return f"the vault has another snapshot of that name (the clock was set back?): {named}"


async def give_up(
    context: Context, backup: Backup, sides: Sides, replaced: Collection[str], emit: Emit
) -> None:
    """Destroy snapshots of the source (``replaced``, full names) that were made anew, and nothing else.

    What somebody holds or uses by now is left and told. After an error what went is looked at: some may have gone.
    """
    source = context.clients.source_of(backup)
    mine = [snap for dataset in sides.source for snap in of(replaced, dataset.snapshots)]
    gone, trouble = await destroy_in_batches(source, mine, emit)
    if trouble is not None:
        emit("warning", text=f"the snapshots that were made anew could not all be destroyed: {trouble}")
        try:
            left = await source_tree(context.clients, backup, sizes=False)
        except ZvaultError as error:
            emit("warning", text=f"how many of them went is not known: {error}")
        else:
            gone = [snap for snap in mine if left.snapshot(snap.name) != snap]
    if gone:
        emit("pruned", side="source", count=len(gone), snapshots=[snap.name for snap in gone])
