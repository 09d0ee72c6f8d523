"""The transfers of a run: one dataset each, in steps, with its base protected before, between and after them.

The order of the calls is what makes a crash between any two of them harmless: see docs/explanation/how-a-run-works.md.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace

from zvault.api.events import MessageEvent, ProgressMade, TransferFinished, TransferStarted, WarningEvent
from zvault.core.errors import (
    Busy,
    Conflict,
    ResumeRefused,
    StreamInterrupted,
    ToolMissing,
    TransferFailed,
    WrongBytes,
    ZvaultError,
)
from zvault.core.model import Dataset, Snapshot, Tree
from zvault.core.replication.lineage import find_base
from zvault.core.replication.plan_model import TransferAction, TransferPlan, TransferStep, list_sent_by
from zvault.core.replication.progress import RunMeter
from zvault.core.replication.send_record import format_send_record
from zvault.core.replication.vault_changes import AbortReceive
from zvault.core.replication.vault_encryption import VaultEncryption
from zvault.core.snapshot_list import list_guids
from zvault.ops.replication import backup_send_record
from zvault.ops.replication.apply_changes import apply_changes
from zvault.ops.replication.base_guard import BaseGuard
from zvault.ops.replication.listing import list_both_sides
from zvault.ops.replication.plan_all import plan_all
from zvault.ops.replication.run_plan import OpenBackup, RunPlan
from zvault.ops.replication.small_streams import SmallStreams
from zvault.ops.replication.vault_encryption import expect_encryptions
from zvault.ops.stream.parallel import tell_while_waiting
from zvault.ops.stream.route import StreamRoute
from zvault.ops.stream.run_stream import (
    LEAST_RATE,
    ActiveStream,
    StreamProgress,
    StreamResult,
    StreamWatch,
    attend_stream,
)
from zvault.ops.vaults.examine_pool import examine_pool
from zvault.zfs.changes import NamesGone
from zvault.zfs.repair.half_received import starts_from_nothing
from zvault.zfs.stream_argv import OwnEncryption, SendFlags, receive_argv, send_argv
from zvault.zfs.stream_orders import make_step_order
from zvault.zfs.stream_stages import HELPERS

RECEIVE_END_PATIENCE = 60.0
"""Seconds to wait for an earlier receive to end that was put down while its device was gone."""

BUSY_PAUSE = 2.0

MOST_INTERRUPTIONS = 10
"""How often one dataset's stream is sent on in one try after the kernel broke it off: a host is not frozen for ever."""

MANY_STREAMS = 64
"""Streams among which a backup's limit may be shared (``transfers`` is at most that)."""

MENDABLE = (ResumeRefused, WrongBytes, StreamInterrupted, NamesGone)
"""What a stream may end with that another plan may get around."""


@dataclass
class Transfers:
    """The parts that the transfers of one try share. ``meter`` is told of their bytes; ``throttle`` is the stage that
    limits their streams, if any; ``small`` knows which streams need no programs. ``parents`` are datasets of the vault
    that were found or made for what lies below them, so that nobody asks for each of them again.
    """

    opened: OpenBackup
    plan: RunPlan
    meter: RunMeter
    throttle: Sequence[str] = ()
    small: SmallStreams | None = None
    interruptions: int = 0
    """How often this dataset's stream was broken off by the kernel, and sent on, before this."""
    parents: set[str] = field(default_factory=set)

    @property
    def route(self) -> StreamRoute:
        """The way its streams take."""
        vault, context = self.opened.vault, self.opened.context
        stall = context.env.vault(vault.name).stall
        return context.clients.route(self.opened.source, vault.zfs, vault.profile.stream, stall)

    async def lacking(self) -> list[str]:
        """List what is not as it should be on the way of the streams."""
        sources = self.plan.sides.source.datasets
        backup = self.opened.backup
        flags = dict.fromkeys(self.plan.flags(backup, sources[plan.dataset]) for plan in self.plan.moving)
        return list(dict.fromkeys([text for each in flags for text in await self.route.lacking(each)]))

    async def cover(self) -> None:
        """Hold, in one call, what the first streams of all plans start from and send.

        Before that, no bookmark is left that says the vault has what it has not: somebody may have put it back, or it
        has it at another place. What was known of their holds is forgotten: of a dataset whose turn never comes they
        would stay unknown.
        """
        sources, there = self.plan.sides.source.datasets, self.plan.sides.counterparts
        # What cannot be listed may have the base of a dataset that waits for it: nothing of that is disproved.
        known = [
            one
            for one in self.plan.plans
            if not (self.plan.sides.partial and one.action is TransferAction.CONFLICT)
        ]
        await self.plan.bases.distrust(
            await self.plan.sides.compute(
                lambda: {
                    one.dataset: frozenset(list_guids(there[one.dataset].snapshots))
                    if one.dataset in there
                    else frozenset[int]()
                    for one in known
                }
            )
        )
        self._note_place()
        refused = self.plan.bases.refused
        sending = [one for one in self.plan.plans if one.steps and one.dataset not in refused]
        try:
            first = await self.plan.sides.compute(
                lambda: [(self._guard(sources[one.dataset]), self._first(one)) for one in sending]
            )
            await self.plan.bases.cover(first)
        finally:
            # Also of those whose turn never comes: they were held and not known to be, so the next run did not release
            # them.
            for one in sending:
                self.opened.source.forget(one.dataset)

    def _note_place(self) -> None:
        """Write down where all that is marked as sent is, which holds from the moment the bookmarks were corrected."""
        context, backup = self.opened.context, self.opened.backup
        target = context.env.target_of(backup, backup.source.dataset)
        context.records.places.note(self.opened.vault.guid, str(backup.source.whole), target)

    def _guard(self, dataset: Dataset) -> BaseGuard:
        return self.plan.bases.guard(dataset)

    def _first(self, plan: TransferPlan) -> list[Snapshot]:
        """The snapshots of a dataset that may be the vault's base when its first stream breaks off."""
        sent = list_sent_by(plan.steps[0], self.plan.sides.source.datasets[plan.dataset].snapshots)
        return [*_own_base(plan), *sent]

    async def begin(self, plan: TransferPlan) -> bool:
        """Make the changes of a plan, and return whether it sends anything then. Raises what its dataset suffers."""
        dataset = self.plan.sides.source.datasets[plan.dataset]
        if (unprotected := self.plan.bases.refused.get(plan.dataset)) is not None:
            raise unprotected
        guard = self._guard(dataset)
        await self._apply(plan, dataset.type)
        if plan.action is TransferAction.NOTHING:
            self._advance(plan, dataset, guard)
        return plan.action is not TransferAction.NOTHING

    async def _apply(self, plan: TransferPlan, kind: str = "") -> None:
        opened = self.opened
        await apply_changes(opened.vault.zfs, plan, kind, opened.emit, may_destroy=opened.backup.prunes_vault)

    async def send(self, plan: TransferPlan) -> None:
        """Send what a plan says. Raises what its dataset suffers; what was done stays done, and protected."""
        dataset = self.plan.sides.source.datasets[plan.dataset]
        guard = self._guard(dataset)
        if plan.begins:
            await self.opened.vault.zfs.make_parents(plan.target, self.parents)
        await guard.cover(*_own_base(plan))
        steps = list(plan.steps)
        if plan.borrowed is not None:
            steps[0] = replace(steps[0], base=await guard.borrow(plan.borrowed))
        for step in steps:
            dataset = await self._cover(step, dataset, guard)
            # A receive that was killed ends in its own time: until then the vault's dataset is busy.
            give_up, busy = time.monotonic() + RECEIVE_END_PATIENCE, True
            while busy:
                try:
                    async with self._account(step, plan, dataset) as account:
                        account.done = await self._carry(step, plan, dataset, account.size, account.report)
                    busy = False
                except Busy as why:
                    if time.monotonic() >= give_up:
                        raise
                    self.opened.emit(MessageEvent(text=f"{plan.target} is busy, waiting: {why.why}"))
                    await asyncio.sleep(BUSY_PAUSE)
            if step is not steps[-1]:
                await guard.advance(step.to)
        self.plan.bases.advance_later(guard, steps[-1].to)

    def drop(self, plan: TransferPlan) -> None:
        """Nothing more of a plan is sent: expect no more bytes of it, and forget what was known of its holds."""
        self.meter.drop(plan.dataset)
        self.opened.source.forget(plan.dataset)

    async def plan_around(
        self, plan: TransferPlan, error: ZvaultError
    ) -> tuple[Transfers, TransferPlan] | None:
        """Plan anew after one of the errors that are MENDABLE; None where nothing is left to do. Raises the others."""
        match error:
            case ResumeRefused():
                return await self._do_without(plan, error, f"ZFS did not take it: {error.why}")
            case WrongBytes() if await self._is_damaged_half(plan):
                return await self._do_without(
                    plan, error, f"it is damaged, and cannot be brought whole: {error.why}"
                )
            case StreamInterrupted():
                return await self._send_on(plan, error)
            case NamesGone():
                return await self._without_gone(plan, error)
        raise error

    async def _is_damaged_half(self, plan: TransferPlan) -> bool:
        """Whether what was to be resumed is zvault's own, has come in full as far as it has come, and is damaged there.

        Each run would break off at the same block otherwise (test_resume): ZFS heals nothing of what is half received,
        and nobody else may. What came so far is on the source still. Of an increment nothing is given up for this: the
        damage may be in what it starts from.
        """
        opened, dataset = self.opened, self.plan.sides.source.datasets[plan.dataset]
        token, there = plan.steps[0].token, self.plan.sides.counterparts.get(plan.dataset)
        if plan.action is not TransferAction.RESUME or token is None or not starts_from_nothing(token):
            return False
        own = there is not None and (there.placeholder or there.sent.startswith(f"{dataset.guid:x}:"))
        if not own or not opened.backup.prunes_vault:
            return False
        try:
            seen = await examine_pool(opened.context, opened.vault.name)
        except ZvaultError:
            return False
        return plan.target in seen.half_received and seen.excused > 0

    async def _do_without(
        self, plan: TransferPlan, refused: TransferFailed, why: str
    ) -> tuple[Transfers, TransferPlan]:
        """What was half received is of no use: give it up, look again, and plan what is best without it."""
        useless = AbortReceive(plan.target, why)
        opened = self.opened
        giving_up = replace(plan, action=TransferAction.NOTHING, changes=(useless,))
        await self._apply(giving_up)
        opened.source.forget(plan.dataset)
        after, again = await self._plan_again(plan)
        if again.action is TransferAction.RESUME:
            raise refused
        return after, again

    async def _send_on(
        self, plan: TransferPlan, interrupted: StreamInterrupted
    ) -> tuple[Transfers, TransferPlan]:
        """Look again, and plan to go on from what was received. Raises StreamInterrupted after MOST_INTERRUPTIONS.

        Where zvault's processes are frozen (a suspend that nobody announced, a hypervisor), the kernel breaks off the
        read within a receive with EINTR. Nothing is wrong then, so nobody is warned (test_false_alarms).
        """
        opened = self.opened
        if self.interruptions >= MOST_INTERRUPTIONS:
            raise interrupted
        opened.emit(
            MessageEvent(
                text=f"{plan.dataset}: the host stood still, and its stream was broken off: sending on"
            )
        )
        opened.source.forget(plan.dataset)
        after, again = await self._plan_again(plan)
        return replace(after, interruptions=self.interruptions + 1), again

    async def _plan_again(
        self, plan: TransferPlan, source: Tree | None = None
    ) -> tuple[Transfers, TransferPlan]:
        """Look at both sides again (``source``: at the vault alone), and plan this dataset anew."""
        opened = self.opened
        sides = await list_both_sides(
            opened.context, opened.backup, opened.vault.zfs, source=source, elsewhere=True
        )
        plans = await plan_all(opened.context, opened.backup, sides)
        lying = {**self.plan.encryptions, **await sides.compute(expect_encryptions, sides, plans)}
        after = replace(self, plan=replace(self.plan, sides=sides, encryptions=lying))
        return after, next(one for one in plans if one.dataset == plan.dataset)

    async def _without_gone(
        self, plan: TransferPlan, error: NamesGone
    ) -> tuple[Transfers, TransferPlan] | None:
        """Snapshots that were to be sent, or sent from, vanished: plan anew without them. What is left is held by now.

        Raises the error where nothing of it is known to be gone, or the dataset has another name by now.
        """
        opened, dataset = self.opened, self.plan.sides.source.datasets[plan.dataset]
        gone = error.among(snap.name for snap in dataset.snapshots)
        if not gone:
            raise error
        if not await opened.source.exists(dataset.name):
            await self._is_gone(dataset, error)
            return None
        opened.emit(WarningEvent(text=f"gone from the source, and left out: {', '.join(sorted(gone))}"))
        left = replace(dataset, snapshots=tuple(snap for snap in dataset.snapshots if snap.name not in gone))
        before = self.plan.sides.source
        source = replace(before, datasets={**before.datasets, dataset.name: left})
        return await self._plan_again(plan, source)

    async def _is_gone(self, dataset: Dataset, error: NamesGone) -> None:
        """A dataset vanished: that is no failure, unless it was only renamed. Raises the error, to be tried again."""
        now = await self.opened.source.tree(self.opened.backup.source.dataset)
        renamed = next((one.name for one in now if one.guid == dataset.guid), None)
        if renamed is not None:
            raise NamesGone(
                f"{dataset.name} was renamed while this ran", f"it is {renamed} now", error.names
            ) from None
        self.opened.emit(WarningEvent(text=f"gone from the source, and left out: {dataset.name}"))

    def _advance(self, plan: TransferPlan, dataset: Dataset, guard: BaseGuard) -> None:
        """Nothing to send: see to it that the base is protected, and nothing else."""
        there = self.plan.sides.counterparts.get(plan.dataset)
        found = find_base(dataset, there) if there is not None else None
        own = found[0] if found is not None else None
        base = own if isinstance(own, Snapshot) and own.dataset == dataset.name else None
        if base is not None and not guard.protects_only(base):
            self.plan.bases.advance_later(guard, base)

    async def _cover(self, step: TransferStep, dataset: Dataset, guard: BaseGuard) -> Dataset:
        """Hold what a step sends. What vanished between its ends is no more sent: the dataset without it.

        Raises NamesGone of the last one.
        """
        while True:
            sent = list_sent_by(step, dataset.snapshots)
            try:
                await guard.cover(*sent)
            except NamesGone as error:
                gone = error.among(snap.name for snap in sent)
                if not gone or step.to.name in gone:
                    raise
                left = tuple(snap for snap in dataset.snapshots if snap.name not in gone)
                dataset = replace(dataset, snapshots=left)
            else:
                return dataset

    def _record(self, step: TransferStep, dataset: Dataset) -> str:
        """What is put on record with a stream: its flags. What is resumed goes on with those it was begun with."""
        sides = self.plan.sides
        there = sides.counterparts.get(dataset.name)
        before = None
        if step.kind is TransferAction.RESUME and there is not None:
            before = backup_send_record.find_sent_flags(sides.vault, dataset, there)
        wanted = backup_send_record.choose_sent_flags(self.opened.backup, dataset)
        if self.plan.inherits(dataset):
            wanted = replace(wanted, embedded=False)
        return format_send_record(dataset, before or wanted)

    @asynccontextmanager
    async def _account(
        self, step: TransferStep, plan: TransferPlan, dataset: Dataset
    ) -> AsyncIterator[StreamAccount]:
        """Tell of a stream from its beginning to its end, and of its bytes, while the block runs it.

        Raises Conflict where it would be received over something that holds data by now.
        """
        opened, key = self.opened, (self.opened.backup.name, dataset.name)
        if step.over:
            await self._refuse_unless_empty(plan)
        account = StreamAccount(opened, self.meter, dataset, await self.plan.estimates.size(step, dataset))
        account.begin(step)
        try:
            yield account
        finally:
            opened.context.activity.streams.pop(key, None)
            self.meter.end(dataset.name, account.done.bytes if account.done is not None else None)
        if account.done is not None:
            account.end(account.done)

    async def _carry(
        self,
        step: TransferStep,
        plan: TransferPlan,
        dataset: Dataset,
        size: int | None,
        report: Callable[[StreamProgress], None],
    ) -> StreamResult:
        """Have one stream go the way that suits it."""
        opened, record = self.opened, self._record(step, dataset)
        flags, lies = self.plan.flags(opened.backup, dataset), self.plan.encryptions[dataset.name].lying
        progress, stall = StreamProgress(size), self.route.stall
        watch = StreamWatch(progress, report, stall, self._is_in_the_way)
        there = self.plan.sides.counterparts.get(dataset.name)
        small = self.small and self.small.small(
            step, plan, dataset, size, limited=bool(self.throttle), record=record
        )
        if self.small and small:
            try:
                begun = await opened.context.clients.helpers.start(small, progress.hear)
            except ToolMissing as error:
                self.small.usable = False
                opened.emit(MessageEvent(text=str(error)))
            else:
                return await attend_stream(begun, watch, opened.vault.trouble)
        stages = await self.route.stages(
            send_argv(step, flags),
            receive_argv(
                plan.target,
                dataset.type,
                step,
                sent=record,
                record=self.plan.source_records.get(dataset.name, ""),
                own=self.plan.receive_properties(opened.backup, dataset.name),
                noted=there.receive_properties if there is not None else "",
                encryption=_own_encryption(lies, step, flags),
                unlisted=await opened.vault.zfs.unlisted_properties(),
                lacking=await opened.vault.zfs.lacking_properties(),
            ),
            flags,
            size,
            self.throttle,
            make_step_order(step, dataset, flags),
        )
        async with self._receiving(step, plan):
            programs = await opened.context.env.runner.pipeline(stages, progress.hear_stage, nobody=HELPERS)
            return await attend_stream(programs, watch, opened.vault.trouble)

    def _receiving(self, step: TransferStep, plan: TransferPlan) -> AbstractAsyncContextManager[None]:
        """What a stream is received within: while a full one is, nobody asks the kernel for names there."""
        if step.kind is TransferAction.INCREMENTAL and step.origin is None and not step.over:
            return nullcontext()
        opened, guard = self.opened, self.opened.context.clients.damage_names
        return tell_while_waiting(
            guard.receive_full(opened.vault.zfs.host.address, plan.target.pool, opened.backup.name),
            lambda: guard.describe_wait(opened.backup.name),
            lambda text: opened.emit(MessageEvent(text=text)),
        )

    def _is_in_the_way(self) -> bool:
        """True if other backups wait for a place that this one has, and its own limit is not why it is slow."""
        opened = self.opened
        allowed = opened.backup.limit.rate(opened.context.env.clock.now().astimezone(opened.context.env.zone))
        slow = allowed is not None and allowed < MANY_STREAMS * LEAST_RATE
        return not slow and opened.context.activity.slots.is_wanted_by_others(opened.backup.name)

    async def _refuse_unless_empty(self, plan: TransferPlan) -> None:
        """Before ``zfs receive -F``: what it is received over must still hold nothing itself. Raises Conflict."""
        if obstacle := await self.opened.vault.zfs.describe_content(plan.target):
            raise Conflict(
                f"{plan.dataset} cannot be received over {plan.target}",
                f"that was a placeholder, and now {obstacle}",
                f"rename {plan.target} to keep what it holds, and the next run sends in full",
            )


@dataclass
class StreamAccount:
    """What is told of one stream: its beginning, its progress and, once it is ``done``, its end."""

    opened: OpenBackup
    meter: RunMeter
    dataset: Dataset
    size: int | None
    done: StreamResult | None = None

    def begin(self, step: TransferStep) -> None:
        """Tell that it begins."""
        self.opened.emit(
            TransferStarted(
                dataset=self.dataset.name,
                kind=str(step.kind),
                from_=step.base.shortname if step.base else None,
                to=step.to.snapname,
                bytes=self.size,
                reason=step.reason,
            )
        )
        self.meter.begin(self.dataset.name, self.size)

    def report(self, progress: StreamProgress) -> None:
        """Tell how far it is."""
        opened, name = self.opened, self.dataset.name
        key = opened.backup.name, name
        opened.context.activity.streams[key] = ActiveStream(
            opened.backup.name, opened.vault.name, name, progress
        )
        self.meter.move(time.monotonic(), name, progress.done)
        opened.emit(
            ProgressMade(
                dataset=name,
                bytes=progress.done,
                total=self.size,
                rate=progress.rate(),
                buffer=progress.marks.range(),
                run_bytes=self.meter.done,
                run_total=self.meter.total,
                run_rate=self.meter.pace.rate(),
            )
        )

    def end(self, done: StreamResult) -> None:
        """Tell that it went through."""
        self.opened.emit(
            TransferFinished(
                dataset=self.dataset.name,
                bytes=done.bytes,
                seconds=done.seconds,
                run_bytes=self.meter.done,
                run_total=self.meter.total,
            )
        )


def _own_encryption(lies: VaultEncryption, step: TransferStep, flags: SendFlags) -> OwnEncryption:
    """What ``zfs receive`` is told of the encryption of what it receives.

    What lies in the clear below a raw copy would inherit that one's key where its stream does not say otherwise.
    """
    if lies is VaultEncryption.INHERITED:
        return "inherit"
    clear = (
        lies is VaultEncryption.CLEAR_AS_SOURCE and step.kind is TransferAction.FULL and not flags.properties
    )
    return "off" if clear else ""


def _own_base(plan: TransferPlan) -> list[Snapshot]:
    """The snapshot of the dataset itself from which its first stream starts, if it starts from one."""
    base = plan.base
    return [base] if isinstance(base, Snapshot) and base.dataset == plan.dataset else []
