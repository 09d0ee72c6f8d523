"""Streams out of a vault into datasets: several at once, in slots, as those of a run; each can be resumed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from zvault.api.events import (
    DatasetFailed,
    Emit,
    MessageEvent,
    ProgressMade,
    TransferFinished,
    TransferStarted,
    WarningEvent,
)
from zvault.core.errors import Refused, ZvaultError
from zvault.core.names import DatasetName, parse_name
from zvault.core.replication.progress import RunMeter
from zvault.core.replication.restore_order import RestoreStream, list_restore_needs
from zvault.core.replication.run_order import RunOrder
from zvault.ops.context import Context
from zvault.ops.restore.plan_restore import DatasetWork
from zvault.ops.stream.parallel import ParallelWork, tell_while_waiting
from zvault.ops.stream.route import turn_stream_back
from zvault.ops.stream.run_stream import StreamProgress, StreamResult, run_stream
from zvault.ops.vaults.vault import OpenVault
from zvault.zfs import properties
from zvault.zfs.client import Zfs
from zvault.zfs.stream_argv import (
    OwnEncryption,
    SendFlags,
    restore_receive_argv,
    restore_resume_argv,
    restore_send_argv,
)
from zvault.zfs.stream_orders import make_restore_order, make_resumed_order

RESTORED = SendFlags(large_blocks=True, compressed=True, embedded=True, raw=False, properties=True)
"""What a restored stream is like: blocks come as they are compressed on the vault."""


@dataclass
class RestoreStreams:
    """Streams out of one vault to one host, of a ``backup``; ``prefix`` stands before names that are told."""

    context: Context
    vault: OpenVault
    backup: str
    zfs: Zfs
    emit: Emit
    prefix: str = ""
    meter: RunMeter = field(default_factory=RunMeter)
    raw: set[str] = field(default_factory=set)
    """What was restored raw: what lies below it in the clear did so on the source as well."""
    parents: set[str] = field(default_factory=set)
    """Datasets of the target that were found or made for what lies below them."""

    @property
    def done(self) -> int:
        """Bytes that went through so far."""
        return self.meter.done

    @property
    def owner(self) -> str:
        """Whose the slots of its streams are."""
        return f"restore of {self.backup}"

    async def restore_all(self, works: Sequence[DatasetWork]) -> None:
        """Restore what is left of all, as many at once as the vault and the target's host have slots for.

        What one suffers stops only itself and what needs it; once all others are done the first error is raised. The
        same again goes on from there. A vault that fell away stops all.
        """
        by_target: dict[str, DatasetWork] = {work.restoration.target: work for work in works}
        needs = list_restore_needs([work.restoration for work in works])
        sizes = {target: work.bytes for target, work in by_target.items() if work.streams}
        order = RunOrder(needs, sizes)
        self.meter.expect({self.prefix + target: size for target, size in sizes.items()})
        queue = RestoreQueue(self, by_target, order)
        await queue.execute()
        if queue.failed:
            raise queue.failed[0]

    def list_slots(self) -> dict[str, int]:
        """What each stream takes a slot of, and how many there are, by the configuration in force."""
        env, host = self.context.env, self.zfs.host.address
        slots = {f"vault {self.vault.name}": env.vault(self.vault.name).transfers}
        if host is not None:
            slots[f"host {host.host}"] = env.host_config(host).transfers
        return slots

    async def restore_one(self, work: DatasetWork) -> None:
        """Restore what is left of one dataset. Raises what kept it from it; the same again goes on from there."""
        if work.restoration.dataset.encrypted:
            self.raw.add(work.restoration.target)
        if not work.streams:
            self.emit(MessageEvent(text=f"{work.restoration.target} is restored already"))
            return
        own = await self._own_encryption(work)
        await self.zfs.make_parents(work.restoration.target, self.parents)
        token = work.token
        for one, size in zip(work.streams, work.sizes, strict=True):
            try:
                await self._stream(work, one, size, token, own)
            except ZvaultError as error:
                error.next = f"restore again the same way: it goes on from where it was. {error.next}".strip()
                raise
            token = None

    async def _own_encryption(self, work: DatasetWork) -> OwnEncryption:
        """What the receive is told of encryption: what lies below an encrypted dataset is encrypted by its key.

        Raises Refused where that is not loaded.
        """
        target = work.restoration.target
        if work.restoration.dataset.encrypted:
            return ""
        above = list(target.ancestors)
        found = await properties.read_exact_properties(self.zfs.host, above, ("encryptionroot", "keystatus"))
        nearest = next((found[name] for name in reversed(above) if name in found), {})
        root = nearest.get("encryptionroot", "-")
        if root in {"-", "off"}:
            return ""
        if root in self.raw:
            begins = work.token is None and work.streams == work.restoration.streams
            return "off" if begins and work.streams[0].origin is None else ""
        if nearest.get("keystatus") != "available":
            raise Refused(
                f"{target} cannot be restored",
                f"it lies below {root}, which is encrypted, and whose key is not loaded",
                f"'zfs load-key {root}' there first; or restore to another place",
            )
        return "inherit"

    async def _stream(
        self, work: DatasetWork, one: RestoreStream, size: int, token: str | None, own: OwnEncryption
    ) -> None:
        dataset, target = work.restoration.dataset, work.restoration.target
        to, raw = self.prefix + target, dataset.encrypted
        reason = f"from {one.snapshot.name}"
        self.emit(
            TransferStarted(
                dataset=to,
                kind="resume" if token else "restore",
                from_=one.base.snapname if one.base is not None else None,
                to=one.snapshot.snapname,
                bytes=size,
                reason=reason,
            )
        )

        def report(progress: StreamProgress) -> None:
            self.meter.move(time.monotonic(), to, progress.done)
            self.emit(
                ProgressMade(
                    dataset=to,
                    bytes=progress.done,
                    total=size,
                    rate=progress.rate(),
                    buffer=progress.marks.range(),
                    run_bytes=self.meter.done,
                    run_total=self.meter.total,
                    run_rate=self.meter.pace.rate(),
                )
            )

        stall = self.context.env.vault(self.vault.name).stall
        bare = not dataset.key_root  # else they are put back afterwards
        stream = turn_stream_back(self.vault.profile.stream)
        route = self.context.clients.route(self.vault.zfs, self.zfs, stream, stall)
        base = one.base.name if one.base is not None else None
        send = (
            restore_resume_argv(token)
            if token
            else restore_send_argv(
                one.snapshot.name, raw=raw, base=base, properties=bare, embedded=own != "inherit"
            )
        )
        order = (
            make_resumed_order(token, one.snapshot, dataset)
            if token
            else make_restore_order(one, dataset, properties=bare)
        )
        mark = str(work.restoration.snapshot.guid)
        noted = dataset.receive_properties
        receive = restore_receive_argv(
            target,
            dataset.type,
            raw=raw,
            origin=one.origin,
            mark=mark,
            noted=noted,
            encryption=own if one is work.streams[0] or own == "inherit" else "",
        )
        stages = await route.stages(send, receive, RESTORED, size, order=order)
        self.meter.begin(to, size)
        moved: int | None = None
        try:
            done = await self._receive(stages, target, size, report, route.stall)
            moved = done.bytes
        finally:
            self.meter.end(to, moved)
        self.emit(
            TransferFinished(
                dataset=to,
                bytes=done.bytes,
                seconds=done.seconds,
                run_bytes=self.meter.done,
                run_total=self.meter.total,
            )
        )

    async def _receive(
        self,
        stages: Sequence[Sequence[str]],
        target: DatasetName,
        size: int,
        report: Callable[[StreamProgress], None],
        stall: float,
    ) -> StreamResult:
        slots, guard = self.context.activity.slots, self.context.clients.damage_names
        async with tell_while_waiting(
            guard.receive_full(self.zfs.host.address, parse_name(target).pool, self.owner),
            lambda: guard.describe_wait(self.owner),
            lambda text: self.emit(MessageEvent(text=text)),
        ):
            return await run_stream(
                self.context.env.runner,
                stages,
                total=size,
                report=report,
                trouble=self.vault.trouble,
                stall=stall,
                crowded=lambda: slots.is_wanted_by_others(self.owner),
            )


class RestoreQueue(ParallelWork):
    """Restores datasets side by side. What one suffers, in ``failed``, stops only itself and what needs it."""

    def __init__(self, streams: RestoreStreams, works: Mapping[str, DatasetWork], order: RunOrder) -> None:
        super().__init__(order, streams.context.activity.slots, streams.owner)
        self.streams, self.works = streams, works
        self.failed: list[ZvaultError] = []

    def list_limits(self, name: str) -> Mapping[str, int]:
        """See ParallelWork.list_limits. What is restored already takes no slot."""
        return self.streams.list_slots() if self.works[name].streams else {}

    def tell(self, text: str) -> None:
        """See ParallelWork.tell."""
        self.streams.emit(MessageEvent(text=text))

    async def carry_out(self, name: str) -> bool:
        """See ParallelWork.carry_out. Raises what befell the vault."""
        streams = self.streams
        try:
            await streams.restore_one(self.works[name])
        except ZvaultError as error:
            if await streams.vault.trouble() is not None:
                raise
            self.failed.append(error)
            streams.meter.drop(streams.prefix + name)
            streams.emit(DatasetFailed(dataset=streams.prefix + name, error=error.as_dict(), again=False))
            for lost, cause in self.order.fail(name):
                streams.meter.drop(streams.prefix + lost)
                streams.emit(
                    WarningEvent(text=f"{lost} is not restored: it comes after {cause}, which failed")
                )
            return False
        return True
