"""A snapshot open for reading: its files below a folder, or a volume's bytes on a device; closed whatever happens.

On this host, and for vaults on others, zvault mounts the snapshot itself, in a folder of its own: the vault's dataset
stays unmounted. A source on another host is read through its ``.zfs/snapshot``, which needs no rights. A volume is read
from a clone. What was made is written down before, and taken away after a crash.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from zvault.core.address import Address, parse_address
from zvault.core.errors import NotFound, Refused, ToolFailed, ZvaultError
from zvault.core.model import Dataset, Snapshot
from zvault.core.names import SnapshotName
from zvault.ops.context import Context
from zvault.system import hash_files
from zvault.system.hash_files import device_argv, parse_device
from zvault.system.mount import (
    MOUNT_DEADLINE,
    NOT_MOUNTED_WORDS,
    make_folder_argv,
    mount_argv,
    remove_folder_argv,
    unmount_argv,
)
from zvault.system.procfs import list_pool_mounts
from zvault.system.record_store import RecordStore
from zvault.system.tasks import finish_work
from zvault.zfs import scratch_datasets, trial_dataset
from zvault.zfs.changes import NamesGone, list_some_names
from zvault.zfs.client import Zfs
from zvault.zfs.host import ZfsHost

LOOK_LEASE_PREFIX = "look/"
"""What the names of leases begin with that tell of something made for reading."""

UNMOUNT_TRIES = 40
"""Half seconds: what was put down while it read is gone when the kernel has answered it."""


class KeyNotLoaded(Refused):
    """An encrypted snapshot whose key is not loaded where it is to be read."""


@dataclass(frozen=True, slots=True)
class OpenSnapshot:
    """An open snapshot. ``root`` is a folder, or a volume's device with its ``size`` in bytes."""

    host: ZfsHost
    root: str
    size: int | None = None


@contextlib.asynccontextmanager
async def open_snapshot(
    context: Context, zfs: Zfs, dataset: Dataset, snapshot: Snapshot, *, theirs: bool = False
) -> AsyncIterator[OpenSnapshot]:
    """Have a snapshot open for a block. ``theirs``: it belongs to a source, so where it is on another host nothing is
    mounted. Raises what keeps it from being read; KeyNotLoaded where its key is not loaded.
    """
    if dataset.encrypted and (await zfs.get(dataset.name, "keystatus"))["keystatus"] != "available":
        raise KeyNotLoaded(
            f"{snapshot.name} cannot be read",
            "it is encrypted, and its key is not loaded there",
            "its GUIDs and a scrub of its pool prove it as far as can be; a drill with the key proves the rest",
        )
    if dataset.type == "volume":
        opened = _cloned(context, zfs.host, snapshot)
    elif theirs and zfs.host.address is not None:
        opened = _browsed(zfs, dataset, snapshot)
    else:
        opened = _mounted(context, zfs.host, snapshot)
    async with opened as open_one:
        yield open_one


@contextlib.asynccontextmanager
async def _browsed(zfs: Zfs, dataset: Dataset, snapshot: Snapshot) -> AsyncIterator[OpenSnapshot]:
    properties = await zfs.get(dataset.name, "mounted", "mountpoint")
    if properties["mounted"] != "yes":
        raise NotFound(
            f"{snapshot.name} cannot be read",
            f"{dataset.name} is not mounted on {zfs.host.address}",
            f"mount it there: 'zfs mount {dataset.name}'",
        )
    yield OpenSnapshot(zfs.host, f"{properties['mountpoint'].rstrip('/')}/.zfs/snapshot/{snapshot.snapname}/")


@contextlib.asynccontextmanager
async def _mounted(context: Context, host: ZfsHost, snapshot: Snapshot) -> AsyncIterator[OpenSnapshot]:
    folder = str(context.env.paths.run / f"{LOOK_LEASE_PREFIX}{secrets.token_hex(4)}")
    async with _written_down(context, host, "mount", folder, _unmount):
        await host.run(make_folder_argv(folder), deadline=MOUNT_DEADLINE)
        await host.run(mount_argv(snapshot.name, folder), deadline=MOUNT_DEADLINE)
        yield OpenSnapshot(host, folder)


@contextlib.asynccontextmanager
async def mount_at(context: Context, host: ZfsHost, snapshot: Snapshot, folder: str) -> AsyncIterator[None]:
    """Have a snapshot mounted for a block in a folder of somebody's, which stays."""
    async with _written_down(context, host, "mount at", f"{snapshot.name}\t{folder}", _unmount_ours):
        await host.run(mount_argv(snapshot.name, folder), deadline=MOUNT_DEADLINE)
        yield


@contextlib.asynccontextmanager
async def hold_snapshots(
    context: Context, zfs: Zfs, names: Sequence[SnapshotName], tag: str
) -> AsyncIterator[frozenset[SnapshotName]]:
    """Have snapshots of one pool held for a block; gives those that are. Raises NamesGone where none is, ToolFailed."""

    async def release(_: ZfsHost, __: str) -> None:
        with contextlib.suppress(NamesGone):  # somebody released it, and it may be gone since
            await zfs.lzc.release(names, tag)

    store = context.records.mount_holds
    async with _written_down(context, zfs.host, "hold", "\t".join([*names, tag]), release, store):
        gone: frozenset[str] = frozenset()
        try:
            await zfs.lzc.hold(names, tag)
        except NamesGone as error:
            gone = frozenset(error.among(names))
            if len(gone) == len(names):
                raise
        yield frozenset(names) - gone


@contextlib.asynccontextmanager
async def _cloned(context: Context, host: ZfsHost, snapshot: Snapshot) -> AsyncIterator[OpenSnapshot]:
    number = secrets.token_hex(4)
    name = snapshot.dataset.pool.child(f"{trial_dataset.LOOK_PREFIX}{number}")
    async with make_scratch_dataset(context, host, name):
        link = await scratch_datasets.clone_volume(host, snapshot.name, name)
        found = await host.run(device_argv(link), deadline=MOUNT_DEADLINE)
        yield OpenSnapshot(host, *parse_device(found.stdout))


@contextlib.asynccontextmanager
async def make_scratch_dataset(context: Context, host: ZfsHost, name: str) -> AsyncIterator[None]:
    """Have a dataset of zvault's own for a block, in which it is made: written down before, destroyed after."""
    async with _written_down(context, host, "dataset", name, scratch_datasets.destroy_scratch):
        yield


@contextlib.asynccontextmanager
async def _written_down(
    context: Context,
    host: ZfsHost,
    kind: str,
    path: str,
    undo: Callable[[ZfsHost, str], Awaitable[None]],
    store: RecordStore | None = None,
) -> AsyncIterator[None]:
    lease, store = f"{LOOK_LEASE_PREFIX}{secrets.token_hex(4)}", store or context.records.undo
    context.activity.readings.add(lease)
    try:
        store.put(lease, {"kind": kind, "host": _told(host), "path": path})
        try:
            yield
        finally:
            await finish_work(_undone(store, lease, undo(host, path)))
    finally:
        context.activity.readings.discard(lease)


async def _undone(store: RecordStore, lease: str, undoing: Awaitable[None]) -> None:
    await undoing
    store.drop(lease)


def _told(host: ZfsHost) -> str | None:
    return str(host.address) if host.address is not None else None


async def _unmount(host: ZfsHost, folder: str) -> None:
    """Take a mount and its folder away; neither need be there. Raises ToolFailed."""
    await _unmount_only(host, folder)
    await host.run(remove_folder_argv(folder), deadline=MOUNT_DEADLINE, check=False)


async def _unmount_ours(host: ZfsHost, path: str) -> None:
    """Take a snapshot off somebody's folder, unless something else is mounted there by now. Raises ToolFailed."""
    name, folder = path.split("\t", 1)
    if is_mounted(SnapshotName(name), folder):
        await _unmount_only(host, folder)


def is_mounted(snapshot: SnapshotName, folder: str) -> bool:
    """True if a snapshot is mounted on a folder of this host. Asks the kernel's list only, never what is mounted."""
    return any(one.source == snapshot and one.point == folder for one in list_pool_mounts(snapshot.pool))


async def _unmount_only(host: ZfsHost, folder: str) -> None:
    """Take a mount away; it need not be there. Raises ToolFailed."""
    for _ in range(UNMOUNT_TRIES):
        done = await host.run(unmount_argv(folder), deadline=MOUNT_DEADLINE, check=False)
        if done.returncode == 0 or any(words in done.stderr for words in NOT_MOUNTED_WORDS):
            return
        await asyncio.sleep(0.5)
    raise ToolFailed(
        f"cannot unmount {folder}", done.complaint(), f"'fuser -vm {folder}' shows who reads there"
    )


async def close_left_open(context: Context, within: float | None = None) -> list[str]:
    """Take away what was left open, by an earlier daemon as a rule; returns what cannot be taken away yet, in words.

    What does not end ``within`` so many seconds each stays for the next time: its pool may hang.
    """
    left = []
    # A mount keeps its snapshot busy: it goes first.
    for store in (context.records.undo, context.records.mount_holds):
        for lease in store.names(LOOK_LEASE_PREFIX):
            if lease in context.activity.readings:
                continue
            try:
                async with asyncio.timeout(within):
                    why = await _swept(context, store, lease)
            except TimeoutError:
                why = f"what was left open by lease {lease} did not go within {within or 0:g} s: it is in use, or hangs"
            left += [why] if why else []
    return left


async def _swept(context: Context, store: RecordStore, lease: str) -> str:
    """Take away what a lease tells of, and the lease; else why that cannot be done yet."""
    try:
        if (known := store.get(lease)) is None:
            return ""
        address = parse_address(known["host"]) if known["host"] else None
        host, path = context.clients.source_at(address).host, known["path"]
        match known["kind"]:
            case "mount":
                await _unmount(host, path)
            case "mount at":
                await _unmount_ours(host, path)
            case "hold":
                await _release_left(context, address, path)
            case _:
                await scratch_datasets.destroy_scratch(host, path)
    except ZvaultError as error:
        return str(error)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return f"the lease {lease} tells of nothing that is known: {error!r}"
    try:
        store.drop(lease)
    except OSError as error:
        return f"what was left open by lease {lease} is gone, but that cannot be written down: {error}"
    return ""


async def _release_left(context: Context, address: Address | None, path: str) -> None:
    """Release holds that were left. Raises ZvaultError while their pool is not there: then they stay written down."""
    *names, tag = path.split("\t")
    snapshots = [SnapshotName(name) for name in names]
    pool = snapshots[0].pool
    if await context.clients.zpool_at(address).state(pool) is None:
        raise NotFound(
            f"the hold {tag} of {list_some_names(names)} stays for now", f"pool {pool} is not imported"
        )
    with contextlib.suppress(NamesGone):
        await context.clients.source_at(address).lzc.release(snapshots, tag)


async def run_script(side: OpenSnapshot, argv: Sequence[str], deadline: float = 60.0) -> str:
    """Run a script of system/hash_files.py and return what it prints. Raises ToolFailed for all that it could not
    read.
    """
    result = await side.host.run(argv, deadline=deadline, check=False)
    said = hash_files.list_read_complaints(result.stderr)
    if result.returncode != 0 or said:
        raise ToolFailed(f"cannot read below {side.root}", "; ".join(said[:3]) or result.complaint())
    return result.stdout
