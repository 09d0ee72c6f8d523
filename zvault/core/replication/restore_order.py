"""What to restore, in which order, from which streams. Pure.

Parents come before what is below them, and before a clone the snapshot it is a clone of: the dataset that has this one
is restored up to it first, and then to its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from zvault.core.model import Dataset, Snapshot, Tree
from zvault.core.names import DatasetName, SnapshotName

SnapshotPick = Callable[[Dataset], Snapshot | None]
"""Chooses the snapshot of a dataset that is restored, None where it has none."""


@dataclass(frozen=True, slots=True)
class RestoreStream:
    """One stream out of the vault. ``base``: the snapshot there it starts from; ``origin``: where a clone branches."""

    snapshot: Snapshot
    base: Snapshot | None = None
    origin: SnapshotName | None = None


@dataclass(frozen=True, slots=True)
class Restoration:
    """One dataset of the vault and where it is restored to, by one stream or several."""

    dataset: Dataset
    target: DatasetName
    streams: tuple[RestoreStream, ...]

    @property
    def snapshot(self) -> Snapshot:
        """The state that it has in the end."""
        return self.streams[-1].snapshot

    def left(self, there: Collection[int]) -> Restoration:
        """Return what is left to restore where a target has snapshots of these GUIDs."""
        done = [index for index, one in enumerate(self.streams) if one.snapshot.guid in there]
        return replace(self, streams=self.streams[done[-1] + 1 :]) if done else self


def pick_newest(dataset: Dataset) -> Snapshot | None:
    """Pick the newest snapshot of a dataset, None where it has none."""
    return dataset.newest()


def pick_at(when: float) -> SnapshotPick:
    """Picks the newest of those made up to a moment, in seconds since the epoch."""

    def pick(dataset: Dataset) -> Snapshot | None:
        return next((snap for snap in reversed(dataset.snapshots) if snap.creation <= when), None)

    return pick


def pick_named(snapname: str) -> SnapshotPick:
    """Picks the one of that name."""

    def pick(dataset: Dataset) -> Snapshot | None:
        return next((snap for snap in dataset.snapshots if snap.snapname == snapname), None)

    return pick


def plan_restorations(
    tree: Tree, root: DatasetName, to: DatasetName, pick: SnapshotPick, *, recursive: bool
) -> list[Restoration]:
    """The restorations of ``root``, and with ``recursive`` of all below it, to ``to``: in the order they must have.

    What has no snapshot to pick is left out.
    """
    chosen = [one for one in tree if one.name == root or (recursive and one.name.is_within(root))]
    picked = {one.name: snap for one in chosen if (snap := pick(one)) is not None}
    targets = {name: name.moved(root, to) for name in picked}
    origins = {
        name: base for name in picked if (base := _origin(tree.datasets[name], tree, picked)) is not None
    }
    order = list(_ordered([one for one in chosen if one.name in picked], origins))
    # A cycle, as zfs-promote(8) can make one: whoever comes before its origin is no clone then.
    place = {one.name: index for index, one in enumerate(order)}
    origins = {name: base for name, base in origins.items() if place[base.dataset] < place[name]}
    needed = set(origins.values())
    found = []
    for one in order:
        base, stops = origins.get(one.name), picked[one.name]
        ways = [snap for snap in one.snapshots if snap in needed and snap.createtxg < stops.createtxg]
        streams: list[RestoreStream] = []
        for snap in [*ways, stops]:
            origin = (
                targets[base.dataset].snapshot(base.snapname) if base is not None and not streams else None
            )
            before = streams[-1].snapshot if streams else base
            streams.append(RestoreStream(snap, before, origin))
        found.append(Restoration(one, targets[one.name], tuple(streams)))
    return found


def list_restore_needs(restorations: Iterable[Restoration]) -> dict[str, set[str]]:
    """By target the targets that must be whole before it is begun: what it lies in, and what it is a clone of."""
    found: dict[str, set[str]] = {}
    for one in restorations:
        above = next((name for name in reversed(list(one.target.ancestors)) if name in found), None)
        found[one.target] = {above} if above is not None else set()
        if (origin := one.streams[0].origin) is not None and origin.dataset in found:
            found[one.target].add(origin.dataset)
    return found


def _origin(dataset: Dataset, tree: Tree, picked: dict[DatasetName, Snapshot]) -> Snapshot | None:
    """The snapshot a dataset is a clone of, if that is restored too; what is encrypted raw is sent in full."""
    if dataset.origin is None or (base := tree.snapshot(dataset.origin)) is None:
        return None
    upto = picked.get(base.dataset)
    return base if upto is not None and base.createtxg <= upto.createtxg else None


def _ordered(chosen: list[Dataset], origins: dict[DatasetName, Snapshot]) -> Iterator[Dataset]:
    """Parents first, then origins first; where both cannot be, parents."""
    waiting, done = {one.name: one for one in chosen}, set[DatasetName]()
    while waiting:
        ready = [one for one in waiting.values() if not any(other in waiting for other in one.name.ancestors)]
        free = [one for one in ready if one.name not in origins or origins[one.name].dataset in done]
        one = (free or ready)[0]
        del waiting[one.name]
        done.add(one.name)
        yield one
