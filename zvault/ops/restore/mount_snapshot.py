"""Mount a snapshot of a vault in a folder to look into it: read-only, for as long as somebody wants it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from zvault.api.restore import MountedAnswer
from zvault.core.errors import Refused
from zvault.core.model import Dataset, Snapshot
from zvault.core.replication.base_names import MOUNT_HOLD
from zvault.ops.context import Context
from zvault.ops.restore.plan_restore import RestoreRequest, find_root, make_no_snapshot_error
from zvault.ops.restore.snapshot_reader import KeyNotLoaded, hold_snapshots, is_mounted, mount_at
from zvault.ops.state.activity import ActiveMount
from zvault.ops.vaults.vault import OpenVault
from zvault.ops.vaults.vault_interface import VaultsByName
from zvault.system.mount import is_mount_point
from zvault.system.mount_folder import check_folder_argv
from zvault.zfs.client import Zfs

MOUNTED_INTERVAL = 1.0
"""Seconds between looks at whether it is still mounted."""

CHECK_DEADLINE = 20.0
"""Seconds for a look at the folder."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class MountRequest:
    """A request to mount: a dataset by either of its names, None for the backup's own; ``at`` picks the snapshot.

    ``seconds``: how long it stays; None until somebody ends it. ``vault_at``: see RestoreRequest.
    """

    backup: str
    dataset: str | None
    folder: str
    at: float | None = None
    seconds: float | None = None
    vault_at: float | None = None


async def mount_snapshot(
    context: Context,
    vaults: VaultsByName,
    wanted: MountRequest,
    say: Say,
    *,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> MountedAnswer:
    """Mount a snapshot, and unmount it when the time is over, when somebody unmounted it, or when this is cancelled.

    The vault is up and the snapshot held meanwhile. Raises Refused for a folder that is not fit, NotFound.
    """
    backup = context.env.backup(wanted.backup)
    user = f"mount at {wanted.folder}"
    async with vaults[backup.its_vault].use(user, say, writes=False, reads=True, create=False) as vault:
        await _check(context, vault.zfs, wanted.folder)
        dataset, snapshot = await _chosen(context, vault, wanted)
        async with _mounted(context, vault, snapshot, wanted):
            kept = "stays open as it was" if vault.readonly else "is kept up"
            held_too = "" if vault.readonly else "it is held and "
            say(
                f"{snapshot.name} is mounted at {wanted.folder}, read-only; {held_too}vault {vault.name} {kept}"
                " meanwhile; Ctrl-C or umount ends it"
            )
            ended = await _until(wanted, snapshot, pause)
    return {"folder": wanted.folder, "dataset": dataset.name, "snapshot": snapshot.name, "ended": ended}


@asynccontextmanager
async def _mounted(
    context: Context, vault: OpenVault, snapshot: Snapshot, wanted: MountRequest
) -> AsyncIterator[None]:
    """Held first, unmounted before it is released. In a vault as it was nobody can destroy it, nor hold it."""
    number, mounts = secrets.token_hex(8), context.activity.mounts
    async with AsyncExitStack() as stack:
        if not vault.readonly:
            await stack.enter_async_context(
                hold_snapshots(context, vault.zfs, [snapshot.name], f"{MOUNT_HOLD}{secrets.token_hex(4)}")
            )
        await stack.enter_async_context(mount_at(context, vault.zfs.host, snapshot, wanted.folder))
        now = context.env.clock.time()
        mounts[number] = ActiveMount(wanted.backup, snapshot.name, wanted.folder, now)
        try:
            yield
        finally:
            del mounts[number]


async def _until(wanted: MountRequest, snapshot: Snapshot, pause: Callable[[float], Awaitable[None]]) -> str:
    """Wait until it is to end; why it does."""
    left = wanted.seconds
    while left is None or left > 0:
        if not is_mounted(snapshot.name, wanted.folder):
            return "it was unmounted"
        await pause(MOUNTED_INTERVAL if left is None else min(MOUNTED_INTERVAL, left))
        left = None if left is None else left - MOUNTED_INTERVAL
    return "its time is over"


async def _check(context: Context, zfs: Zfs, folder: str) -> None:
    """See that the folder is fit. Raises Refused."""
    if zfs.host.address is not None:
        raise Refused(
            "nothing can be mounted from there",
            f"the vault is on {zfs.host.address}",
            "mount it there, or restore the dataset to a new one here",
        )
    done = await zfs.host.run(check_folder_argv(folder), deadline=CHECK_DEADLINE, check=False)
    why = done.stdout.strip() or (done.complaint() if done.returncode else "")
    why = why or ("something is mounted there" if is_mount_point(folder) else "")
    if why:
        raise Refused(
            f"nothing is mounted at '{folder}'",
            why,
            "name an empty folder that only root can change, as in /mnt",
        )


async def _chosen(context: Context, vault: OpenVault, wanted: MountRequest) -> tuple[Dataset, Snapshot]:
    """The dataset and its snapshot. Raises NotFound; Refused for what has no files, or whose key is not loaded."""
    source = context.env.backup(wanted.backup).source.dataset
    request = RestoreRequest(wanted.backup, wanted.dataset or source, None, wanted.folder, at=wanted.at)
    _, dataset = await find_root(context, vault, request)
    if dataset.type == "volume":
        raise Refused(f"{dataset.name} has no files", "it is a volume", "restore it to a new dataset")
    snapshot = request.pick()(dataset)
    if snapshot is None:
        raise make_no_snapshot_error(dataset, request)
    if dataset.encrypted and (await vault.zfs.get(dataset.name, "keystatus"))["keystatus"] != "available":
        raise KeyNotLoaded(
            f"{snapshot.name} cannot be mounted",
            "it is encrypted, and its key is not loaded here",
            f"'zvaultctl vault up {vault.name}' and 'zfs load-key {dataset.name}'; unload it after that",
        )
    return dataset, snapshot
