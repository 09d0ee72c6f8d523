"""What a pool holds, as plain values: datasets, their properties, snapshots, bookmarks.

Identity is the GUID (zfsprops(7), ``guid``), never the name: names change, GUIDs travel with the stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from zvault.core.name_rules import DatasetChoice
from zvault.core.names import BookmarkName, DatasetName, SnapshotName, split_snapshot

DatasetType = Literal["filesystem", "volume"]
DATASET_TYPES: tuple[DatasetType, ...] = get_args(DatasetType)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One snapshot. ``createtxg`` orders snapshots in one pool; ``creation`` is in seconds since the epoch.

    ``creation`` is the time in the snapname where that has zvault's form: a listing of names is enough for it. The
    holds of a snapshot are not in a listing and must be asked for.
    """

    dataset: DatasetName
    snapname: str
    guid: int
    createtxg: int
    creation: int

    @property
    def name(self) -> SnapshotName:
        """The full name, ``pool/data@snapname``."""
        return self.dataset.snapshot(self.snapname)

    @property
    def shortname(self) -> str:
        """The part after the ``@``, for code that takes a snapshot or a bookmark."""
        return self.snapname


@dataclass(frozen=True, slots=True)
class Bookmark:
    """One bookmark; its ``guid`` and ``creation`` are those of the snapshot it was made from."""

    dataset: DatasetName
    markname: str
    guid: int
    createtxg: int
    creation: int

    @property
    def name(self) -> BookmarkName:
        """The full name, ``pool/data#markname``."""
        return self.dataset.bookmark(self.markname)

    @property
    def shortname(self) -> str:
        """The part after the ``#``, for code that takes a snapshot or a bookmark."""
        return self.markname


Base = Snapshot | Bookmark


@dataclass(frozen=True, slots=True)
class Dataset:
    """One filesystem or volume with its snapshots (oldest first, see core/snapshot_list.py) and bookmarks.

    ``encrypted``: it is sent raw, with the key that it has. ``key_root`` names the dataset by whose key it is
    encrypted, whoever that belongs to, and is empty where it lies in the clear.

    ``written`` is the number of bytes written since the newest snapshot, ``resume_token`` is set while an
    interrupted ``zfs receive -s`` waits to be resumed. ``origin`` names the snapshot of which it is a clone; a
    ``placeholder`` is a filesystem that zvault made only to hold others. ``sent`` is the record of the flags it was
    sent with (core/replication/send_record.py), ``source_record`` that of what its source has and it cannot have
    (core/replication/source_properties.py), ``receive_properties`` that of what its backup sets or leaves out there
    (core/replication/receive_properties.py), each where it is set on the dataset itself.
    """

    name: DatasetName
    guid: int
    type: DatasetType
    used: int = 0
    written: int = 0
    resume_token: str | None = None
    encrypted: bool = False
    snapshots: Sequence[Snapshot] = ()
    bookmarks: tuple[Bookmark, ...] = ()
    origin: SnapshotName | None = None
    placeholder: bool = False
    sent: str = ""
    source_record: str = ""
    receive_properties: str = ""
    key_root: str = ""

    def newest(self) -> Snapshot | None:
        """The newest snapshot, or None."""
        return self.snapshots[-1] if self.snapshots else None

    @property
    def is_sent_decrypted(self) -> bool:
        """True if it is encrypted where it is, and sent without its encryption."""
        return bool(self.key_root) and not self.encrypted


@dataclass(frozen=True, slots=True)
class VaultProperty:
    """A property of a vault's dataset: the exact value in force, the one that a stream brought ("-" is none), and
    where the one in force comes from.
    """

    value: str
    received: str
    source: str


@dataclass(frozen=True, slots=True)
class Tree:
    """One side's datasets by name, parents before children, as one listing saw them.

    ``choices`` tells by name whether a property selects each, where a backup selects by one. ``unlisted`` are the
    datasets of which ZFS tells nothing, each with its words: they exist, and so may others below them.
    """

    datasets: dict[str, Dataset] = field(default_factory=dict)
    choices: Mapping[str, DatasetChoice] | None = None
    unlisted: Mapping[DatasetName, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Dataset]:
        return iter(self.datasets.values())

    def __len__(self) -> int:
        return len(self.datasets)

    def get(self, name: str) -> Dataset | None:
        """The dataset of that name, or None."""
        return self.datasets.get(name)

    def snapshot(self, name: str) -> Snapshot | None:
        """The snapshot of that full name, or None."""
        dataset, snapname = split_snapshot(name)
        there = self.datasets.get(dataset)
        return next((snap for snap in there.snapshots if snap.snapname == snapname), None) if there else None

    def clones(self) -> dict[SnapshotName, DatasetName]:
        """By the full name of each snapshot that has clones here, the first of them."""
        found: dict[SnapshotName, DatasetName] = {}
        for dataset in self:
            if dataset.origin is not None:
                found.setdefault(dataset.origin, dataset.name)
        return found
