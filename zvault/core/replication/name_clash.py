"""Snapshots that were made just now under a name that another snapshot has on the vault. Pure.

After a clock was set back, a name can come again that the source pruned and the vault still has. Nothing of such a
dataset could be sent from then on: not that snapshot, and none after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from zvault.core.model import Dataset, Snapshot, Tree
from zvault.core.names import SnapshotName
from zvault.core.replication.lineage import DatasetPair
from zvault.core.snapshot_list import SnapnameIndex, list_guids


class ReplacedSnapshot(NamedTuple):
    """A snapshot that a run was to make anew and then to destroy, as that run wrote it down."""

    name: SnapshotName
    guid: int
    createtxg: int


def find_clashes(made: Collection[str], pairs: Iterable[DatasetPair]) -> list[SnapshotName]:
    """Which of the snapshots ``made``, by full name, have a name that the vault's dataset has for another one.

    Only of datasets that can go on from what the vault has: of others a conflict is told in any case.
    """
    found: list[SnapshotName] = []
    snapnames = {SnapshotName(name).snapname for name in made}
    for pair in pairs:
        if pair.vault is None or pair.base is None:
            continue
        there = SnapnameIndex([pair.vault.snapshots])
        if not any(name in there for name in snapnames):
            continue
        guids = {snap.snapname: snap.guid for snap in pair.vault.snapshots if snap.snapname in snapnames}
        found += [
            snap.name for snap in pair.source.snapshots if snap.name in made and _is_another(snap, guids)
        ]
    return found


def list_still_own(calls: Iterable[Sequence[str]], source: Tree, vault: Iterable[Dataset]) -> list[Snapshot]:
    """The snapshots of a source that some calls made (``calls``: the full names of each) and that still are those.

    A name tells nothing: a dataset may have been destroyed and received again since. What the vault has by GUID was
    received, as nothing of what was made was sent yet. And all that one call makes is of one transaction group: others
    than those of most are not of it, and where there is no majority none surely is.
    """
    there = [[snap for name in names if (snap := source.snapshot(name)) is not None] for names in calls]
    sought = {snap.guid for some in there for snap in some}
    known = {guid for dataset in vault for guid in sought.intersection(list_guids(dataset.snapshots))}
    found: list[Snapshot] = []
    for some in there:
        left = [snap for snap in some if snap.guid not in known]
        for txg, count in Counter(snap.createtxg for snap in left).most_common(1):
            if 2 * count > len(left):
                found += [snap for snap in left if snap.createtxg == txg]
    return found


def list_left_behind(
    written_down: Iterable[ReplacedSnapshot], snapname: str, source: Tree, pairs: Collection[DatasetPair]
) -> list[Snapshot]:
    """Which snapshots a run that was killed was still to destroy, now that a later run has made its own, ``snapname``.

    They are those that were written down, by GUID and transaction group; their names are still others' on the vault,
    which has got none of them by GUID; and their datasets have the later run's snapshot.
    """
    there = [snap for one in written_down if (snap := _is_there(source, one)) is not None]
    clashing = set(find_clashes({snap.name for snap in there}, pairs))
    sought = {snap.guid for snap in there}
    sent = {
        guid
        for pair in pairs
        if pair.vault is not None
        for guid in sought.intersection(list_guids(pair.vault.snapshots))
    }
    found = [snap for snap in there if snap.name in clashing and snap.guid not in sent]
    return [snap for snap in found if _has_later(source, snap, snapname)]


def list_waiting_guids(written_down: Iterable[ReplacedSnapshot], snapname: str, source: Tree) -> set[int]:
    """The GUIDs of those that are still there, and whose dataset has no later snapshot ``snapname`` yet."""
    there = [snap for one in written_down if (snap := _is_there(source, one)) is not None]
    return {snap.guid for snap in there if not _has_later(source, snap, snapname)}


def _has_later(source: Tree, snap: Snapshot, snapname: str) -> bool:
    later = source.snapshot(snap.dataset.snapshot(snapname))
    return later is not None and later.createtxg > snap.createtxg


def _is_there(source: Tree, one: ReplacedSnapshot) -> Snapshot | None:
    snap = source.snapshot(one.name)
    return snap if snap is not None and (snap.guid, snap.createtxg) == one[1:] else None


def _is_another(snap: Snapshot, there: dict[str, int]) -> bool:
    return there.get(snap.snapname, snap.guid) != snap.guid
