"""What one try of a run has before it: what is to be done for each dataset, from which base, and how much that is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from zvault.api.events import Emit, MessageEvent, PlannedEvent, PlannedTransfer, WarningEvent
from zvault.config.schema import Backup
from zvault.core.errors import ZvaultError
from zvault.core.model import Dataset
from zvault.core.replication.plan_model import TransferAction, TransferPlan, TransferStep
from zvault.core.replication.receive_properties import ReceiveProperties
from zvault.core.replication.steering_properties import leave_out_steering
from zvault.core.replication.vault_encryption import EncryptionOnVault
from zvault.ops.context import Context
from zvault.ops.replication import backup_send_record
from zvault.ops.replication.listing import BothListings
from zvault.ops.replication.plan_all import moves_bytes, plan_all
from zvault.ops.replication.run_bases import RunBases
from zvault.ops.replication.source_record import read_source
from zvault.ops.replication.steering_properties import read_steering_of_source
from zvault.ops.replication.vault_encryption import expect_encryptions
from zvault.ops.run_outcome import MESSAGE_DATASETS
from zvault.ops.vaults.vault import OpenVault
from zvault.zfs.client import Zfs
from zvault.zfs.stream_argv import SendFlags

ESTIMATES = 8
"""Sizes asked for at once: each may be a command on another host."""


@dataclass(frozen=True)
class OpenBackup:
    """A backup whose vault is up, and who is told of what is done for it.

    ``backup`` is the table that was planned with. It stays so until the plan is carried out, whatever is reloaded
    meanwhile: streams need the flags that were looked at.
    """

    context: Context
    backup: Backup
    vault: OpenVault
    emit: Emit

    @property
    def source(self) -> Zfs:
        return self.context.clients.source_of(self.backup)

    def flags(self, dataset: Dataset) -> SendFlags:
        """Return the flags that a dataset of its source is sent with."""
        return SendFlags.of(self.backup.send, dataset)


class Estimates:
    """The sizes of streams by ZFS's estimate, each asked for once.

    They are for people only, so None where one cannot be told: what is wrong with a stream, it says itself.
    """

    def __init__(self, opened: OpenBackup) -> None:
        self._opened = opened
        self._known: dict[TransferStep, int | None] = {}

    async def size(self, step: TransferStep, dataset: Dataset) -> int | None:
        """The bytes of one stream."""
        if step not in self._known:
            self._known[step] = None
            with contextlib.suppress(ZvaultError):
                self._known[step] = await self._opened.source.estimate(step, self._opened.flags(dataset))
        return self._known[step]

    def total(self, plan: TransferPlan) -> int | None:
        """The bytes of all streams of a dataset; None where one was not asked for, or could not be told."""
        sizes = [self._known.get(step) for step in plan.steps]
        return None if None in sizes else sum(size or 0 for size in sizes)

    async def by_dataset(self, plans: Sequence[TransferPlan], sides: BothListings) -> dict[str, int]:
        """The bytes of each dataset that has any stream to send; one that cannot be told counts as none."""
        steps = ((plan.dataset, step) for plan in plans for step in plan.steps)
        sizes: dict[str, int] = {plan.dataset: 0 for plan in plans if plan.steps}

        async def ask_next() -> None:
            # Some take the steps one after another: a month's absence leaves tens of thousands, and to begin a task for
            # each of them is one long turn of the event loop.
            for name, step in steps:
                size = await self.size(step, sides.source.datasets[name])
                sizes[name] += size or 0

        await asyncio.gather(*(ask_next() for _ in range(ESTIMATES)))
        return sizes


@dataclass(frozen=True)
class RunPlan:
    """The plans of one try, made of one look at both ``sides``. ``bases`` are protected while they are carried out.

    ``sizes`` are the bytes of each dataset that has any stream to send; ``estimates`` has them stream by stream.
    ``source_records`` are of the properties that the vault's datasets cannot have, by dataset (source_record.py), and
    ``encryptions`` tell how each dataset lies on the vault. ``steering`` are the properties of each dataset to be sent
    that steer other tools.
    """

    sides: BothListings
    plans: Sequence[TransferPlan]
    bases: RunBases
    estimates: Estimates
    sizes: Mapping[str, int]
    source_records: Mapping[str, str]
    encryptions: Mapping[str, EncryptionOnVault] = field(default_factory=dict)
    steering: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def moving(self) -> list[TransferPlan]:
        """The plans that have anything to send."""
        return [plan for plan in self.plans if moves_bytes(plan)]

    def inherits(self, dataset: Dataset) -> bool:
        """True if a dataset of the source is encrypted by a key of the vault's."""
        return dataset.name in self.encryptions and self.encryptions[dataset.name].inherits

    def flags(self, backup: Backup, dataset: Dataset) -> SendFlags:
        """Return the flags that a dataset of the source is sent with."""
        return SendFlags.of(backup.send.to_encrypted() if self.inherits(dataset) else backup.send, dataset)

    def receive_properties(self, backup: Backup, dataset: str) -> ReceiveProperties:
        """Return what a dataset of the source is received with, by its backup and by what steers other tools."""
        receive = backup.receive
        return leave_out_steering(receive.properties, self.steering.get(dataset, ()), receive.let_in)

    @property
    def idle(self) -> bool:
        """True if nothing is to be sent, changed, or told of any dataset."""
        return all(plan.action is TransferAction.NOTHING and not plan.changes for plan in self.plans)

    @property
    def changed(self) -> bool:
        """True if anything is another on either side once they were carried out."""
        return self.bases.touched or any(moves_bytes(plan) or plan.changes for plan in self.plans)


async def plan_run(opened: OpenBackup, sides: BothListings, settled: Collection[str]) -> RunPlan:
    """Plan a try: all selected datasets but those that an earlier one has ``settled``. Changes nothing."""
    found = await plan_all(opened.context, opened.backup, sides)
    plans = [plan for plan in found if plan.dataset not in settled]
    datasets = [sides.source.datasets[plan.dataset] for plan in plans]
    bases = RunBases(opened.source, opened.vault.guid)
    await bases.learn(datasets)
    estimates = Estimates(opened)
    sizes = await estimates.by_dataset(plans, sides)
    known = sides.known.records if sides.known is not None else None
    records = await read_source(opened.source, opened.backup, datasets, opened.emit, known)
    encryptions = await sides.compute(expect_encryptions, sides, plans)
    sent = [one.dataset for one in plans if moves_bytes(one)]
    steering = await read_steering_of_source(opened.source, opened.backup, sent, opened.emit, sides.known)
    return RunPlan(sides, plans, bases, estimates, sizes, records, encryptions, steering)


def announce_plan(opened: OpenBackup, plan: RunPlan) -> None:
    """Tell what is about to be done."""
    _tell_adopted(opened, plan)
    _tell_left_out(opened, plan)
    rows: list[PlannedTransfer] = [
        {
            "dataset": one.dataset,
            "action": str(one.action),
            "bytes": plan.sizes.get(one.dataset, 0),
            "reason": one.reason,
        }
        for one in plan.plans
    ]
    opened.emit(PlannedEvent(datasets=rows, bytes_total=sum(plan.sizes.values())))


def _tell_left_out(opened: OpenBackup, plan: RunPlan) -> None:
    """Tell of snapshots that ``also`` names and that are not sent, as the vault has others of their names."""
    found = [name for one in plan.plans for name in one.left_out]
    if found:
        named = ", ".join(found[:MESSAGE_DATASETS]) + (
            f" and {len(found) - MESSAGE_DATASETS} more" * (len(found) > MESSAGE_DATASETS)
        )
        opened.emit(
            WarningEvent(
                text=f"left out: {named}: the vault has an earlier snapshot of that name; rename that one on the vault"
                " before the next run if you want both, or leave the name out of 'also'",
            )
        )


def _tell_adopted(opened: OpenBackup, plan: RunPlan) -> None:
    """Tell of datasets without a record of their flags: what is configured now is taken for it."""
    found = []
    for one in plan.plans:
        there = plan.sides.counterparts.get(one.dataset)
        if one.action is not TransferAction.INCREMENTAL or there is None or not there.snapshots:
            continue
        source = plan.sides.source.datasets[one.dataset]
        if backup_send_record.find_sent_flags(plan.sides.vault, source, there) is None:
            found.append(f"{there.name} ({backup_send_record.choose_sent_flags(opened.backup, source)})")
    if found:
        named = ", ".join(found[:MESSAGE_DATASETS]) + (
            f" and {len(found) - MESSAGE_DATASETS} more" * (len(found) > MESSAGE_DATASETS)
        )
        opened.emit(MessageEvent(text=f"no record of the send flags before, so those of now: {named}"))
