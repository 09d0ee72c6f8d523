"""Stream snapshots out of a vault into datasets, and say where they are.

Nothing is ever written over. What shall take the place of a live dataset is restored beside it, and when it is whole
the two change names. A restore that was cut off goes on where it was when the same is asked for again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from zvault.core.errors import ToolFailed, ZvaultError
from zvault.core.model import Dataset
from zvault.core.restoring import Stream
from zvault.ops.context import Context, Emit
from zvault.ops.replacing import swap
from zvault.ops.restore_plan import Request, RestorePlan, Work, parse_target, plan_restore
from zvault.ops.stream import Progress, stream
from zvault.ops.vault import OpenVault, Vaults
from zvault.zfs import properties
from zvault.zfs.client import Zfs
from zvault.zfs.stream import (
    RESTORING,
    Flags,
    restore_receive_argv,
    restore_resume_argv,
    restore_send_argv,
)

__all__ = ["Request", "Restored", "Streams", "plan_document", "restore"]

RESTORED = Flags(large_blocks=True, compressed=True, embedded=True, raw=False, properties=True)
"""What a restored stream is like: blocks come as they are compressed on the vault."""

DEVICE_TRIES = 50
"""Tenths of a second udev may take."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What was restored: how many datasets, by how many bytes of streams."""

    datasets: int
    bytes: int


async def restore(context: Context, vaults: Vaults, request: Request, emit: Emit) -> Restored:
    """Restore; what is there is left alone, or set aside if the request says so. Raises what is in the way."""
    backup = context.backup(request.backup)
    zfs = context.source_at(parse_target(request.to).host)

    def say(text: str) -> None:
        emit("message", text=text)

    async with vaults[backup.vault].use(f"restore to {request.to}", say) as vault:
        plan = await plan_restore(context, vault, request)
        _announce(plan, emit)
        streams = Streams(context, vault, zfs, emit, plan.bytes, _host_of(request.to))
        for work in plan.works:
            await streams.carry_out(work)
    targets = [work.restoration.target for work in plan.works]
    if plan.staged:
        stamp = context.clock.now().strftime("%Y%m%dT%H%M%SZ")
        targets = await swap(zfs, plan, targets, stamp, say)
    for work, target in zip(plan.works, targets, strict=True):
        await properties.inherit(zfs.host, target, RESTORING)
        where = await _mount(zfs, work.restoration.dataset, target)
        told = _host_of(request.to) + target
        emit("restored", dataset=told, mountpoint=where, snapshot=work.restoration.snapshot.name)
    return Restored(len(plan.works), streams.done)


async def plan_document(context: Context, vaults: Vaults, request: Request) -> dict[str, object]:
    """What a restore would do, and what would make room for it."""
    backup = context.backup(request.backup)
    async with vaults[backup.vault].use(f"plan a restore to {request.to}", lambda _: None) as vault:
        return (await plan_restore(context, vault, request)).document()


def _host_of(to: str) -> str:
    """What stands before the dataset's name where it is on another host: ``ssh://root@filer1/``."""
    host = parse_target(to).host
    return f"{host}/" if host is not None else ""


def _announce(plan: RestorePlan, emit: Emit) -> None:
    rows = [
        {
            "dataset": work.restoration.target,
            "action": work.action,
            "bytes": work.bytes,
            "reason": f"from {work.restoration.snapshot.name}",
        }
        for work in plan.works
    ]
    emit("plan", datasets=rows, bytes_total=plan.bytes)
    for text in plan.lost:
        emit("message", text=f"set aside when the restore is whole: {text}")
    for name in plan.skipped:
        emit("warning", text=f"{name} is left out: it has no such snapshot")
    if plan.available is not None and plan.available < plan.bytes:
        emit("warning", text=f"{plan.target} may not have room: {plan.available} bytes are free")


@dataclass
class Streams:
    """Streams out of one vault to one host, ``total`` bytes in all; ``prefix`` stands before names that are told."""

    context: Context
    vault: OpenVault
    zfs: Zfs
    emit: Emit
    total: int
    prefix: str = ""
    done: int = 0

    async def carry_out(self, work: Work) -> None:
        """Restore what is left of one dataset. Raises what kept it from it; the same again goes on from there."""
        if not work.streams:
            self.emit("message", text=f"{work.restoration.target} is restored already")
            return
        await self.zfs.make_parents(work.restoration.target)
        token = work.token
        for one, size in zip(work.streams, work.sizes, strict=True):
            try:
                self.done += await self._stream(work, one, size, token)
            except ZvaultError as error:
                error.next = f"restore again the same way: it goes on from where it was. {error.next}".strip()
                raise
            token = None

    async def _stream(self, work: Work, one: Stream, size: int, token: str | None) -> int:
        dataset, target = work.restoration.dataset, work.restoration.target
        to, raw = self.prefix + target, dataset.encrypted
        reason = f"from {one.snapshot.name}"
        self.emit(
            "transfer-started",
            dataset=to,
            kind="resume" if token else "restore",
            **{"from": one.base.tag if one.base is not None else None},
            to=one.snapshot.tag,
            bytes=size,
            reason=reason,
        )

        def report(progress: Progress) -> None:
            self.emit(
                "progress",
                dataset=to,
                bytes=progress.done,
                total=size,
                rate=progress.rate(),
                buffer=progress.marks.range(),
                run_bytes=self.done + progress.done,
                run_total=self.total,
            )

        stall = self.context.vault(self.vault.name).stall
        route = self.context.route(self.vault.zfs, self.zfs, self.vault.profile.stream, stall)
        base = one.base.name if one.base is not None else None
        send = (
            restore_resume_argv(token) if token else restore_send_argv(one.snapshot.name, raw=raw, base=base)
        )
        mark = str(work.restoration.snapshot.guid)
        receive = restore_receive_argv(target, dataset.type, raw=raw, origin=one.origin, mark=mark)
        done = await stream(
            self.context.runner,
            await route.stages(send, receive, RESTORED, size),
            total=size,
            report=report,
            trouble=self.vault.trouble,
            stall=route.stall,
        )
        self.emit(
            "transfer-finished",
            dataset=to,
            bytes=done.bytes,
            seconds=done.seconds,
            run_bytes=self.done + done.bytes,
            run_total=max(self.total, self.done + done.bytes),
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
    known = await zfs.get(to, "mountpoint", "canmount", "mounted")
    if known["mountpoint"] in {"none", "legacy"}:
        return f"not mounted: set a mountpoint with 'zfs set mountpoint=PATH {to}'"
    if known["mounted"] != "yes":
        try:
            await zfs.mount(to)
        except ToolFailed as error:
            # Over there it may be that only root may (Linux: whatever 'zfs allow' says).
            if zfs.host.address is None and known["canmount"] == "on":
                raise
            return f"not mounted: {error.why}; there: 'zfs mount {to}'"
    return known["mountpoint"]
