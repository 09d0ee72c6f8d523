"""What a dataset has now, from what it had and what OpenZFS's events name as changed: only that is listed. Pure.

A listing opens the dataset anew for each of its snapshots where it is not mounted, as no dataset of a vault is: 0.8 ms
and more in the lab. So of a dataset with a hundred snapshots and one that is new, that one alone is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from zvault.core.names import DatasetName
from zvault.core.snapshot_list import SnapshotList
from zvault.zfs.listing_cache import DatasetPoints


@dataclass(frozen=True, slots=True)
class PartlyKnown:
    """The knowledge of a dataset: what it ``had``; which of its ``snapshots``, by snapname, may be others or gone; and
    whether any of its ``bookmarks`` may.
    """

    had: DatasetPoints
    snapshots: frozenset[str] = frozenset()
    bookmarks: bool = False

    def marks_may_differ(self, now: DatasetPoints) -> bool:
        """True if its bookmarks have to be listed, if of the snapshots asked for it has those of ``now``.

        A bookmark's date is told by the snapshot that it was made from, as long as that is there.
        """
        asked = {snap.guid for snap in self.had.snapshots if snap.snapname in self.snapshots}
        asked |= {snap.guid for snap in now.snapshots}
        return self.bookmarks or any(mark.guid in asked for mark in self.had.bookmarks)

    def with_snapshots(self, dataset: str, now: DatasetPoints) -> DatasetPoints:
        """Return what it has, if of the snapshots asked for it has those of ``now``; its bookmarks as they were."""
        if not self.snapshots:
            return self.had
        kept = (snap for snap in self.had.snapshots if snap.snapname not in self.snapshots)
        rows = [(one.snapname, one.guid, one.createtxg, one.creation) for one in (*kept, *now.snapshots)]
        return DatasetPoints(SnapshotList.of(DatasetName(dataset), rows) if rows else (), self.had.bookmarks)


def list_snapshots_to_ask(parts: Mapping[str, PartlyKnown]) -> list[str]:
    """The full names of the snapshots that have to be asked for."""
    return [f"{dataset}@{snap}" for dataset, part in parts.items() for snap in sorted(part.snapshots)]


def format_snapshot_lines(of_each: Mapping[str, DatasetPoints]) -> Iterator[str]:
    """The lines that a listing of the snapshots of these datasets would have."""
    for dataset, points in of_each.items():
        for snap in points.snapshots:
            yield f"{dataset}@{snap.snapname}\t{snap.guid}\t{snap.createtxg}"
