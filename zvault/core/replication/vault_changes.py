"""What has to change on a vault before a stream can go. Each says in words what it does, and why.

None of these destroys a dataset; only a rollback gives anything up, and it names all of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from zvault.core.names import DatasetName, SnapshotName
from zvault.core.units import format_size


@dataclass(frozen=True, slots=True)
class RenameDataset:
    """Give a dataset another name; all below it comes along."""

    old: DatasetName
    new: DatasetName
    reason: str

    def __str__(self) -> str:
        return f"rename {self.old} to {self.new}: {self.reason}"


@dataclass(frozen=True, slots=True)
class RenameSnapshot:
    """Give a snapshot another name, so that a later one can have its own. What it is a base of stays so: by GUID."""

    old: SnapshotName
    snapname: str
    reason: str

    @property
    def new(self) -> SnapshotName:
        """Its full name from then on."""
        return self.old.dataset.snapshot(self.snapname)

    def __str__(self) -> str:
        return f"rename {self.old} to @{self.snapname}: {self.reason}"


@dataclass(frozen=True, slots=True)
class AbortReceive:
    """Give up what an interrupted receive into a dataset has so far."""

    dataset: DatasetName
    reason: str

    def __str__(self) -> str:
        return f"give up the interrupted receive of {self.dataset}: {self.reason}"


@dataclass(frozen=True, slots=True)
class RollbackDataset:
    """Roll a dataset back to a snapshot; the snapshots ``lost`` (snapnames) and ``written`` bytes go."""

    dataset: DatasetName
    snapname: str
    lost: tuple[str, ...]
    written: int

    @property
    def loss(self) -> str:
        loss = [f"@{snapname}" for snapname in self.lost]
        loss += [f"{format_size(self.written)} written since"] if self.written else []
        return " and ".join(loss)

    def __str__(self) -> str:
        return f"roll {self.dataset} back to @{self.snapname}, giving up {self.loss}"


@dataclass(frozen=True, slots=True)
class BranchDataset:
    """Give ``new`` the history of another dataset up to one of its snapshots, ``origin``.

    It is cloned from there and promoted (zfs-promote(8)): ``new`` then owns that snapshot and those before it, and
    the other is a clone of it. Nothing is sent and nothing lost. ZFS continues a dataset only from a snapshot of
    its own: a receive into a clone that was not promoted fails (seen with 2.3.9).
    """

    origin: SnapshotName
    new: DatasetName
    reason: str

    def __str__(self) -> str:
        return f"make {self.new} from {self.origin}, and promote it: {self.reason}"


VaultChange = RenameDataset | RenameSnapshot | AbortReceive | RollbackDataset | BranchDataset
