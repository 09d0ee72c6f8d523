"""Snapshots that were made just now under a name that another snapshot has on the vault. Pure.

After a clock was set back, a name can come again that the source pruned and the vault still has. Nothing of such a
dataset could be sent from then on: not that snapshot, and none after it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from zvault.core.model import Snapshot
from zvault.core.names import SnapshotName
from zvault.core.replication.lineage import DatasetPair
from zvault.core.snapshot_list import Snapnames


def clashes(made: Collection[str], pairs: Iterable[DatasetPair]) -> list[SnapshotName]:
    """Which of the snapshots ``made``, by full name, have a name that the vault's dataset has for another one.

    Only of datasets that can go on from what the vault has: of others a conflict is told in any case.
    """
    found: list[SnapshotName] = []
    snapnames = {SnapshotName(name).snapname for name in made}
    for pair in pairs:
        if pair.vault is None or pair.base is None:
            continue
        there = Snapnames([pair.vault.snapshots])
        if not any(name in there for name in snapnames):
            continue
        guids = {snap.snapname: snap.guid for snap in pair.vault.snapshots if snap.snapname in snapnames}
        found += [snap.name for snap in of(made, pair.source.snapshots) if _is_another(snap, guids)]
    return found


def of(made: Collection[str], snapshots: Iterable[Snapshot]) -> list[Snapshot]:
    """Those of some snapshots that were made."""
    return [snap for snap in snapshots if snap.name in made]


def _is_another(snap: Snapshot, there: dict[str, int]) -> bool:
    return there.get(snap.snapname, snap.guid) != snap.guid
