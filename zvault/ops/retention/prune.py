"""Destroy what a prune plan selects, in batches, and say what could not be destroyed, and why."""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from typing import TypeVar

from zvault.api.backups import Side
from zvault.api.events import Emit, MessageEvent, PrunedEvent, WarningEvent
from zvault.config.schema import Backup
from zvault.core.errors import ToolFailed, ZvaultError
from zvault.core.model import Snapshot
from zvault.core.names import DatasetName, SnapshotName
from zvault.core.policy.cached_verdicts import keeps_all, pack_verdicts
from zvault.core.policy.retention import KeepDecision, keep_witnesses
from zvault.core.replication.base_names import KEEP_HOLD
from zvault.ops.context import Context
from zvault.ops.replication.listing import BothListings, list_both_sides
from zvault.ops.replication.snapshot_holders import describe_clones, describe_holds
from zvault.ops.retention.prune_plan import DatasetVerdictList, PrunePlan, plan_prune
from zvault.ops.retention.vault_holds import move_holds
from zvault.ops.vaults.vault import Vaults
from zvault.system.snapshot_users import users_argv
from zvault.zfs.changes import Changes, LzcFailure
from zvault.zfs.client import Zfs

DESTROY_BATCH = 100
"""Snapshots destroyed in one call: all of a batch go in one transaction group, or none."""

PRUNED_AT_ONCE = 5000
"""Snapshots of which one event tells that they are gone."""

Answer = TypeVar("Answer")
AskSnapshots = Callable[[Sequence[SnapshotName]], Awaitable[dict[str, Answer]]]
"""Asks ZFS something of snapshots."""

Explain = Callable[[Sequence[str]], Awaitable[dict[str, str]]]
"""Says of snapshots that cannot be destroyed what keeps each."""


async def prune_backup(
    context: Context, vaults: Vaults, backup: Backup, emit: Emit, *, over_limit: bool = False
) -> tuple[int, int]:
    """Prune both sides of a backup by its rules, and do nothing else; how many snapshots went, of how many."""

    def say(text: str) -> None:
        emit(MessageEvent(text=text))

    source = context.clients.source_of(backup)
    if backup.vault is None:
        sides = await list_both_sides(context, backup, None)
        _warn_unlisted(sides, emit)
        judged = await sides.compute(plan_prune, context, backup, sides, over_limit=over_limit)
        await move_holds(context, backup, {"source": source}, judged, emit)
        plans = [await drop_stuck(source, plan) for plan in judged]
        return await apply_prune(source, None, plans, emit), sum(len(plan.selected) for plan in plans)
    async with vaults[backup.vault].use(f"prune {backup.name}", say, create=False) as vault:
        sides = await list_both_sides(context, backup, vault.zfs)
        _warn_unlisted(sides, emit)
        judged = await sides.compute(plan_prune, context, backup, sides, over_limit=over_limit)
        await move_holds(context, backup, {"vault": vault.zfs}, judged, emit)
        plans = [await drop_stuck(source if plan.side == "source" else vault.zfs, plan) for plan in judged]
        selected = sum(len(plan.selected) for plan in plans)
        return await apply_prune(source, vault.zfs, plans, emit), selected


def _warn_unlisted(sides: BothListings, emit: Emit) -> None:
    """Name what is not pruned, as it, or its backup, cannot be listed."""
    for name, told in sides.unlisted.items():
        emit(WarningEvent(text=f"nothing of {name} is pruned: {told.problem}"))


async def apply_prune(source: Zfs, vault: Zfs | None, plans: Sequence[PrunePlan], emit: Emit) -> int:
    """Carry out prune plans; returns how many snapshots went. What is busy is skipped and named, what is held is not.

    Of clones ZFS tells by itself, so only where they would count for prune_limit they are asked before.
    """
    count = 0
    for judged in plans:
        zfs = source if judged.side == "source" else vault
        if zfs is None:
            continue
        try:
            over = await judged.compute(attrgetter("over"), judged)
            plan = await drop_stuck(zfs, judged, clones=bool(over))
        except ZvaultError as error:
            emit(WarningEvent(text=f"pruning the {judged.side}: {error}"))
            continue
        selected: list[Snapshot] = await plan.compute(attrgetter("selected"), plan)
        told = _ToldInParts(plan.side, emit)
        trouble = await _destroy_each_batch(zfs, selected, emit, told.note)
        told.tell()
        if trouble is not None:
            emit(WarningEvent(text=f"pruning the {plan.side}: {trouble}"))
        count += told.count
        if plan.over:
            emit(WarningEvent(text=_held_back(plan), side=plan.side, over_limit=len(plan.over)))
    return count


@dataclass
class _ToldInParts:
    """What was pruned on one side, told by an event for each PRUNED_AT_ONCE.

    Whoever hears it writes each name down: those of a million snapshots at once kept the event loop for seconds. And
    what is told so far is on record where a run is killed before it has destroyed the rest.
    """

    side: Side
    emit: Emit
    count: int = 0
    _waiting: list[str] = field(default_factory=list)

    def note(self, gone: Sequence[Snapshot]) -> None:
        """Take in what went of a batch."""
        self.count += len(gone)
        self._waiting += [snap.name for snap in gone]
        if len(self._waiting) >= PRUNED_AT_ONCE:
            self.tell()

    def tell(self) -> None:
        """Tell of those of which nobody was told yet."""
        if self._waiting:
            self.emit(PrunedEvent(side=self.side, count=len(self._waiting), snapshots=self._waiting))
            self._waiting = []


async def drop_stuck(
    zfs: Zfs, plan: PrunePlan, *, clones: bool = True, lifted: Set[str] = frozenset()
) -> PrunePlan:
    """The same plan, but what is held at this moment, or has clones, is kept; asked only of what no rule keeps.

    A listing tells nothing of holds, nor of clones elsewhere. What is stuck does not count for prune_limit. ``lifted``
    are tags of holds that are released before anything is pruned.
    """
    unwanted = await plan.compute(lambda: [snap.name for snap in plan.unwanted])
    if not unwanted:
        return plan
    holds, no_holds = await ask_each_snapshot(zfs.holds, unwanted)
    branches, no_clones = await ask_each_snapshot(zfs.clones, unwanted) if clones else ({}, set())
    return await plan.compute(_but_stuck, plan, holds, branches, no_holds | no_clones, lifted)


def _but_stuck(
    plan: PrunePlan,
    holds: Mapping[str, set[str]],
    branches: Mapping[str, Sequence[DatasetName]],
    untold: Set[str],
    lifted: Set[str],
) -> PrunePlan:
    """The same plan, in which what is held, or has clones, or of which ZFS tells neither, is kept."""
    groups: list[Sequence[KeepDecision]] = []
    for verdicts in plan.groups:
        if keeps_all(verdicts):
            groups.append(verdicts)
            continue
        judged, any_stuck = [], False
        for verdict in verdicts:
            name = verdict.snapshot.name
            # What zvault holds on a replica it releases itself, before it prunes.
            tags = holds.get(name, set()) - ({KEEP_HOLD} if plan.replica else lifted)
            why = describe_holds(name, tags) or describe_clones(branches.get(name, []))
            why = "ZFS does not tell what needs it" if name in untold else why
            stuck = not verdict.keep and bool(why)
            any_stuck |= stuck
            judged.append(replace(verdict, keep=True, reason=why) if stuck else verdict)
        groups.append(pack_verdicts(verdicts, keep_witnesses(judged)) if any_stuck else verdicts)
    return replace(plan, judged=DatasetVerdictList(groups))


async def ask_each_snapshot(
    ask: AskSnapshots[Answer], names: Sequence[SnapshotName]
) -> tuple[dict[str, Answer], set[str]]:
    """Ask about each snapshot. Returns the answers by name, and the names that gave none.

    One that does not answer, as it may be damaged, must not keep all others from being pruned. Raises ToolFailed where
    it can be told of no dataset.
    """
    try:
        return await ask(names), set()
    except ToolFailed as error:
        by_dataset = [list(of_it) for _, of_it in groupby(names, key=lambda name: name.dataset)]
        if len(by_dataset) == 1:
            raise
        failure = error
    told: dict[str, Answer] = {}
    untold: set[str] = set()
    for of_it in by_dataset:
        try:
            told |= await ask(of_it)
        except ToolFailed:
            untold.update(of_it)
    if len(untold) == len(names):
        raise failure
    return told, untold


def _held_back(plan: PrunePlan) -> str:
    told = "; ".join(f"{over.dataset}: {over}" for over in plan.over[:3])
    more = f"; and {len(plan.over) - 3} datasets more" if len(plan.over) > 3 else ""
    return (
        f"prune_limit holds back pruning on the {plan.side}: {told}{more}. The next runs prune the rest, oldest "
        f"first: 'zvaultctl prune {plan.backup} -n --over-limit' shows them. If that is too much, make 'keep' longer "
        "before the next run; '--yes --over-limit' prunes them now"
    )


async def destroy_in_batches(
    zfs: Zfs, snapshots: Sequence[Snapshot], emit: Emit
) -> tuple[list[Snapshot], ZvaultError | None]:
    """Destroy snapshots; those that went, and the first error that none of them by itself is to blame for.

    Of what an error was about some may have gone too. Where ZFS refuses a batch and names none, each dataset of it is
    tried alone; where all of these refuse as well, or the host is out of reach, the rest is left.
    """
    gone: list[Snapshot] = []
    trouble = await _destroy_each_batch(zfs, snapshots, emit, gone.extend)
    return gone, trouble


async def _destroy_each_batch(
    zfs: Zfs, snapshots: Sequence[Snapshot], emit: Emit, note: Callable[[Sequence[Snapshot]], None]
) -> ZvaultError | None:
    """See ``destroy_in_batches``; ``note`` is called with what went of each batch."""
    trouble: ZvaultError | None = None
    for start in range(0, len(snapshots), DESTROY_BATCH):
        batch = snapshots[start : start + DESTROY_BATCH]
        went, error = await _destroy_batch(zfs, batch, emit)
        note(went)
        trouble = trouble or error
        if error is not None and (not went or not isinstance(error, LzcFailure)):
            break
    return trouble


async def _destroy_batch(
    zfs: Zfs, batch: Sequence[Snapshot], emit: Emit
) -> tuple[list[Snapshot], ZvaultError | None]:
    try:
        return await destroy_snapshots(zfs.lzc, batch, emit, HoldExplainer(zfs)), None
    except LzcFailure as error:
        by_dataset = [list(of_it) for _, of_it in groupby(batch, key=lambda snap: snap.dataset)]
        if len(by_dataset) == 1:
            return [], error
    except ZvaultError as error:
        return [], error
    gone: list[Snapshot] = []
    trouble: ZvaultError | None = None
    for of_it in by_dataset:
        went, failure = await _destroy_batch(zfs, of_it, emit)
        gone += went
        trouble = trouble or failure
        if failure is not None and not isinstance(failure, LzcFailure):
            break
    return gone, trouble


async def destroy_snapshots(
    lzc: Changes, snapshots: Sequence[Snapshot], emit: Emit, explain: Explain | None = None
) -> list[Snapshot]:
    """Destroy snapshots; those that ZFS names as what refuses are left and told. Returns those destroyed."""
    left = list(snapshots)
    while left:
        try:
            await lzc.destroy([snap.name for snap in left])
        except LzcFailure as failure:
            refused = {name: (kind, code) for name, kind, code in failure.errors if code != errno.ENOENT}
            stuck = [snap.name for snap in left if snap.name in refused]
            if not stuck:
                raise
            why = await explain(stuck) if explain is not None else {}
            for name in stuck:
                kind, code = refused[name]
                text = why.get(name) or _WHY.get(kind) or _said(code)
                emit(WarningEvent(text=f"kept {name}: {text}"))
            left = [snap for snap in left if snap.name not in refused]
        else:
            return left
    return []


def _said(code: int) -> str:
    if code in {errno.EBUSY, errno.EEXIST}:
        return "it is busy"
    return f"ZFS does not destroy it: {os.strerror(code)}" if code else "ZFS does not destroy it"


USERS_DEADLINE = 10.0
"""Seconds until a look at the host's processes is given up: one of them may hang."""

_WHY = {"SnapshotIsHeld": "somebody holds it ('zfs holds' tells who)", "SnapshotIsCloned": "a clone needs it"}


class HoldExplainer:
    """Finds out what keeps snapshots from being destroyed: holds, clones, mounts, running sends."""

    def __init__(self, zfs: Zfs) -> None:
        self.zfs = zfs

    async def __call__(self, names: Sequence[str]) -> dict[str, str]:
        """The cause by name, where one is found. Never raises: an explanation must not end a run."""
        try:
            holds, clones = await self.zfs.holds(names), await self.zfs.clones(names)
        except ZvaultError:
            holds, clones = {}, {}
        found = {}
        for name in names:
            causes = [describe_holds(name, holds.get(name, set())), describe_clones(clones.get(name, []))]
            users = await self._users(name) if self.zfs.host.address is None else []
            causes += [f"it is {user}" if user.startswith("mounted") else user for user in users]
            found[name] = "; ".join(filter(None, causes))
        return found

    async def _users(self, name: str) -> list[str]:
        try:
            told = await self.zfs.host.run(users_argv(name), deadline=USERS_DEADLINE)
        except ZvaultError:
            return []
        return told.stdout.splitlines()
