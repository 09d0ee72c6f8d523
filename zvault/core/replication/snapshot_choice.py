"""Of which datasets a run makes a snapshot, and why. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from zvault.core.errors import SnapshotRefused
from zvault.core.name_rules import DatasetChoice
from zvault.core.names import DatasetName
from zvault.core.replication.name_length import NameConflict
from zvault.core.replication.unchanged_datasets import UnchangedDatasets


def choose_for_snapshot(
    name: DatasetName,
    *,
    make: bool,
    conflicts: Mapping[str, NameConflict],
    obstacles: Mapping[str, SnapshotRefused],
    unchanged: UnchangedDatasets,
) -> DatasetChoice:
    """Decide whether a run makes a snapshot of a dataset that its backup takes.

    ``make``: whether the backup makes any. ``conflicts`` are datasets whose names are too long, ``obstacles`` those of
    which ZFS makes none as they are now; ``unchanged`` is what is known to need none, empty where the backup does not
    skip such.
    """
    if not make:
        return DatasetChoice(False, "snapshot.make is off: a run sends the snapshots that are there")
    if (conflict := conflicts.get(name)) is not None:
        return DatasetChoice(False, conflict.problem)
    if (obstacle := obstacles.get(name)) is not None:
        return DatasetChoice(False, f"{obstacle.why}; {obstacle.next}")
    if (snap := unchanged.stands.get(name)) is not None:
        return DatasetChoice(False, f"nothing was written to it since @{snap.snapname}, which the vault has")
    if (why := unchanged.changed.get(name)) is not None:
        return DatasetChoice(True, f"it is not surely unchanged: {why}")
    return DatasetChoice(True, "each run makes one of every dataset that it takes")
