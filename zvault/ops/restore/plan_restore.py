"""What a restore would do: which snapshots go where, what is there already, and what would have to make room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from zvault.api.restore import RestoredDataset, RestorePlanDocument
from zvault.core.address import Source, parse_source
from zvault.core.errors import NotFound, Refused, ToolFailed
from zvault.core.model import Dataset, Tree
from zvault.core.names import DatasetName
from zvault.core.replication import restore_order
from zvault.core.replication.plan_model import InterruptedReceive
from zvault.core.replication.restore_order import Restoration, RestoreStream, SnapshotPick
from zvault.core.replication.source_properties import is_raw_copy
from zvault.core.units import format_size, is_number
from zvault.ops.context import Context
from zvault.ops.state.partial_tree import list_around_damage
from zvault.ops.vaults.vault import OpenVault
from zvault.zfs import properties
from zvault.zfs.client import Zfs
from zvault.zfs.stream_argv import RESTORING

STAGING = "_zvault-restore"
"""What follows a dataset's name while what is to take its place is restored beside it."""

SHUT_DOWN_FIRST = (
    "end what has it open first, as a virtual machine: it would go on writing to what is set aside"
)
"""What is said of each volume that is replaced: ZFS renames it though it is open."""

BEFORE_INFIX = "_zvault-before-"
"""Between a dataset's name and the time at which a restore took its place."""


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """A request to restore: a dataset by its source name or its name on the vault, ``snapname`` None for the newest.

    ``to`` is a dataset on this host, or on another as in ``ssh://root@filer1/tank/back``. ``at`` picks the newest made
    up to then, in seconds since the epoch. ``recursive`` takes all below it too; ``replace`` lets it take the place of
    what is there. Without ``compare`` what was written is not read again to compare it. ``vault_at``: out of the vault
    as it was then, of what its block store keeps; None: as it is.
    """

    backup: str
    dataset: str
    snapname: str | None
    to: str
    at: float | None = None
    recursive: bool = False
    replace: bool = False
    compare: bool = True
    vault_at: float | None = None

    def pick(self) -> SnapshotPick:
        """Return what picks a dataset's snapshot."""
        if self.snapname is not None:
            return restore_order.pick_named(self.snapname)
        return restore_order.pick_newest if self.at is None else restore_order.pick_at(self.at)


@dataclass(frozen=True, slots=True)
class DatasetWork:
    """The work left for one dataset: ``streams`` in turn, the first from a ``token`` if it was cut off."""

    restoration: Restoration
    streams: tuple[RestoreStream, ...]
    sizes: tuple[int, ...]
    action: Literal["restore", "resume", "done"]
    token: str | None = None

    @property
    def bytes(self) -> int:
        """The bytes still to be sent, about."""
        return sum(self.sizes)


@dataclass(frozen=True)
class RestorePlan:
    """A restore. ``lost`` says what makes room, and where it stays; ``replaced`` is what is set aside, if anything."""

    target: Source
    works: tuple[DatasetWork, ...]
    skipped: tuple[str, ...]
    available: int | None
    lost: tuple[str, ...] = ()
    replaced: str | None = None
    staged: bool = False

    @property
    def bytes(self) -> int:
        """The bytes still to be sent, about."""
        return sum(work.bytes for work in self.works)

    def document(self) -> RestorePlanDocument:
        """As the API sends it."""
        rows: list[RestoredDataset] = [
            {
                "dataset": work.restoration.dataset.name,
                "snapshot": work.restoration.snapshot.snapname,
                "creation": work.restoration.snapshot.creation,
                "to": work.restoration.target,
                "action": work.action,
                "bytes": work.bytes,
                "encrypted": work.restoration.dataset.encrypted,
            }
            for work in self.works
        ]
        return {
            "to": str(self.target),
            "datasets": rows,
            "skipped": list(self.skipped),
            "bytes": self.bytes,
            "available": self.available,
            "lost": list(self.lost),
        }


async def plan_restore(context: Context, vault: OpenVault, request: RestoreRequest) -> RestorePlan:
    """Work out a restore. Raises NotFound, or Refused where something is in the way."""
    target = parse_target(request.to)
    zfs = context.clients.source_at(target.host)
    parent = await _parent(zfs, target, request.to)
    tree, root = _as_sent(*await find_root(context, vault, request))
    to = target.dataset
    there = await zfs.tree_or_none(to)
    staged = request.replace and (to in there.datasets or await zfs.exists(to.add_suffix(STAGING)))
    wanted = restore_order.plan_restorations(
        tree, root.name, to.add_suffix(STAGING) if staged else to, request.pick(), recursive=request.recursive
    )
    if not wanted or (wanted[0].dataset.name != root.name and not request.recursive):
        raise make_no_snapshot_error(root, request)
    found = await zfs.tree_or_none(to.add_suffix(STAGING)) if staged else there
    works = [await _work(vault, zfs, one, found, request) for one in wanted]
    replaced, lost = None, []
    if staged and to in there.datasets:
        replaced = to
        lost = _what_makes_room(there, to, request, wanted[0].snapshot.creation)
    chosen = {one.dataset.name for one in wanted}
    skipped = [
        one.name
        for one in tree
        if request.recursive
        and one.name.is_within(root.name)
        and one.name not in chosen
        and not one.placeholder
    ]
    available = await zfs.get(parent, "available")
    return RestorePlan(
        target,
        tuple(works),
        tuple(skipped),
        int(available["available"]) if is_number(available["available"]) else None,
        tuple(lost),
        replaced,
        staged,
    )


async def check_target(context: Context, request: RestoreRequest) -> None:
    """Find out what of a target is in the way before any vault is brought up. Raises NotFound, Refused."""
    target = parse_target(request.to)
    zfs = context.clients.source_at(target.host)
    await _parent(zfs, target, request.to)
    # With all below it a dataset may be restored into one that only holds others: the plan tells.
    if request.replace or request.recursive or not await zfs.exists(target.dataset):
        return
    if not await properties.read_local_properties(zfs.host, target.dataset, RESTORING):
        raise _exists(target.dataset)


def parse_target(to: str) -> Source:
    """Parse the target of a restore. Raises Refused for what is no name that ZFS accepts."""
    try:
        return parse_source(to)
    except ValueError as error:
        raise Refused(f"cannot restore to '{to}'", str(error), "name a new dataset: pool/path/name") from None


async def _parent(zfs: Zfs, target: Source, to: str) -> DatasetName:
    """The dataset in which the target lies. Raises NotFound."""
    parent = target.dataset.parent
    if parent is None:
        raise NotFound(
            f"cannot restore to '{to}'", "it names a pool, not a dataset in one", "name pool/path/name"
        )
    if not await zfs.exists(parent):
        there = await zfs.exists(target.pool)
        advice = f"'zfs create -p {parent}' first" if there else "'zpool list' shows the pools there are"
        raise NotFound(f"cannot restore to '{to}'", f"its parent '{parent}' does not exist", advice)
    return parent


async def find_root(context: Context, vault: OpenVault, request: RestoreRequest) -> tuple[Tree, Dataset]:
    """A backup's datasets on the vault, and the one that was asked for, by either of its names. Raises NotFound."""
    backup = context.env.backup(request.backup)
    top = context.env.target_of(backup, backup.source.dataset)
    tree = await list_around_damage(vault.zfs, top)
    target = context.env.counterpart_of(backup, request.dataset)
    dataset = tree.get(request.dataset) or (tree.get(target) if target is not None else None)
    _refuse_unlisted(tree, target or DatasetName(request.dataset), below=request.recursive)
    if dataset is None:
        known = ", ".join(d.name for d in list(tree)[:8])
        raise NotFound(
            f"vault '{vault.name}' has no '{request.dataset}' of backup '{request.backup}'",
            f"it has {known}" if known else "it has nothing of that backup",
            f"'zvaultctl list' shows every dataset of backup '{request.backup}'",
        )
    return tree, dataset


def _refuse_unlisted(tree: Tree, wanted: DatasetName, *, below: bool) -> None:
    """Raise ToolFailed where the vault cannot list what is wanted, or, if so asked, anything below it.

    The others are there, and none of those may be left out of a restore without a word.
    """
    for name, said in tree.unlisted.items():
        unknown = wanted.is_within(name) and wanted not in tree.datasets
        if unknown or (below and name.is_below(wanted)):
            raise ToolFailed(
                f"'{name}' on the vault cannot be listed",
                said,
                f"'zpool status {name.pool}' tells whether it is damaged; other datasets can be restored one by one,"
                " without --recursive",
            )


def _as_sent(tree: Tree, root: Dataset) -> tuple[Tree, Dataset]:
    """The same, with what the vault encrypted itself as it came: without."""
    seen: dict[str, Dataset] = {
        one.name: one if one.encrypted == is_raw_copy(one) else replace(one, encrypted=False) for one in tree
    }
    return replace(tree, datasets=seen), seen[root.name]


def make_no_snapshot_error(dataset: Dataset, request: RestoreRequest) -> NotFound:
    """The error where a dataset has not the snapshot that was asked for."""
    snapnames = ", ".join(snap.snapname for snap in dataset.snapshots[-3:])
    wanted = (
        f"snapshot '{request.snapname}'"
        if request.snapname
        else "snapshot"
        if request.at is None
        else "snapshot of then"
    )
    return NotFound(
        f"{dataset.name} has no {wanted}",
        f"the newest are {snapnames}" if snapnames else "it has none at all",
        "'zvaultctl list -t snapshot' shows them all",
    )


async def _work(
    vault: OpenVault, zfs: Zfs, one: Restoration, there: Tree, request: RestoreRequest
) -> DatasetWork:
    """What is left to do of one dataset. Raises Refused where something else is in its place."""
    target = there.get(one.target)
    token: InterruptedReceive | None = None
    streams = one.streams
    if target is not None:
        marks = await properties.read_local_properties(zfs.host, one.target, RESTORING)
        if marks.get(RESTORING) != str(one.snapshot.guid):
            raise _exists(one.target)
        streams = one.left({snap.guid for snap in target.snapshots}).streams
        if target.resume_token is not None:
            token = await vault.zfs.interrupted(target.resume_token)
            if problem := _problem(token, streams, one.dataset):
                raise Refused(
                    f"the restore to '{one.target}' that was cut off cannot go on",
                    problem,
                    f"'zfs receive -A {one.target}' gives it up; then restore again",
                )
        if not streams or streams[-1].snapshot.guid in {snap.guid for snap in target.snapshots}:
            return DatasetWork(one, (), (), "done")
    sizes = [await _size(vault.zfs, stream, one.dataset) for stream in streams]
    if token is not None and token.left is not None:
        sizes[0] = token.left
    action: Literal["restore", "resume"] = "resume" if target is not None else "restore"
    return DatasetWork(
        one, streams, tuple(sizes), action, target.resume_token if target is not None else None
    )


def _problem(token: InterruptedReceive, streams: Sequence[RestoreStream], dataset: Dataset) -> str:
    """Why a restore cannot go on where a token says, or nothing: the target's host may have written any token."""
    if token.problem:
        return token.problem
    if not streams or token.to_guid != streams[0].snapshot.guid:
        return "it was of another snapshot"
    if token.flags is not None and token.flags.raw != dataset.encrypted:
        return "it was begun raw (-w)" if token.flags.raw else "it was not begun raw (-w), and is encrypted"
    base = streams[0].base
    return token.strays(dataset.name.pool, {0 if base is None else base.guid})


def _exists(name: str) -> Refused:
    return Refused(
        f"'{name}' already exists",
        "a restore never writes over what is there",
        "name a dataset that does not exist; or let it take that one's place with --replace: -n shows how",
    )


async def _size(zfs: Zfs, stream: RestoreStream, dataset: Dataset) -> int:
    flags = ["large_blocks", "raw" if dataset.encrypted else "compress"]
    base = stream.base.name if stream.base is not None else None
    return await zfs.lzc.send_space(stream.snapshot.name, base, flags)


def _what_makes_room(there: Tree, to: DatasetName, request: RestoreRequest, then: float) -> list[str]:
    """What is at the target now, in words. Raises Refused where too much would go with it."""
    if to.parent is None:
        raise Refused(f"'{to}' cannot be replaced", "it is a pool's own dataset", "restore beside it")
    others = [one.name for one in there if one.name != to]
    if others and not request.recursive:
        raise Refused(
            f"'{to}' has {len(others)} datasets below it, which would be set aside with it",
            f"they are {', '.join(others[:5])}",
            "restore them too with -r, or restore to another name",
        )
    return [_told(one, then) for one in there]


def _told(one: Dataset, then: float) -> str:
    last = one.newest()
    since = f"since @{last.snapname}" if last is not None else "that no snapshot has"
    newer = sum(snap.creation > then for snap in one.snapshots)
    text = f"{one.name}: {format_size(one.used)}, of it {format_size(one.written)} written {since}"
    text += f"; {newer} newer {'snapshot' if newer == 1 else 'snapshots'}" if newer else ""
    return text + (f"; {SHUT_DOWN_FIRST}" if one.type == "volume" else "")
