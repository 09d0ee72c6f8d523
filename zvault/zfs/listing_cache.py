"""What a listing saw, kept as long as it is surely still so, so that what did not change is not listed again.

``snapshots_changed`` (zfsprops(7), OpenZFS 2.2) is the second in which a dataset's snapshots last came or went.
Listing 6,300 snapshots takes 5 s, their 300 datasets with that property 0.5 s (lab). Bookmarks and holds do not
move it, so whoever changes those must say so (``forget``).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from zvault.core.model import Bookmark, Snapshot
from zvault.core.snapshot_list import SnapshotList
from zvault.zfs.listing_cache_files import ListingCacheFiles

CHANGED_SLACK = 2.0
"""Seconds: a change in the same second as the listing may not be in it."""

MOST_FORGOTTEN = 10_000
"""Datasets whose changes are remembered, for listings under way, before old ones are dropped."""

LISTING_TAKES = 3600.0
"""Seconds that no listing takes."""

SINGLY_LISTED_DATASETS = 200
"""Up to so many changed datasets are named to ``zfs list``; beyond that the whole tree is listed."""


@dataclass(frozen=True, slots=True)
class DatasetPoints:
    """One dataset's snapshots and bookmarks, each oldest first."""

    snapshots: Sequence[Snapshot] = ()
    bookmarks: tuple[Bookmark, ...] = ()

    def again(self) -> DatasetPoints:
        """The same as other objects: by those whoever works something out knows that a hold may have changed."""
        some = self.snapshots
        return DatasetPoints(some.again() if isinstance(some, SnapshotList) else some, self.bookmarks)


NONE = DatasetPoints()


@dataclass(slots=True)
class CachedDataset:
    """The points of one dataset, and the stamps they are good for.

    ``holds`` are the tags of the snapshots that were asked.
    """

    guid: str
    changed: str
    points: DatasetPoints
    holds: dict[str, set[str]] | None = None


class ListingCache:
    """The snapshots, bookmarks and holds of datasets, by dataset name. Snapshots that are seen are ``kept``, too."""

    def __init__(self, clock: Callable[[], float] = time.time, kept: ListingCacheFiles | None = None) -> None:
        self._clock = clock
        self._kept = kept
        self._seen: dict[str, CachedDataset] = {}
        self._forgotten: dict[str, float] = {}
        self._latest = 0.0
        self._cleared = -math.inf

    def now(self) -> float:
        """The time to take before a listing, for ``keep``. A clock that was set back may stamp two changes alike."""
        now = self._clock()
        if now < self._latest:
            self._seen.clear()
        self._latest = now
        return now

    def forget(self, dataset: str) -> None:
        """Its bookmarks or holds were changed. What a listing under way sees of it is not kept either."""
        now = self._clock()
        self._seen.pop(dataset, None)
        self._forgotten[dataset] = now
        if len(self._forgotten) > MOST_FORGOTTEN:
            self._forgotten = {n: at for n, at in self._forgotten.items() if abs(now - at) < LISTING_TAKES}

    def clear(self) -> None:
        """Anything may have changed. What a listing under way sees is not kept either."""
        self._seen.clear()
        self._cleared = self._clock()

    def stale(self, stamps: Mapping[str, tuple[str, str]]) -> list[str]:
        """Which of these datasets, given with guid and ``snapshots_changed``, must be listed again."""
        return [
            name
            for name, (guid, changed) in stamps.items()
            if (seen := self._seen.get(name)) is None or (seen.guid, seen.changed) != (guid, changed)
        ]

    def points(self, names: Iterable[str]) -> dict[str, DatasetPoints]:
        """Return what is kept of datasets that are not stale."""
        return {name: self._seen[name].points for name in names}

    def keep(
        self,
        names: Iterable[str],
        stamps: Mapping[str, tuple[str, str]],
        points: Mapping[str, DatasetPoints],
        began: float,
    ) -> None:
        """Keep what a listing begun at ``began`` saw of these datasets, where its stamp proves that it is complete."""
        for name in names:
            guid, changed = stamps[name]
            complete = changed.isdecimal() and int(changed) < began - CHANGED_SLACK
            if complete and max(self._forgotten.get(name, 0.0), self._cleared) < began:
                seen = self._seen[name] = CachedDataset(guid, changed, points.get(name, NONE))
                self._forgotten.pop(name, None)
                if self._kept is not None:
                    self._kept.note_snapshots(name, (guid, changed), seen.points.snapshots, began)
            else:
                self._seen.pop(name, None)

    def holds(self, dataset: str, snapshots: Sequence[Snapshot]) -> Mapping[str, set[str]]:
        """The holds of those of a dataset's snapshots, as it was listed, of which they were asked since."""
        seen = self._seen.get(dataset)
        known = seen.holds if seen is not None and seen.points.snapshots is snapshots else None
        return known or {}

    def keep_holds(self, dataset: str, snapshots: Sequence[Snapshot], holds: Mapping[str, set[str]]) -> None:
        """Keep what was asked of some of a dataset's snapshots, as long as they are those that are kept of it."""
        seen = self._seen.get(dataset)
        if seen is not None and seen.points.snapshots is snapshots:
            seen.holds = {**(seen.holds or {}), **holds}
