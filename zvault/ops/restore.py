"""Stream a snapshot out of a vault into a new dataset, and say where it is."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from zvault.core.address import Source, parse_source
from zvault.core.errors import NotFound, Refused, ToolFailed, TransferFailed
from zvault.core.model import Dataset, Snapshot
from zvault.ops.context import Context, Emit
from zvault.ops.stream import Progress, stream
from zvault.ops.vault import OpenVault, Vaults
from zvault.zfs.client import Zfs
from zvault.zfs.stream import Flags, restore_receive_argv, restore_send_argv

RESTORED = Flags(large_blocks=True, compressed=True, embedded=True, raw=False, properties=True)
"""What a restored stream is like: blocks come as they are compressed on the vault."""

DEVICE_TRIES = 50
"""Tenths of a second udev may take."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to restore: a dataset by its source name or its name on the vault, ``tag`` None for the newest.

    ``to`` is a dataset on this host, or on another as in ``ssh://root@filer1/tank/back``.
    """

    backup: str
    dataset: str
    tag: str | None
    to: str


@dataclass(frozen=True, slots=True)
class Restored:
    """Where a snapshot was restored to. ``mountpoint`` is a path on that host, for a volume its device."""

    snapshot: str
    to: str
    mountpoint: str
    bytes: int


async def restore(context: Context, vaults: Vaults, request: Request, emit: Emit) -> Restored:
    """Restore into a dataset that does not exist yet. Nothing that is there is touched."""
    backup = context.backup(request.backup)
    target = await check_target(context, request.to)
    zfs = context.source_at(target.host)

    def say(text: str) -> None:
        emit("message", text=text)

    async with vaults[backup.vault].use(f"restore to {request.to}", say) as vault:
        dataset, snapshot = await _find(context, vault, request)
        moved = await _stream(context, vault, dataset, snapshot, target, emit)
    where = await _mount(zfs, dataset, target.dataset)
    emit("restored", dataset=request.to, mountpoint=where, snapshot=snapshot.name)
    return Restored(snapshot.name, request.to, where, moved)


async def check_target(context: Context, to: str) -> Source:
    """Where that is. Refuses a target that exists, has no parent, or has no name ZFS accepts."""
    try:
        target = parse_source(to)
    except ValueError as error:
        raise Refused(f"cannot restore to '{to}'", str(error), "name a new dataset: pool/path/name") from None
    zfs = context.source_at(target.host)
    if await zfs.exists(target.dataset):
        raise Refused(
            f"'{to}' exists already",
            "a restore never writes over what is there",
            "name a dataset that does not exist",
        )
    parent = target.dataset.rpartition("/")[0]
    if not parent:
        raise NotFound(
            f"cannot restore to '{to}'", "it names a pool, not a dataset in one", "name pool/path/name"
        )
    if not await zfs.exists(parent):
        there = await zfs.exists(target.pool)
        advice = f"'zfs create -p {parent}' first" if there else "'zpool list' shows the pools there are"
        raise NotFound(f"cannot restore to '{to}'", f"its parent '{parent}' does not exist", advice)
    return target


async def _find(context: Context, vault: OpenVault, request: Request) -> tuple[Dataset, Snapshot]:
    """The dataset on the vault, by either of its names, and the snapshot asked for."""
    backup = context.backup(request.backup)
    tree = await vault.zfs.tree_or_none(context.target_of(backup, backup.source.dataset))
    dataset = tree.get(request.dataset) or tree.get(context.target_of(backup, request.dataset))
    if dataset is None:
        known = ", ".join(d.name for d in list(tree)[:8])
        raise NotFound(
            f"vault '{vault.name}' has no '{request.dataset}' of backup '{request.backup}'",
            f"it has {known}" if known else "it has nothing of that backup",
            f"'zvaultctl list' shows every dataset of backup '{request.backup}'",
        )
    if request.tag is None and (newest := dataset.newest()) is not None:
        return dataset, newest
    snapshot = next((snap for snap in dataset.snapshots if snap.tag == request.tag), None)
    if snapshot is None:
        tags = ", ".join(snap.tag for snap in dataset.snapshots[-3:])
        raise NotFound(
            f"{dataset.name} has no snapshot '{request.tag or ''}'",
            f"the newest are {tags}" if tags else "it has none at all",
            "'zvaultctl list -t snapshot' shows them all",
        )
    return dataset, snapshot


async def _stream(
    context: Context, vault: OpenVault, dataset: Dataset, snapshot: Snapshot, target: Source, emit: Emit
) -> int:
    to, raw = str(target), dataset.encrypted
    size = await vault.zfs.lzc.send_space(snapshot.name, None, ["large_blocks", "compress"])
    emit(
        "plan",
        datasets=[{"dataset": to, "action": "restore", "bytes": size, "reason": f"from {snapshot.name}"}],
        bytes_total=size,
    )
    emit(
        "transfer-started",
        dataset=to,
        kind="restore",
        **{"from": None},
        to=snapshot.tag,
        bytes=size,
        reason="asked for",
    )

    stall = context.vault(vault.name).stall
    route = context.route(vault.zfs, context.source_at(target.host), vault.profile.stream, stall)

    def report(progress: Progress) -> None:
        emit(
            "progress",
            dataset=to,
            bytes=progress.done,
            total=size,
            rate=progress.rate(),
            buffer=progress.marks.range(),
            run_bytes=progress.done,
            run_total=size,
        )

    try:
        done = await stream(
            context.runner,
            await route.stages(
                restore_send_argv(snapshot.name, raw=raw),
                restore_receive_argv(target.dataset, dataset.type, raw=raw),
                RESTORED,
                size,
            ),
            total=size,
            report=report,
            trouble=vault.trouble,
            stall=route.stall,
        )
    except TransferFailed as error:
        advice = f"if {to} was left behind, destroy it, then restore again"
        raise TransferFailed(error.what, error.why, advice) from None
    emit(
        "transfer-finished",
        dataset=to,
        bytes=done.bytes,
        seconds=done.seconds,
        run_bytes=done.bytes,
        run_total=done.bytes,
    )
    return done.bytes


async def _appears(device: Path) -> None:
    """Give udev time to make a volume's device, so that what is told is there."""
    for _ in range(DEVICE_TRIES):
        if await asyncio.to_thread(device.exists):
            return
        await asyncio.sleep(0.1)


async def _mount(zfs: Zfs, dataset: Dataset, to: str) -> str:
    """Mount what was restored, where that can be done, and tell the path."""
    if dataset.type == "volume":
        device = Path("/dev/zvol") / to
        if zfs.host.address is None:
            await _appears(device)
        return str(device)
    if dataset.encrypted:
        return f"not mounted: load its key with 'zfs load-key {to}', then 'zfs mount {to}'"
    properties = await zfs.get(to, "mountpoint", "canmount", "mounted")
    if properties["mountpoint"] in {"none", "legacy"}:
        return f"not mounted: set a mountpoint with 'zfs set mountpoint=PATH {to}'"
    if properties["mounted"] != "yes":
        try:
            await zfs.mount(to)
        except ToolFailed as error:
            # Over there it may be that only root may (Linux: whatever 'zfs allow' says).
            if zfs.host.address is None:
                raise
            return f"not mounted: {error.why}; there: 'zfs mount {to}'"
    return properties["mountpoint"]
