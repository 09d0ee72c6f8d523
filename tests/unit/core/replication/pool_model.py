"""One pool as ``zfs`` would have it: its datasets, snapshots and bookmarks, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from zvault.core.model import Bookmark, Dataset, Snapshot, Tree
from zvault.core.names import DatasetName, SnapshotName


class Illegal(Exception):
    """zfs would refuse this."""


@dataclass
class Clock:
    """Hands out transaction groups and GUIDs."""

    now: int = 0

    def tick(self) -> int:
        self.now += 1
        return self.now


def below(name: str, top: str) -> bool:
    """Whether a dataset is ``top`` or lies below it."""
    return name == top or name.startswith(f"{top}/")


@dataclass
class Point:
    """A snapshot (or bookmark). A ``quiet`` one was made while nothing had been written since the one before."""

    guid: int
    snapname: str
    txg: int
    held: bool = False
    quiet: bool = False


@dataclass
class Partial:
    """An interrupted receive of a snapshot, on top of ``base`` (0: a full stream); ``newborn`` made its dataset."""

    to: int
    base: int
    newborn: bool
    origin: int | None = None


@dataclass
class Data:
    """One dataset. ``origin`` is the snapshot that it is a clone of: this one, others may have the same GUID."""

    guid: int
    encrypted: bool = False
    snaps: list[Point] = field(default_factory=list)
    marks: list[Point] = field(default_factory=list)
    origin: Point | None = None
    written: int = 0
    partial: Partial | None = None
    placeholder: bool = False
    sent: str = ""

    def copy(self) -> Data:
        # By hand: dataclasses.replace() takes five times as long, and a history copies its pools at every step.
        return Data(
            self.guid,
            self.encrypted,
            list(self.snaps),
            list(self.marks),
            self.origin,
            self.written,
            replace(self.partial) if self.partial else None,
            self.placeholder,
            self.sent,
        )

    def named(self, snapname: str) -> Point:
        for snap in self.snaps:
            if snap.snapname == snapname:
                return snap
        raise Illegal(f"no snapshot @{snapname}")


@dataclass
class Pool:
    """The datasets of one pool by name."""

    clock: Clock
    data: dict[str, Data] = field(default_factory=dict)

    def get(self, name: str) -> Data:
        if name not in self.data:
            raise Illegal(f"{name} does not exist")
        return self.data[name]

    def owner(self, point: Point) -> str:
        return next(name for name, data in self.data.items() if any(snap is point for snap in data.snaps))

    def free(self, name: str) -> None:
        if name in self.data:
            raise Illegal(f"{name} exists")
        if name.rpartition("/")[0] not in self.data:
            raise Illegal(f"the parent of {name} does not exist")

    def create(self, name: str, *, encrypted: bool = False, placeholder: bool = False) -> None:
        self.free(name)
        self.data[name] = Data(self.clock.tick(), encrypted, placeholder=placeholder)

    def snapshot(self, name: str, snapname: str) -> None:
        data = self.get(name)
        if snapname in {snap.snapname for snap in data.snaps}:
            raise Illegal("the snapshot exists")
        quiet = not data.written and bool(data.snaps)
        data.snaps.append(Point(self.clock.tick(), snapname, self.clock.tick(), quiet=quiet))
        data.written = 0

    def cloned(self, point: Point) -> bool:
        """Whether a snapshot has clones."""
        return any(point is data.origin for data in self.data.values())

    def destroy_snapshot(self, name: str, snapname: str) -> None:
        snap = self.get(name).named(snapname)
        if snap.held or self.cloned(snap):
            raise Illegal("held, or cloned")
        self.data[name].snaps.remove(snap)

    def destroy(self, name: str) -> None:
        data = self.get(name)
        if any(other.startswith(f"{name}/") for other in self.data):
            raise Illegal("it has children")
        if any(snap.held or self.cloned(snap) for snap in data.snaps):
            raise Illegal("a snapshot is held or cloned")
        del self.data[name]

    def rename(self, old: str, new: str) -> None:
        self.get(old)
        self.free(new)
        if below(new, old):
            raise Illegal("into itself")
        self.data = {new + name[len(old) :] if below(name, old) else name: d for name, d in self.data.items()}

    def clone(self, name: str, snapname: str, new: str) -> None:
        origin = self.get(name)
        snap = origin.named(snapname)
        self.free(new)
        self.data[new] = Data(self.clock.tick(), origin.encrypted, origin=snap)

    def promote(self, name: str) -> None:
        data = self.get(name)
        if data.origin is None:
            raise Illegal("not a clone")
        former = self.data[self.owner(data.origin)]
        place = next(i for i, snap in enumerate(former.snaps) if snap is data.origin)
        moving = former.snaps[: place + 1]
        if {snap.snapname for snap in moving} & {snap.snapname for snap in data.snaps}:
            raise Illegal("a snapshot of that name exists")
        last = moving[-1].txg
        data.snaps, former.snaps = [*moving, *data.snaps], former.snaps[place + 1 :]
        data.marks += [mark for mark in former.marks if mark.txg <= last]
        former.marks = [mark for mark in former.marks if mark.txg > last]
        data.origin, former.origin = former.origin, data.origin

    def tree(self, root: str) -> Tree:
        """What a listing shows."""
        found = {}
        for name in sorted(
            (name for name in self.data if below(name, root)), key=lambda name: name.split("/")
        ):
            data = self.data[name]
            origin = None
            if data.origin is not None:
                origin = SnapshotName(f"{self.owner(data.origin)}@{data.origin.snapname}")
            found[name] = Dataset(
                DatasetName(name),
                data.guid,
                "filesystem",
                written=data.written,
                resume_token="token" if data.partial else None,
                encrypted=data.encrypted,
                snapshots=tuple(
                    Snapshot(DatasetName(name), s.snapname, s.guid, s.txg, s.txg) for s in data.snaps
                ),
                bookmarks=tuple(
                    Bookmark(DatasetName(name), m.snapname, m.guid, m.txg, m.txg) for m in data.marks
                ),
                origin=origin,
                placeholder=data.placeholder,
                sent=data.sent,
            )
        return Tree(found)

    def lineage(self, name: str) -> Iterator[tuple[str, Point]]:
        """The snapshots that a dataset can be sent from: its own and, up to its origin, those of its origin."""
        data = self.get(name)
        for snap in data.snaps:
            yield name, snap
        if data.origin is not None:
            owner, upto = self.owner(data.origin), data.origin.txg
            yield from ((where, snap) for where, snap in self.lineage(owner) if snap.txg <= upto)
