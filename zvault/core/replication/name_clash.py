"""Snapshots that were made just now under a name that another snapshot has on the vault. Pure.

After a clock was set back, a name can come again that the source pruned and the vault still has. Nothing of such a
dataset could be sent from then on: not that snapshot, and none after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from zvault.core.model import Dataset, Snapshot, Tree
from zvault.core.names import SnapshotName
from zvault.core.replication.lineage import DatasetPair
from zvault.core.snapshot_list import Snapnames, guids_of


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
        found += [
            snap.name for snap in pair.source.snapshots if snap.name in made and _is_another(snap, guids)
        ]
    return found


def still_own(calls: Iterable[Sequence[str]], source: Tree, vault: Iterable[Dataset]) -> list[Snapshot]:
    """The snapshots of a source that some calls made (``calls``: the full names of each) and that still are those.

    A name tells nothing: a dataset may have been destroyed and received again since. What the vault has by GUID was
    received, as nothing of what was made was sent yet. And all that one call makes is of one transaction group: others
    than those of most are not of it, and where there is no majority none surely is.
    """
    there = [[snap for name in names if (snap := source.snapshot(name)) is not None] for names in calls]
    sought = {snap.guid for some in there for snap in some}
    known = {guid for dataset in vault for guid in sought.intersection(guids_of(dataset.snapshots))}
    found: list[Snapshot] = []
    for some in there:
        left = [snap for snap in some if snap.guid not in known]
        for txg, count in Counter(snap.createtxg for snap in left).most_common(1):
            if 2 * count > len(left):
                found += [snap for snap in left if snap.createtxg == txg]
    return found


def _is_another(snap: Snapshot, there: dict[str, int]) -> bool:
    return there.get(snap.snapname, snap.guid) != snap.guid
