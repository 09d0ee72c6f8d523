"""Restore snapshots of a vault into datasets, and say where they are. The streams are in restore_streams.py.

Nothing is ever written over. What shall take the place of a live dataset is restored beside it, and when it is whole
the two change names. A restore that was cut off goes on where it was when the same is asked for again.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from zvault.api.events import Emit, MessageEvent, PlannedEvent, PlannedTransfer, RestoredEvent, WarningEvent
from zvault.api.restore import RestorePlanDocument
from zvault.core.errors import ToolFailed, ZvaultError
from zvault.core.integrity.restore_comparison import RestoreMismatch
from zvault.core.model import Dataset
from zvault.core.names import DatasetName
from zvault.ops.context import Context
from zvault.ops.restore.plan_restore import (
    RestorePlan,
    RestoreRequest,
    check_target,
    parse_target,
    plan_restore,
)
from zvault.ops.restore.put_back_properties import RestoredProperties, read_wanted_properties
from zvault.ops.restore.restore_check import RestoreCheck, rename_as_restored
from zvault.ops.restore.restore_streams import RestoreStreams
from zvault.ops.restore.swap_datasets import swap_datasets
from zvault.ops.vaults.read_meter import start_read_meter
from zvault.ops.vaults.vault import OpenVault
from zvault.ops.vaults.vault_interface import VaultsByName
from zvault.zfs import properties
from zvault.zfs.client import Zfs
from zvault.zfs.stream_argv import RESTORING

__all__ = [
    "RestoreRequest",
    "RestoredDatasets",
    "make_restore_plan_document",
    "restore_datasets",
]

NO_DEVICE = "a snapshot of a volume gets no device in a pool that is imported read-only"

DEVICE_TRIES = 50
"""Tenths of a second udev may take."""


@dataclass(frozen=True, slots=True)
class RestoredDatasets:
    """The result of a restore: how many datasets, by how many bytes of streams. ``error`` says what is not as it
    was.
    """

    datasets: int
    bytes: int
    error: ZvaultError | None = None


async def restore_datasets(
    context: Context, vaults: VaultsByName, request: RestoreRequest, emit: Emit
) -> RestoredDatasets:
    """Restore; what is there is left alone, or set aside if the request says so. Raises what is in the way."""
    backup = context.env.backup(request.backup)
    await check_target(context, request)
    zfs = context.clients.source_at(parse_target(request.to).host)

    def say(text: str) -> None:
        emit(MessageEvent(text=text))

    use = vaults[backup.its_vault].use(f"restore to {request.to}", say, reads=True, create=False)
    async with use as vault:
        plan = await plan_restore(context, vault, request)
        _announce(plan, emit)
        streams = RestoreStreams(context, vault, backup.name, zfs, emit, _host_of(request.to))
        meter, began = await start_read_meter(vault, "restore", emit), time.monotonic()
        await streams.restore_all(plan.works)
        await meter.report_reading(streams.done, time.monotonic() - began)
        wanted = await read_wanted_properties(vault.zfs, [work.restoration.dataset for work in plan.works])
        targets = [work.restoration.target for work in plan.works]
        # Beside what it is to replace it is in the same place of the tree, so that keys are inherited there too.
        await RestoredProperties(zfs, wanted, targets, emit).apply()
        if plan.staged:
            stamp = context.env.clock.now().strftime("%Y%m%dT%H%M%SZ")
            targets = await swap_datasets(zfs, plan, targets, stamp, say)
        check = RestoreCheck(context, request.to, streams.done, emit)
        for work, target in zip(plan.works, targets, strict=True):
            await properties.inherit_property(zfs.host, target, RESTORING)
            where: str | None = None
            try:
                where, why = await _mount(zfs, work.restoration.dataset, target)
            except ToolFailed as error:
                why = error.why or error.what
                check.tell([RestoreMismatch(target, "", "not mounted", "", why)])
                check.compared.commands.append(shlex.join(["zfs", "mount", target]))
            told = _host_of(request.to) + target
            emit(
                RestoredEvent(
                    dataset=told, mountpoint=where, why=why, snapshot=work.restoration.snapshot.name
                )
            )
        check.tell(await RestoredProperties(zfs, wanted, targets, emit).check(check.compared))
        if request.compare:
            say("comparing what was restored with the snapshot; it can be used already")
            await _compare(check, plan, targets, vault, zfs, _host_of(request.to))
    return RestoredDatasets(len(plan.works), streams.done, check.finish())


async def _compare(
    check: RestoreCheck,
    plan: RestorePlan,
    targets: Sequence[DatasetName],
    vault: OpenVault,
    zfs: Zfs,
    prefix: str,
) -> None:
    for work, target in zip(plan.works, targets, strict=True):
        its = work.restoration.dataset, work.restoration.snapshot
        if vault.readonly and its[0].type == "volume":
            check.compared.unread[prefix + target] = NO_DEVICE
            continue
        await check.dataset(vault.zfs, its, zfs, rename_as_restored(*its, target), prefix + target)


async def make_restore_plan_document(
    context: Context, vaults: VaultsByName, request: RestoreRequest
) -> RestorePlanDocument:
    """Plan what a restore would do, and what would make room for it."""
    backup = context.env.backup(request.backup)
    await check_target(context, request)
    use = vaults[backup.its_vault].use(f"plan a restore to {request.to}", lambda _: None, create=False)
    async with use as vault:
        return (await plan_restore(context, vault, request)).document()


def _host_of(to: str) -> str:
    """What stands before the dataset's name where it is on another host: ``ssh://root@filer1/``."""
    host = parse_target(to).host
    return f"{host}/" if host is not None else ""


def _announce(plan: RestorePlan, emit: Emit) -> None:
    rows: list[PlannedTransfer] = [
        {
            "dataset": work.restoration.target,
            "action": work.action,
            "bytes": work.bytes,
            "reason": f"from {work.restoration.snapshot.name}",
        }
        for work in plan.works
    ]
    emit(PlannedEvent(datasets=rows, bytes_total=plan.bytes))
    for text in plan.lost:
        emit(MessageEvent(text=f"set aside when the restore is whole: {text}"))
    for name in plan.skipped:
        emit(WarningEvent(text=f"{name} is left out: it has no such snapshot"))
    if plan.available is not None and plan.available < plan.bytes:
        emit(WarningEvent(text=f"{plan.target} may not have room: {plan.available} bytes are free"))


async def _mount(zfs: Zfs, dataset: Dataset, to: str) -> tuple[str | None, str]:
    """Mount what was restored, where that can be done: its path, or None and why it has none, with what to do.

    Raises ToolFailed where it should be mounted.
    """
    known = await zfs.get(to, "mountpoint", "canmount", "mounted", "keystatus", "encryptionroot")
    if dataset.type == "volume":
        unlock = _unlock(known)
        return (None, f"its device is not there yet: {unlock}") if unlock else (await _device(zfs, to), "")
    if why := _not_to_be_mounted(known, to):
        return None, why
    try:
        if known["mounted"] != "yes":
            await zfs.mount(to)
    except ToolFailed as error:
        if zfs.host.address is None:
            raise
        # On another host it may be that only root may (Linux: whatever 'zfs allow' says).
        return None, f"{error.why}; there: 'zfs mount {to}'"
    return known["mountpoint"], ""


def _unlock(known: Mapping[str, str]) -> str:
    """What makes a dataset's key available; empty where nothing is needed."""
    locked = known["keystatus"] not in {"-", "available"}
    return f"load its key with 'zfs load-key {known['encryptionroot']}'" if locked else ""


def _not_to_be_mounted(known: Mapping[str, str], to: str) -> str:
    """Why a filesystem is not to be mounted, or cannot be, with what to do; empty if it is to be."""
    if known["mountpoint"] in {"none", "legacy"}:
        return f"set a mountpoint with 'zfs set mountpoint=PATH {to}'"
    if known["canmount"] != "on":
        how = f"; 'zfs mount {to}' does it" if known["canmount"] == "noauto" else ""
        return f"its canmount is {known['canmount']}{how}"
    unlock = _unlock(known)
    return f"{unlock}, then 'zfs mount {to}'" if unlock else ""


async def _device(zfs: Zfs, volume: str) -> str:
    """A volume's device. On this host udev is given time to make it, so that what is told is there."""
    device = Path("/dev/zvol") / volume
    for _ in range(DEVICE_TRIES if zfs.host.address is None else 0):
        if await asyncio.to_thread(device.exists):
            break
        await asyncio.sleep(0.1)
    return str(device)
