"""Gives up the snapshots that a run made just now, where their name is another snapshot's on the vault."""

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
from zvault.ops.retention.prune import Explainer, destroy

NAMED = 3
"""Datasets named in one warning."""


def names_on_vault(context: Context, backup: Backup) -> Snapnames:
    """The snapnames that a backup's datasets had on the vault when they were listed last, if they were."""
    pairs = context.known.of(context.env, backup).pairs.pairs.values()
    return Snapnames(pair.vault.snapshots for pair in pairs if pair.vault is not None)


async def give_up(
    context: Context,
    backup: Backup,
    sides: Sides,
    made: Collection[str],
    clashing: Sequence[SnapshotName],
    emit: Emit,
) -> bool:
    """Destroy all that one run has made (``made``, full names), and nothing else; whether anything of it went.

    What somebody holds or uses by now is left and told. So is all of it where nothing may be destroyed.
    """
    named = ", ".join(clashing[:NAMED]) + (f" and {len(clashing) - NAMED} more" * (len(clashing) > NAMED))
    why = f"the vault has another snapshot of that name (the clock was set back?): {named}"
    if context.env.min_age_of(backup.source):
        emit("warning", text=f"{why}; it stays, for the source lies in a vault with min_age")
        return False
    source = context.clients.source_of(backup)
    mine = [snap for dataset in sides.source for snap in of(made, dataset.snapshots)]
    emit("warning", text=f"the snapshot is made anew under a later name, as {why}")
    try:
        gone = await destroy(source.lzc, mine, emit, Explainer(source))
    except ZvaultError as error:
        emit("warning", text=f"the snapshot could not be destroyed: {error}")
        return False
    if gone:
        emit("pruned", side="source", count=len(gone), snapshots=[snap.name for snap in gone])
    return bool(gone)
