"""A dataset on both sides, open to be looked into: the vault is up and the snapshots are held for as long as it is."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from zvault.config.schema import Backup
from zvault.core.errors import NotFound, Refused, ZvaultError
from zvault.core.integrity.points import SIDE_NAMES, SideName, SnapshotPoint, merge_points
from zvault.core.lazy import LazyProperty
from zvault.core.model import Dataset, Snapshot
from zvault.core.names import DatasetName, SnapshotName
from zvault.core.replication.base_names import MOUNT_HOLD
from zvault.ops.context import Context
from zvault.ops.restore.list_path import parse_path
from zvault.ops.restore.snapshot_reader import OpenSnapshot, hold_snapshots, open_snapshot
from zvault.ops.restore.source_path import find_dataset
from zvault.ops.state.partial_tree import find_one_dataset
from zvault.ops.vaults.vault import Vaults
from zvault.system.side_threads import compute_aside
from zvault.zfs.client import Zfs

T = TypeVar("T")

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LookRequest:
    """A request to look into a path: ``path`` below the root of ``dataset`` or, without one, absolute as on the source.

    ``dataset`` is the source's name or the vault's; ``side`` looks on one side only.
    """

    backup: str
    path: str
    dataset: str | None = None
    side: SideName | None = None


@dataclass(frozen=True, slots=True)
class OpenSide:
    """A dataset on one side, where it has snapshots; ``snapshots`` are held."""

    name: SideName
    zfs: Zfs
    dataset: Dataset
    snapshots: tuple[Snapshot, ...]


@dataclass
class BothSides:
    """An open dataset: ``dataset`` is the source's name, ``path`` the one asked for, below its root.

    ``unread`` says what cannot be looked into, and why.
    """

    context: Context
    backup: Backup
    dataset: DatasetName
    vault_dataset: DatasetName | None
    path: bytes
    sides: dict[SideName, OpenSide] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    errors: dict[SideName, ZvaultError] = field(default_factory=dict)

    @LazyProperty
    def points(self) -> list[SnapshotPoint]:
        """The snapshots of both sides, the oldest first: asked once both are open."""
        found = {name: side.snapshots for name, side in self.sides.items()}
        return merge_points(found.get("source", ()), found.get("vault", ()))

    def fail(self, side: SideName, error: ZvaultError) -> None:
        """Note why a side cannot be looked into: it is not tried again."""
        self.errors[side] = error
        self.unread[side] = format_error(error)

    async def read(self, point: SnapshotPoint, work: Callable[[OpenSnapshot], Awaitable[T]]) -> T:
        """Run ``work`` on the point's snapshot, open where it is nearest. Raises why it cannot be read anywhere."""
        failure: ZvaultError | None = None
        for name, snap in point.places:
            side = self.sides[name]
            if name in self.errors:
                failure = failure or self.errors[name]
                continue
            try:
                async with self.opened(side, snap) as opened:
                    return await work(opened)
            except (
                Refused
            ) as error:  # its key is not loaded: no other snapshot of it can be read there either
                self.fail(name, error)
                failure = failure or error
            except ZvaultError as error:
                failure = failure or error
        assert failure is not None  # noqa: S101 - a point is somewhere
        raise failure

    def opened(self, side: OpenSide, snap: Snapshot) -> AbstractAsyncContextManager[OpenSnapshot]:
        """Have a snapshot of one side open for a block."""
        return open_snapshot(self.context, side.zfs, side.dataset, snap, theirs=side.name == "source")


def format_error(error: ZvaultError) -> str:
    """An error in a line: what and why."""
    return f"{error.what}: {error.why}" if error.why else error.what


@asynccontextmanager
async def open_both_sides(
    context: Context, vaults: Vaults, wanted: LookRequest, say: Say
) -> AsyncIterator[BothSides]:
    """Have a dataset open on both sides for a block. A side that cannot be had is told in ``unread``.

    Raises NotFound, Refused; and what keeps both sides from being looked into.
    """
    backup = context.env.backup(wanted.backup)
    dataset, path = await find_dataset(context, backup, wanted.dataset, wanted.path)
    found = BothSides(
        context,
        backup,
        dataset,
        context.env.counterpart_of(backup, dataset) if backup.vault is not None else None,
        parse_path(path),
    )
    async with AsyncExitStack() as stack:
        for name in SIDE_NAMES:
            if wanted.side not in {None, name} or (name == "vault" and found.vault_dataset is None):
                continue
            try:
                side = await (_source(found) if name == "source" else _vault(found, vaults, say, stack))
                found.sides[name] = replace(side, snapshots=await _held(context, side, stack))
            except ZvaultError as error:
                found.fail(name, error)
        await compute_aside(
            sum(len(side.snapshots) for side in found.sides.values()), None, lambda: found.points
        )
        if not found.points:
            raise _nothing(found, wanted)
        yield found


def _nothing(found: BothSides, wanted: LookRequest) -> ZvaultError:
    """Why there is nothing to look into."""
    if found.errors:
        return next(iter(found.errors.values()))
    where = (
        "neither the source nor the vault has" if wanted.side is None else f"the {wanted.side} does not have"
    )
    return NotFound(
        f"there is nothing of {found.dataset} to look into",
        f"{where} a snapshot of it",
        f"'zvaultctl list -t snapshot {wanted.backup}' shows all there are",
    )


async def _source(found: BothSides) -> OpenSide:
    zfs = found.context.clients.source_of(found.backup)
    dataset = await find_one_dataset(zfs, found.dataset)
    if dataset is None:
        raise NotFound(f"there is no {found.dataset}", "the source does not have it")
    return _with_files("source", zfs, dataset)


async def _vault(found: BothSides, vaults: Vaults, say: Say, stack: AsyncExitStack) -> OpenSide:
    assert found.vault_dataset is not None  # noqa: S101 - only asked where there is one
    vault = vaults[found.backup.its_vault]
    user = f"look into {found.dataset}"
    opened = await stack.enter_async_context(vault.use(user, say, writes=False, reads=True, create=False))
    say(f"vault {opened.name} is kept up while {found.dataset} is looked into")
    dataset = await find_one_dataset(opened.zfs, found.vault_dataset)
    if dataset is None:
        raise NotFound(f"there is no {found.vault_dataset}", f"vault {opened.name} does not have it")
    return _with_files("vault", opened.zfs, dataset)


def _with_files(name: SideName, zfs: Zfs, dataset: Dataset) -> OpenSide:
    if dataset.type == "volume":
        raise Refused(f"{dataset.name} has no files", "it is a volume", "restore it to a new dataset")
    return OpenSide(name, zfs, dataset, tuple(dataset.snapshots))


async def _held(context: Context, side: OpenSide, stack: AsyncExitStack) -> tuple[Snapshot, ...]:
    """The snapshots of a side that are still there, and now held."""
    names: list[SnapshotName] = [snap.name for snap in side.snapshots]
    if not names:
        return ()
    tag = f"{MOUNT_HOLD}{secrets.token_hex(4)}"
    there = await stack.enter_async_context(hold_snapshots(context, side.zfs, names, tag))
    return tuple(snap for snap in side.snapshots if snap.name in there)
