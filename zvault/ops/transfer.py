"""The transfers of a run: one dataset each, in steps, with its base protected before, between and after them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from zvault.config.schema import Backup
from zvault.core.changes import Abort
from zvault.core.errors import Busy, ResumeRefused, ZvaultError
from zvault.core.ledger import entry
from zvault.core.lineage import find_base
from zvault.core.model import Dataset, Snapshot
from zvault.core.pace import Meter
from zvault.core.replication import Action, Step, TransferPlan, sent_by
from zvault.ops import ledger
from zvault.ops.arrange import arrange
from zvault.ops.bases import Bases
from zvault.ops.context import Context, Emit
from zvault.ops.outcome import NAMED, Outcome
from zvault.ops.plan import Sides, look, plan_all
from zvault.ops.protect import Guard
from zvault.ops.route import Route
from zvault.ops.stream import Progress, UnderWay, stream
from zvault.ops.vault import OpenVault
from zvault.zfs.stream import Flags, receive_argv, send_argv

ESTIMATES = 8
"""Sizes asked for at once: each may be a command on another host."""

BUSY_PATIENCE = 60.0
"""Seconds to wait for an earlier receive to end that was put down while its device was gone."""

BUSY_PAUSE = 2.0


@dataclass
class Transfers:
    """What the transfers of one run share. ``throttle`` is the stage that limits their streams, if any; ``name`` is
    the backup's.
    """

    context: Context
    backup: Backup
    sides: Sides
    vault: OpenVault
    emit: Emit
    outcome: Outcome
    bases: Bases
    meter: Meter = field(default_factory=Meter)
    throttle: Sequence[str] = ()
    name: str = ""
    _sizes: dict[Step, int | None] = field(default_factory=dict)

    @property
    def route(self) -> Route:
        """The way its streams take."""
        stall = self.context.vault(self.vault.name).stall
        source = self.context.source_of(self.backup)
        return self.context.route(source, self.vault.zfs, self.vault.profile.stream, stall)

    async def lacking(self, plans: Sequence[TransferPlan]) -> list[str]:
        """What is not as it should be on the way of these datasets' streams."""
        flags = dict.fromkeys(self._flags(plan.dataset) for plan in plans)
        return list(dict.fromkeys([text for each in flags for text in await self.route.lacking(each)]))

    def _flags(self, dataset: str) -> Flags:
        return Flags.of(self.backup.send, self.sides.source.datasets[dataset])

    async def announce(self, plans: list[TransferPlan]) -> dict[str, int]:
        """Estimate every stream and tell the plan. Returns the bytes of each dataset that has any to send."""
        at_once = asyncio.Semaphore(ESTIMATES)

        async def size(step: Step, dataset: str) -> int | None:
            async with at_once:
                return await self._size(step, dataset)

        steps = [(plan.dataset, step) for plan in plans for step in plan.steps]
        found = await asyncio.gather(*(size(step, dataset) for dataset, step in steps))
        sizes: dict[str, int] = {}
        for (dataset, _), bytes_ in zip(steps, found, strict=True):
            sizes[dataset] = sizes.get(dataset, 0) + (bytes_ or 0)
        self.meter.expect(sizes)
        self._adopt(plans)
        rows = [
            {
                "dataset": plan.dataset,
                "action": str(plan.action),
                "bytes": sizes.get(plan.dataset, 0),
                "reason": plan.reason,
            }
            for plan in plans
        ]
        self.emit("plan", datasets=rows, bytes_total=sum(sizes.values()))
        return sizes

    def _adopt(self, plans: Sequence[TransferPlan]) -> None:
        """Tell of datasets without a record of their flags: what is configured now is taken for it."""
        found = []
        for plan in plans:
            there = self.sides.counterparts.get(plan.dataset)
            if plan.action is not Action.INCREMENTAL or there is None or not there.snapshots:
                continue
            source = self.sides.source.datasets[plan.dataset]
            if ledger.recorded(self.sides.vault, source, there) is None:
                found.append(f"{there.name} ({ledger.wanted(self.backup, source)})")
        if found:
            named = ", ".join(found[:NAMED]) + (f" and {len(found) - NAMED} more" * (len(found) > NAMED))
            self.emit("message", text=f"no record of the send flags before, so those of now: {named}")

    async def _size(self, step: Step, dataset: str) -> int | None:
        """What a step's stream is thought to have, asked once: in bytes, None where it cannot be told."""
        if step not in self._sizes:
            self._sizes[step] = None
            # It is for people only: what is wrong with a stream it says itself when it comes to it.
            with contextlib.suppress(ZvaultError):
                self._sizes[step] = await self.context.source_of(self.backup).estimate(
                    step, self._flags(dataset)
                )
        return self._sizes[step]

    async def carry_out(self, plan: TransferPlan) -> None:
        """Do what a plan says. Raises what its dataset suffers; what was done stays done, and protected."""
        dataset = self.sides.source.datasets[plan.dataset]
        guard = self._guard(dataset)
        await arrange(self.vault.zfs, plan, dataset.type, self.emit)
        if plan.action is Action.NOTHING:
            self._settle(plan, dataset, guard)
            return
        try:
            await self._send(plan, dataset, guard)
        except ResumeRefused as refused:
            await self._do_without(plan, refused)
        finally:
            self.meter.drop(plan.dataset)
            self.context.source_of(self.backup).forget(plan.dataset)

    async def _do_without(self, plan: TransferPlan, refused: ResumeRefused) -> None:
        """A resume token that looked good was not: give it up, look again, and do what is best without it."""
        useless = Abort(plan.target, f"ZFS did not take it: {refused.why}")
        await arrange(self.vault.zfs, replace(plan, action=Action.NOTHING, changes=(useless,)), "", self.emit)
        self.context.source_of(self.backup).forget(plan.dataset)
        sides = await look(self.context, self.backup, self.vault.zfs)
        plans = await plan_all(self.context, self.backup, sides)
        again = next(one for one in plans if one.dataset == plan.dataset)
        if again.action is Action.RESUME:
            raise refused
        await replace(self, sides=sides).carry_out(again)

    async def cover(self, plans: Sequence[TransferPlan]) -> None:
        """Hold, in one call, what the first streams of all these plans start from and send."""
        sources = self.sides.source.datasets
        await self.bases.cover(
            [(self._guard(sources[plan.dataset]), self._first(plan)) for plan in plans if plan.steps]
        )

    def _guard(self, dataset: Dataset) -> Guard:
        return self.bases.guard(dataset)

    def _first(self, plan: TransferPlan) -> list[Snapshot]:
        """The snapshots of a dataset that may be the vault's base when its first stream breaks off."""
        sent = sent_by(plan.steps[0], self.sides.source.datasets[plan.dataset].snapshots)
        return [*_own_base(plan), *sent]

    def _settle(self, plan: TransferPlan, dataset: Dataset, guard: Guard) -> None:
        """Nothing to send: see to it that the base is protected, and nothing else."""
        there = self.sides.counterparts.get(plan.dataset)
        found = find_base(dataset, there) if there is not None else None
        base = next((s for s in dataset.snapshots if found and s.guid == found[1].guid), None)
        if base is not None and not guard.settled(base):
            self.bases.settle_later(guard, base)

    async def _send(self, plan: TransferPlan, dataset: Dataset, guard: Guard) -> None:
        if plan.begins:
            await self.vault.zfs.make_parents(plan.target)
        await guard.cover(*_own_base(plan))
        steps = list(plan.steps)
        if plan.borrowed is not None:
            steps[0] = replace(steps[0], base=await guard.borrow(plan.borrowed))
        for step in steps:
            await guard.cover(*sent_by(step, dataset.snapshots))
            await self._once_free(step, plan, dataset)
            if step is not steps[-1]:
                await guard.settle(step.to)
        self.bases.settle_later(guard, steps[-1].to)

    async def _once_free(self, step: Step, plan: TransferPlan, dataset: Dataset) -> None:
        """Send one step, when the vault's dataset is free for it: a receive that was killed ends in its own time."""
        give_up = time.monotonic() + BUSY_PATIENCE
        while True:
            try:
                return await self._stream(step, plan, dataset)
            except Busy as busy:
                if time.monotonic() >= give_up:
                    raise
                self.emit("message", text=f"{plan.target} is busy, waiting: {busy.why}")
                await asyncio.sleep(BUSY_PAUSE)

    def _record(self, step: Step, dataset: Dataset) -> str:
        """What is put on record with a stream: its flags. What is resumed goes on with those it was begun with."""
        there = self.sides.counterparts.get(dataset.name)
        before = None
        if step.kind is Action.RESUME and there is not None:
            before = ledger.recorded(self.sides.vault, dataset, there)
        return entry(dataset, before or ledger.wanted(self.backup, dataset))

    async def _stream(self, step: Step, plan: TransferPlan, dataset: Dataset) -> None:
        flags = self._flags(plan.dataset)
        size = await self._size(step, plan.dataset)
        self.emit(
            "transfer-started",
            dataset=plan.dataset,
            kind=str(step.kind),
            **{"from": step.base.tag if step.base else None},
            to=step.to.tag,
            bytes=size,
            reason=step.reason,
        )

        key = self.name, plan.dataset

        def report(progress: Progress) -> None:
            self.context.under_way[key] = UnderWay(self.name, self.vault.name, plan.dataset, progress)
            self.meter.move(time.monotonic(), plan.dataset, progress.done)
            self.emit(
                "progress",
                dataset=plan.dataset,
                bytes=progress.done,
                total=size,
                rate=progress.rate(),
                buffer=progress.marks.range(),
                run_bytes=self.meter.done,
                run_total=self.meter.total,
                run_rate=self.meter.pace.rate(),
            )

        self.meter.begin(plan.dataset, size)
        moved = None
        try:
            done = await stream(
                self.context.runner,
                await self.route.stages(
                    send_argv(step, flags),
                    receive_argv(plan.target, dataset.type, step, sent=self._record(step, dataset)),
                    flags,
                    size,
                    self.throttle,
                ),
                total=size,
                report=report,
                trouble=self.vault.trouble,
                stall=self.route.stall,
            )
            moved = done.bytes
        finally:
            self.context.under_way.pop(key, None)
            self.meter.end(plan.dataset, moved)
            self.outcome.bytes = self.meter.done
        self.outcome.sent += 1
        self.emit(
            "transfer-finished",
            dataset=plan.dataset,
            bytes=done.bytes,
            seconds=done.seconds,
            run_bytes=self.meter.done,
            run_total=self.meter.total,
        )


def _own_base(plan: TransferPlan) -> list[Snapshot]:
    """The snapshot of the dataset itself from which its first stream starts, if it starts from one."""
    base = plan.base
    return [base] if isinstance(base, Snapshot) and base.dataset == plan.dataset else []
