"""What ZFS knows to be damaged in a pool, by dataset, snapshot and file. Pure.

There are two ways to know. ``zpool status -v`` gives names, but of the snapshots that have a damaged block it leaves
out the oldest (seen with 2.3.9): of a block that is in one snapshot only nothing is named. The pool's error log itself,
which zdb(8) shows, has each block with the transaction group in which it was written: that tells the oldest snapshot.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from zvault.core.model import Dataset, Snapshot
from zvault.core.names import DatasetName, split_snapshot
from zvault.core.units import format_size

METADATA_NAME = "<metadata>"
"""What zpool-status(8) calls the pool's own objects, which belong to no dataset."""

UNOPENED_PATH = "<0x0>"
"""What stands for all of a dataset that cannot be opened: its object 0 has all others."""


@dataclass(frozen=True, slots=True, order=True)
class DamagedFile:
    """One damaged file (or object) in one place. ``snapname`` None: the dataset as it is now, in no snapshot.

    ``dataset`` None: nobody knows whose it is, as of a snapshot that was destroyed since. ``path`` begins with ``/``
    where it is a file's; else it is the number of an object, as ``<0x8>``: of a volume, of an encrypted dataset without
    its key, of what has no name.
    """

    dataset: str | None
    snapname: str | None
    path: str

    @property
    def place(self) -> str:
        """The dataset or snapshot it is in, as ZFS names them."""
        name = self.dataset or "<unknown>"
        return f"{name}@{self.snapname}" if self.snapname is not None else name

    def __str__(self) -> str:
        return f"{self.place}:{self.path}"


@dataclass(frozen=True, slots=True)
class LoggedBlock:
    """One block in the pool's error log: of object ``number`` of a dataset, written in transaction group ``birth``.

    ``level`` 0 is what the object holds, above are indirect blocks, and -1 is the root of all the dataset's objects. Of
    an encrypted dataset without its key ``birth`` is 0, and ``snapname`` the snapshot in which the scrub met it: the
    oldest.
    """

    dataset: str
    number: int
    level: int
    block: int
    birth: int
    snapname: str | None = None

    @property
    def data(self) -> bool:
        """True if a stream has it: object 0 holds the dataset's dnodes."""
        return self.level == 0 and self.number != 0


@dataclass(frozen=True, slots=True)
class SnapshotObject:
    """An object as a snapshot has it: its path, where it has one, and its blocks of level 0 by number, with their
    births. One that is not there has none."""

    path: str | None = None
    births: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HealTarget:
    """A piece that is to be healed: a damaged block where the error log is known (``logged``), else all of a file's.

    ``snapnames`` are those of the snapshots that have it, oldest first. ``exact``: that was read block by block; else
    they are the snapshots in which its file is damaged, be it by this block or by another.
    """

    dataset: str | None
    path: str
    snapnames: tuple[str, ...] = ()
    logged: LoggedBlock | None = None
    exact: bool = False

    @property
    def what(self) -> str:
        """The kind of block, in words."""
        if self.logged is None or self.logged.data:
            return "data"
        return "a block of dnodes" if self.logged.level <= 0 else "an indirect block"


def parse_damage(
    text: str,
    known: Collection[str] = (),
    mounts: Mapping[str, str] | None = None,
    *,
    whole: bool = True,
) -> DamagedFile:
    """One of the names that ``zpool status -v`` lists.

    ``known`` are the names of datasets and snapshots there are: both may have colons in them. ``mounts`` gives the
    dataset or snapshot by its mountpoint, for that is how a file in a mounted one is named. Unless these are ``whole``,
    whose a name is that may be read in two ways is not known.
    """
    if text.startswith("/"):
        return _in_a_mount(text, mounts or {})
    ends = [found.start() for found in re.finditer(r":(?=[/<])", text)]
    if not whole and len(ends) > 1:
        return DamagedFile(None, None, text)
    end = next((at for at in reversed(ends) if text[:at] in known), ends[0] if ends else len(text))
    name, path = text[:end], text[end + 1 :]
    if name == METADATA_NAME:
        return DamagedFile(METADATA_NAME, None, path)
    if name.startswith("<"):
        return DamagedFile(None, None, text)
    return DamagedFile(*split_snapshot(name), path)


def _in_a_mount(text: str, mounts: Mapping[str, str]) -> DamagedFile:
    for point in sorted(mounts, key=len, reverse=True):
        below = point.rstrip("/") + "/"
        if text.startswith(below):
            return DamagedFile(*split_snapshot(mounts[point]), "/" + text.removeprefix(below))
    return DamagedFile(None, None, text)


def count_damaged_files(damages: Iterable[DamagedFile | HealTarget]) -> int:
    """Return how many files are damaged: the same path in several snapshots of a dataset is one."""
    return len({(damage.dataset, damage.path) for damage in damages})


class DamageKind(Enum):
    """Whose an error on ZFS's list is, which decides what puts it right.

    ``DATA``: a dataset's or snapshot's that is there: somebody may have it as well. ``METADATA``: the pool's own, which
    nothing sends anew. ``GONE``: of what was destroyed, or of nothing that anybody knows.
    """

    DATA = "data"
    METADATA = "metadata"
    GONE = "gone"


def classify_damages(datasets: Iterable[str | None]) -> frozenset[DamageKind]:
    """The kinds of some damages, by the dataset that each has. None at all where nothing is named."""
    known = {METADATA_NAME: DamageKind.METADATA, None: DamageKind.GONE}
    return frozenset(known.get(one, DamageKind.DATA) for one in datasets)


def describe_damage_kinds(kinds: Collection[DamageKind]) -> str:
    """Where the errors are, as the end of a sentence that counts them; empty where some are in data."""
    if DamageKind.DATA in kinds:
        return ""
    words = {
        DamageKind.METADATA: "in the pool's own metadata",
        DamageKind.GONE: "in nothing that is still there",
    }
    found = [words[one] for one in DamageKind if one in kinds]
    return f", {' and '.join(found)} alone" if found else ", and names nothing"


def advise_on_damage(vault: str, kinds: Collection[DamageKind]) -> str:
    """Say what to do about errors of these kinds; without any they are counted, and nothing is named.

    A pool's own metadata nothing sends anew, and ZFS keeps up to three copies of it. Mostly its errors are reads and
    writes of a moment in which the device was lost, which ZFS made again: whole scrubs take those off its list, as
    they do with errors of what is gone. An error scrub does not read the pool's own metadata (OpenZFS 2.3.9).
    """
    scrub = f"'zvaultctl scrub {vault}'"
    if DamageKind.DATA in kinds:
        heal = f"'zvaultctl heal {vault}' repairs what the source or another vault still has; destroy nothing there"
        return (
            f"{heal} until then"
            if len(kinds) == 1
            else f"{heal} until then. After that {scrub}: no healing repairs the rest"
        )
    if DamageKind.METADATA in kinds:
        return (
            f"{scrub}, and again once that has ended: what an outage left is off ZFS's list then. What comes back after"
            " that no healing repairs: back up into a new pool"
        )
    if DamageKind.GONE in kinds:
        return f"{scrub}, and again once that has ended: ZFS has forgotten what is gone then"
    return (
        f"{scrub}, and again once that has ended: it names what is damaged, and ZFS has forgotten what is gone then."
        " Destroy nothing on the source until then"
    )


def advise_on_leak(pool: str, freeing: int) -> tuple[str, str]:
    """Why the space of what was destroyed is not freed, and what helps. ``freeing`` is the pool's, in bytes."""
    return (
        f"{format_size(freeing)} of what was destroyed are still to be freed: where that does not shrink, metadata in"
        " it cannot be read, and neither heal nor scrub changes that",
        f"where 'zpool get freeing {pool}' stays as it is, 'echo 1 > /sys/module/zfs/parameters/zfs_free_leak_on_eio'"
        " has ZFS give up what it cannot find any more (that space stays taken) and free the rest; after that two"
        " scrubs take the errors off, and the pool can be exported again once the host was started anew",
    )


def find_oldest_damaged(dataset: Dataset, wound: HealTarget) -> Snapshot | None:
    """The oldest snapshot that has it, or may have it; None where the dataset has none that does.

    A block that is still there is in the first snapshot made after it was written. Of names alone it is known only that
    the oldest is left out.
    """
    snapshots = dataset.snapshots
    if (logged := wound.logged) is not None:
        met = next((snap for snap in snapshots if snap.snapname == logged.snapname), None)
        by_birth = next((snap for snap in snapshots if snap.createtxg >= logged.birth), None)
        return by_birth if logged.birth or met is None else met
    named = next(
        (at for at, snap in enumerate(snapshots) if snap.snapname in wound.snapnames), len(snapshots)
    )
    return snapshots[max(0, named - 1)] if snapshots else None


def make_heal_targets(damages: Sequence[DamagedFile]) -> list[HealTarget]:
    """Return a target for each damaged file: all that can be healed while only names are known."""
    found: dict[tuple[str | None, str], list[str]] = {}
    for damage in damages:
        snapnames = found.setdefault((damage.dataset, damage.path), [])
        if damage.snapname is not None:
            snapnames.append(damage.snapname)
    return [HealTarget(dataset, path, tuple(snapnames)) for (dataset, path), snapnames in found.items()]


def locate_heal_targets(
    logged: Sequence[LoggedBlock],
    datasets: Mapping[str, Dataset],
    paths: Mapping[tuple[str, int], str],
    named: Sequence[DamagedFile],
    newest: Mapping[LoggedBlock, Snapshot] | None = None,
) -> list[HealTarget]:
    """Return the targets that the error log names; ``named`` adds what is in no dataset.

    ``paths`` are those of objects, by dataset and number. ``newest`` are the last snapshots that have a block; where
    that is not known, those count in which its file is named.
    """
    last = newest or {}
    found = []
    for one in logged:
        path = paths.get((one.dataset, one.number), f"<0x{one.number:x}>")
        dataset = datasets.get(one.dataset, Dataset(DatasetName(one.dataset), 0, "filesystem"))
        first = find_oldest_damaged(dataset, HealTarget(one.dataset, path, (), one))
        if first is not None and one in last:
            snapnames = {
                snap.snapname
                for snap in dataset.snapshots
                if first.createtxg <= snap.createtxg <= last[one].createtxg
            }
        else:
            snapnames = {
                str(damage.snapname)
                for damage in named
                if (damage.dataset, damage.path) == (one.dataset, path)
            }
            snapnames |= {first.snapname} if first is not None else set()
        order = tuple(snap.snapname for snap in dataset.snapshots if snap.snapname in snapnames)
        found.append(HealTarget(one.dataset, path, order, one, exact=one in last))
    elsewhere = [damage for damage in named if damage.dataset not in {one.dataset for one in logged}]
    return found + make_heal_targets(elsewhere)


class DamagedSnapshotSearch:
    """The search for the last snapshot that has each of some blocks of a dataset: each is in the first one made after
    it was written and in all from there until it was written over, so that a few looks suffice.
    """

    def __init__(self, dataset: Dataset, logged: Iterable[LoggedBlock]) -> None:
        self.snapshots = dataset.snapshots
        self._born: dict[LoggedBlock, int] = {}
        self._open: dict[LoggedBlock, tuple[int, int]] = {}
        for one in logged:
            first = find_oldest_damaged(dataset, HealTarget(one.dataset, "", (), one))
            if one.data and first is not None:
                self._open[one] = (self.snapshots.index(first), len(self.snapshots))
                self._born[one] = one.birth

    def next_look(self) -> Snapshot | None:
        """The snapshot to look into next, None when all is known. The newest is the likeliest to have them all."""
        for low, high in self._open.values():
            if high - low > 1:
                return self.snapshots[high - 1 if high == len(self.snapshots) else (low + high) // 2]
        return None

    def births(self, seen: Mapping[int, SnapshotObject]) -> None:
        """Take in what their first snapshots have, for those whose birth the log does not tell."""
        for one, birth in self._born.items():
            if not birth and (there := seen.get(one.number)) is not None:
                self._born[one] = there.births.get(one.block, 0)

    def saw(self, snapshot: Snapshot, seen: Mapping[int, SnapshotObject]) -> None:
        """Take in what a snapshot has, by object; of one that is missing there nobody knows."""
        at = self.snapshots.index(snapshot)
        for one, (low, high) in list(self._open.items()):
            if not low < at < high:
                continue
            if (there := seen.get(one.number)) is None or not self._born[one]:
                del self._open[one]
            elif there.births.get(one.block) == self._born[one]:
                self._open[one] = (at, high)
            else:
                self._open[one] = (low, at)

    def newest(self) -> dict[LoggedBlock, Snapshot]:
        """The last snapshot that has each block, of those for which that could be found out."""
        return {one: self.snapshots[low] for one, (low, _) in self._open.items()}


def list_damages(found: Iterable[HealTarget], named: Iterable[DamagedFile]) -> list[DamagedFile]:
    """Everything that is damaged, by name, in order."""
    places = {
        DamagedFile(wound.dataset, snapname, wound.path)
        for wound in found
        for snapname in wound.snapnames or (None,)
    }
    return sorted(places | set(named), key=lambda one: (one.dataset or "", one.path, one.snapname or ""))
