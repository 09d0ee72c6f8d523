"""What a listing saw, kept as long as it is surely still so, so that what did not change is not listed again.

``snapshots_changed`` (zfsprops(7), OpenZFS 2.2) is the second in which a dataset's snapshots last came or went.
Listing 6,300 snapshots takes 3 to 5 s, their 300 datasets with that property 0.5 s (lab). Bookmarks and holds do
not move it, so whoever changes those must say so (``forget``).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

CHANGED_SLACK = 2.0
"""Seconds: a change in the same second as the listing may not be in it."""

FEW = 200
"""Up to so many changed datasets are named to ``zfs list``; beyond that the whole tree is listed."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One dataset's lines, and the stamps they are good for."""

    guid: str
    changed: str
    lines: tuple[str, ...]


class Cache:
    """The snapshot and bookmark lines of datasets, by dataset name."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._seen: dict[str, Seen] = {}

    def now(self) -> float:
        """The time to take before a listing, for ``keep``."""
        return self._clock()

    def forget(self, dataset: str) -> None:
        """Its bookmarks or holds were changed."""
        self._seen.pop(dataset, None)

    def stale(self, stamps: dict[str, tuple[str, str]]) -> list[str]:
        """Which of these datasets, given with guid and ``snapshots_changed``, must be listed again."""
        return [
            name
            for name, (guid, changed) in stamps.items()
            if (seen := self._seen.get(name)) is None or (seen.guid, seen.changed) != (guid, changed)
        ]

    def lines(self, names: Iterable[str]) -> list[str]:
        """The kept lines of datasets that are not stale."""
        return [line for name in names for line in self._seen[name].lines]

    def keep(
        self, names: Iterable[str], stamps: dict[str, tuple[str, str]], lines: Iterable[str], began: float
    ) -> None:
        """Keep what a listing begun at ``began`` saw of these datasets, where its stamp proves that it is complete."""
        by_dataset: dict[str, list[str]] = defaultdict(list)
        for line in lines:
            by_dataset[line.split("\t", 1)[0].replace("#", "@").partition("@")[0]].append(line)
        for name in names:
            guid, changed = stamps[name]
            if changed.isdecimal() and int(changed) < began - CHANGED_SLACK:
                self._seen[name] = Seen(guid, changed, tuple(by_dataset[name]))
            else:
                self._seen.pop(name, None)
