"""The snapshots of a dataset on two sides as one row of points in time, and the versions of a file over them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from zvault.core.integrity.file_versions import FileVersion
from zvault.core.model import Snapshot

SideName = Literal["source", "vault"]
SIDE_NAMES: tuple[SideName, ...] = get_args(SideName)

StretchState = Literal["there", "appeared", "changed", "vanished"]
"""How a version began. ``there``: it is in the oldest snapshot that was read, so when it came is not known."""


@dataclass(frozen=True, slots=True)
class SnapshotPoint:
    """A snapshot by its GUID, on one side or on both."""

    source: Snapshot | None = None
    vault: Snapshot | None = None

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot where it is nearest."""
        found = self.source or self.vault
        assert found is not None  # noqa: S101 - it is on one side
        return found

    def on(self, side: SideName) -> Snapshot | None:
        """The snapshot on that side, if it is there."""
        return self.source if side == "source" else self.vault

    @property
    def places(self) -> Iterator[tuple[SideName, Snapshot]]:
        """The sides that have the point, each with its snapshot there; the source first, which is nearest."""
        yield from ((side, snap) for side in SIDE_NAMES if (snap := self.on(side)) is not None)


def merge_points(source: Sequence[Snapshot], vault: Sequence[Snapshot]) -> list[SnapshotPoint]:
    """All snapshots of both sides, the oldest first; the same by GUID is one point."""
    there = {snap.guid: snap for snap in vault}
    here = {snap.guid for snap in source}
    found = [SnapshotPoint(snap, there.get(snap.guid)) for snap in source]
    found += [SnapshotPoint(None, snap) for snap in vault if snap.guid not in here]
    return sorted(found, key=_order)


def _order(point: SnapshotPoint) -> tuple[int, int, int]:
    txgs = (snap.createtxg if snap is not None else 0 for snap in (point.source, point.vault))
    return point.snapshot.creation, *txgs  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class VersionStretch:
    """A version of a path as it is told: how it began, in which points it is, and in how many on each side."""

    state: StretchState
    version: FileVersion
    points: tuple[SnapshotPoint, ...]

    def count(self, side: SideName) -> int:
        """In how many snapshots of one side it is."""
        return sum(point.on(side) is not None for point in self.points)

    def newest_on(self, side: SideName) -> Snapshot | None:
        """The newest snapshot of one side that has it."""
        return next((snap for point in reversed(self.points) if (snap := point.on(side)) is not None), None)


def place_versions(versions: Sequence[FileVersion], read: Sequence[SnapshotPoint]) -> list[VersionStretch]:
    """The versions of one path, the oldest first, over the points that were read, which are in order."""
    number = {point.snapshot.guid: at for at, point in enumerate(read)}
    found: list[VersionStretch] = []
    for version in versions:
        first, last = number[version.first.guid], number[version.last.guid]
        found.append(VersionStretch(_state(version, first, found), version, tuple(read[first : last + 1])))
    return found


def _state(version: FileVersion, first: int, before: Sequence[VersionStretch]) -> StretchState:
    if version.entry is None:
        return "vanished"
    if first == 0:
        return "there"
    return "changed" if before and before[-1].version.entry is not None else "appeared"
