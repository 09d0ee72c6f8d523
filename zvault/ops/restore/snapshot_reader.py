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

from zvault.core.address import parse_address
from zvault.core.errors import NotFound, Refused, ToolFailed, ZvaultError
from zvault.core.model import Dataset, Snapshot
from zvault.ops.context import Context
from zvault.system import hash_files
from zvault.system.hash_files import device_argv, parse_device
from zvault.system.mount import (
    DEADLINE,
    NOT_THERE,
    folder_argv,
    mount_argv,
    no_folder_argv,
    unmount_argv,
)
from zvault.system.tasks import to_its_end
from zvault.zfs import scratch_datasets, trial_dataset
from zvault.zfs.client import Zfs
from zvault.zfs.host import Host

LOOK = "look/"
"""What the names of leases begin with that tell of something made for reading."""

UNMOUNT_TRIES = 40
"""Half seconds: what was put down while it read is gone when the kernel has answered it."""


class KeyNotLoaded(Refused):
    """An encrypted snapshot whose key is not loaded where it is to be read."""


@dataclass(frozen=True, slots=True)
class OpenSnapshot:
    """An open snapshot. ``root`` is a folder, or a volume's device with its ``size`` in bytes."""

    host: Host
    root: str
    size: int | None = None


@contextlib.asynccontextmanager
async def reading(
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
async def _mounted(context: Context, host: Host, snapshot: Snapshot) -> AsyncIterator[OpenSnapshot]:
    folder = str(context.env.paths.run / f"{LOOK}{secrets.token_hex(4)}")
    async with _written_down(context, host, "mount", folder, _unmount):
        await host.run(folder_argv(folder), deadline=DEADLINE)
        await host.run(mount_argv(snapshot.name, folder), deadline=DEADLINE)
        yield OpenSnapshot(host, folder)


@contextlib.asynccontextmanager
async def _cloned(context: Context, host: Host, snapshot: Snapshot) -> AsyncIterator[OpenSnapshot]:
    number = secrets.token_hex(4)
    name = snapshot.dataset.pool.child(f"{trial_dataset.LOOK}{number}")
    async with kept_apart(context, host, name):
        link = await scratch_datasets.clone_volume(host, snapshot.name, name)
        found = await host.run(device_argv(link), deadline=DEADLINE)
        yield OpenSnapshot(host, *parse_device(found.stdout))


@contextlib.asynccontextmanager
async def kept_apart(context: Context, host: Host, name: str) -> AsyncIterator[None]:
    """Have a dataset of zvault's own for a block, in which it is made: written down before, destroyed after."""
    async with _written_down(context, host, "dataset", name, scratch_datasets.destroy):
        yield


@contextlib.asynccontextmanager
async def _written_down(
    context: Context, host: Host, kind: str, path: str, undo: Callable[[Host, str], Awaitable[None]]
) -> AsyncIterator[None]:
    lease = f"{LOOK}{secrets.token_hex(4)}"
    context.activity.readings.add(lease)
    context.records.leases.put(lease, {"kind": kind, "host": _told(host), "path": path})
    try:
        yield
    finally:
        try:
            await to_its_end(_undone(context, lease, undo(host, path)))
        finally:
            context.activity.readings.discard(lease)


async def _undone(context: Context, lease: str, undoing: Awaitable[None]) -> None:
    await undoing
    context.records.leases.drop(lease)


def _told(host: Host) -> str | None:
    return str(host.address) if host.address is not None else None


async def _unmount(host: Host, folder: str) -> None:
    """Take a mount and its folder away; neither need be there. Raises ToolFailed."""
    for _ in range(UNMOUNT_TRIES):
        done = await host.run(unmount_argv(folder), deadline=DEADLINE, check=False)
        if done.returncode == 0 or any(words in done.stderr for words in NOT_THERE):
            await host.run(no_folder_argv(folder), deadline=DEADLINE, check=False)
            return
        await asyncio.sleep(0.5)
    raise ToolFailed(
        f"cannot unmount {folder}", done.complaint(), f"'fuser -vm {folder}' shows who reads there"
    )


async def sweep(context: Context) -> list[str]:
    """Take away what was left open, by an earlier daemon as a rule; returns what cannot be taken away yet, in words."""
    left = []
    for lease in context.records.leases.names(LOOK):
        if lease in context.activity.readings:
            continue
        try:
            if (known := context.records.leases.get(lease)) is None:
                continue
            address = parse_address(known["host"]) if known["host"] else None
            host = context.clients.source_at(address).host
            if known["kind"] == "mount":
                await _unmount(host, known["path"])
            else:
                await scratch_datasets.destroy(host, known["path"])
        except ZvaultError as error:
            left.append(str(error))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            left.append(f"the lease {lease} tells of nothing that is known: {error!r}")
        else:
            context.records.leases.drop(lease)
    return left


async def run(side: OpenSnapshot, argv: Sequence[str], deadline: float = 60.0) -> str:
    """What a script of system/files.py prints. Raises ToolFailed for all that it could not read."""
    result = await side.host.run(argv, deadline=deadline, check=False)
    said = hash_files.complaints(result.stderr)
    if result.returncode != 0 or said:
        raise ToolFailed(f"cannot read below {side.root}", "; ".join(said[:3]) or result.complaint())
    return result.stdout
