"""The transfers of a run: one dataset each, in steps, with its base protected before, between and after them."""

from __future__ import annotations

from dataclasses import dataclass, field

from zvault.config.schema import Backup
from zvault.core.errors import Conflict
from zvault.core.model import Dataset, Snapshot
from zvault.core.replication import Action, Step, TransferPlan, find_base, sent_by
from zvault.ops.context import Context, Emit
from zvault.ops.outcome import Outcome
from zvault.ops.plan import Sides
from zvault.ops.protect import Guard
from zvault.ops.stream import Progress, has_mbuffer, stream
from zvault.ops.vault import OpenVault
from zvault.zfs.stream import Flags, receive_argv, send_argv


@dataclass
class Transfers:
    """What the transfers of one run share. ``moving`` holds the bytes so far of each stream under way."""

    context: Context
    backup: Backup
    sides: Sides
    vault: OpenVault
    emit: Emit
    outcome: Outcome
    total: int | None = None
    moving: dict[str, int] = field(default_factory=dict)

    def _flags(self, dataset: str) -> Flags:
        return Flags.of(self.backup.send, self.sides.source.datasets[dataset])

    async def announce(self, plans: list[TransferPlan]) -> None:
        """Estimate every stream and tell the plan."""
        rows = []
        total = 0
        for plan in plans:
            sizes = [
                await self.context.source.estimate(step, self._flags(plan.dataset)) for step in plan.steps
            ]
            size = sum(size or 0 for size in sizes)
            total += size
            rows.append(
                {"dataset": plan.dataset, "action": str(plan.action), "bytes": size, "reason": plan.reason}
            )
        self.total = total
        self.emit("plan", datasets=rows, bytes_total=total)

    async def carry_out(self, plan: TransferPlan) -> None:
        """Do what a plan says. Raises what its dataset suffers; what was done stays done, and protected."""
        if plan.action is Action.CONFLICT:
            raise Conflict(f"{plan.dataset} cannot follow onto {plan.target}", plan.reason, plan.next)
        dataset = self.sides.source.datasets[plan.dataset]
        guard = Guard.of(self.context.source.lzc, self.vault.guid, dataset, dict(self.sides.holds))
        if plan.abort:
            self.emit("warning", text=f"giving up the interrupted receive of {plan.target}: {plan.abort}")
            await self.vault.zfs.abort_receive(plan.target)
        if plan.action is Action.NOTHING:
            await self._settle(plan, dataset, guard)
            return
        try:
            await self._send(plan, dataset, guard)
        finally:
            self.context.source.forget(plan.dataset)

    async def _settle(self, plan: TransferPlan, dataset: Dataset, guard: Guard) -> None:
        """Nothing to send: see to it that the base is protected, and nothing else."""
        there = self.sides.vault.get(plan.target)
        found = find_base(dataset, there) if there is not None else None
        base = next((s for s in dataset.snapshots if found and s.guid == found[1].guid), None)
        if base is not None and not guard.settled(base):
            await guard.settle(base)
            self.context.source.forget(plan.dataset)

    async def _send(self, plan: TransferPlan, dataset: Dataset, guard: Guard) -> None:
        if plan.action is Action.FULL:
            await self.vault.zfs.make_parents(plan.target)
        if isinstance(plan.base, Snapshot):
            await guard.cover(plan.base)
        for step in plan.steps:
            await guard.cover(*sent_by(step, dataset.snapshots))
            await self._stream(step, plan, dataset)
            await guard.settle(step.to)

    async def _stream(self, step: Step, plan: TransferPlan, dataset: Dataset) -> None:
        flags = self._flags(plan.dataset)
        size = await self.context.source.estimate(step, flags)
        self.emit(
            "transfer-started",
            dataset=plan.dataset,
            kind=str(step.kind),
            **{"from": step.base.tag if step.base else None},
            to=step.to.tag,
            bytes=size,
            reason=step.reason,
        )

        def report(progress: Progress) -> None:
            self.moving[plan.dataset] = progress.done
            self.emit(
                "progress",
                dataset=plan.dataset,
                bytes=progress.done,
                total=size,
                rate=progress.rate(),
                buffer=progress.buffer,
                run_bytes=self.outcome.bytes + sum(self.moving.values()),
                run_total=self.total,
            )

        try:
            done = await stream(
                self.context.runner,
                send_argv(step, flags),
                receive_argv(plan.target, dataset.type),
                buffer=self.vault.profile.stream if has_mbuffer() else None,
                total=size,
                report=report,
                trouble=self.vault.trouble,
            )
        finally:
            self.moving.pop(plan.dataset, None)
        self.outcome.bytes += done.bytes
        self.outcome.sent += 1
        self.emit("transfer-finished", dataset=plan.dataset, bytes=done.bytes, seconds=done.seconds)
