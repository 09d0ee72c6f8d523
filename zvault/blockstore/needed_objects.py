"""What a root and the moments that it keeps need of a bucket, object by object; and which version of it counts.

Nothing here needs the writer to stand still: what is garbage for a root stays so for all that come after it, since a
store is only ever rewound to a moment that is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from zvault.blockstore.format import find_key_numbers, make_checkpoint_key, make_map_key, make_segment_key
from zvault.blockstore.kept_moments import KeptMoment, MomentNeeds
from zvault.blockstore.map.root import CheckpointRoot
from zvault.blockstore.map.usage import SegmentUsage
from zvault.object_store.interface import ListedVersion, ObjectStore, join_version

VersionVerdict = Literal["needed", "fresh", "garbage", "foreign"]
"""``fresh``: newer than the root, or needed by the one before it; ``foreign``: no name that the block store gives."""

DRILL_FOLDER = "drill/"
"""What begins so, below a store's prefix, was made to be removed."""
MOST_COMPARED = 4
"""Versions of one object that are read to see whether they are the same: a put that was tried again."""


class NeededObjects:
    """The objects that one store needs, at one root, by the counts that belong to it."""

    def __init__(
        self, prefix: str, root: CheckpointRoot, usage: SegmentUsage, before: Sequence[KeptMoment] = ()
    ) -> None:
        """``before``: what the root before this one kept."""
        self.prefix, self.root, self.usage = prefix, root, usage
        self._moments = {(one.epoch, one.number) for one in (*before, *root.past)}
        self._needs = MomentNeeds([*before, *root.past])

    def verdict(self, key: str) -> VersionVerdict:
        """Judge what an object of this name is."""
        name = key.removeprefix(f"{self.prefix}/")
        if name in ("store", "keys", "epoch"):
            return "needed"
        if name.startswith(DRILL_FOLDER):
            return "garbage"
        first, second = find_key_numbers(key)
        match name.partition("/")[0]:
            case "segments" if key == make_segment_key(self.prefix, first, second):
                return self._segment(first, second)
            case "maps" if key == make_map_key(self.prefix, first, second):
                return self._map(first, second)
            case "checkpoints" if key == make_checkpoint_key(self.prefix, second, first):
                return self._checkpoint(first, second)
        return "foreign"

    def _segment(self, sequence: int, epoch: int) -> VersionVerdict:
        root, usage = self.root, self.usage
        if sequence > root.applied:
            return "fresh" if epoch >= root.epoch_of(sequence) else "garbage"
        if epoch != root.epoch_of(sequence) or sequence >= len(usage.size) or usage.size[sequence] == 0:
            return "garbage"
        if usage.live[sequence] > 0:
            return "needed"
        died = usage.died[sequence : sequence + 1]
        if self._needs.segments(np.array([sequence]), died)[0]:
            return "needed"
        return "garbage" if 0 < died[0] < root.number else "fresh"

    def _map(self, number: int, epoch: int) -> VersionVerdict:
        root = self.root
        if (number, epoch) in root.maps:
            return "needed"
        if number > root.map_number:
            return "fresh"
        if (number, epoch) not in root.past_maps:
            return "garbage"
        died = root.past_maps[number, epoch][1]
        if self._needs.map_object(number, died):
            return "needed"
        return "garbage" if died < root.number else "fresh"

    def _checkpoint(self, epoch: int, number: int) -> VersionVerdict:
        root = self.root
        if (epoch, number) in self._moments or (epoch, number) == (root.epoch, root.number):
            return "needed"
        newer = (epoch, number) > (root.epoch, root.number)
        return "fresh" if newer or (epoch, number) == (root.epoch, root.number - 1) else "garbage"

    def segments_between(self, after: int, before: int) -> Iterator[tuple[int, VersionVerdict]]:
        """Segments of these numbers, both left out, that are there as far as the counts tell."""
        size = self.usage.size[after + 1 : max(after + 1, before)]
        for number in (np.flatnonzero(size) + after + 1).tolist():
            yield number, self._segment(number, self.root.epoch_of(number))


@dataclass(frozen=True, slots=True)
class ObjectVersions:
    """All versions of one name, and its delete markers; the newest first."""

    key: str
    versions: tuple[ListedVersion, ...]

    @property
    def genuine(self) -> ListedVersion | None:
        """The one that the store's writer put, which puts each name once: the oldest. None: there are but markers."""
        return next((one for one in reversed(self.versions) if not one.marker), None)

    @property
    def strange(self) -> tuple[ListedVersion, ...]:
        """Markers, and versions with other contents, that came later. A put that is tried again has the same."""
        genuine = self.genuine
        return tuple(one for one in self.versions if one.marker or (genuine and one.etag != genuine.etag))

    def same(self, store: ObjectStore) -> bool:
        """True if all of them have the same bytes, though not the same ETag: those of an encrypted object differ."""
        genuine = self.genuine
        if genuine is None or any(one.marker or one.size != genuine.size for one in self.versions):
            return False
        read = {store.get(join_version(self.key, one.version)) for one in self.versions[-MOST_COMPARED:]}
        return len(read) == 1 and len(self.versions) <= MOST_COMPARED


def group_versions(versions: Iterable[ListedVersion]) -> Iterator[ObjectVersions]:
    """A listing, object by object."""
    held: list[ListedVersion] = []
    for one in versions:
        if held and one.key != held[0].key:
            yield ObjectVersions(held[0].key, tuple(held))
            held = []
        held.append(one)
    if held:
        yield ObjectVersions(held[0].key, tuple(held))
