"""One run of a backup: vault up, snapshot, look, plan, transfer, prune, lag, vault down; and again what failed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import attrgetter

from zvault.api.backups import Side
from zvault.api.events import (
    DatasetFailed,
    Emit,
    InhibitorEvent,
    MessageEvent,
    RetryEvent,
    SnapshotMade,
    VaultUp,
    WarningEvent,
)
from zvault.config.schema import Backup
from zvault.core.errors import (
    DeadlineExceeded,
    DeviceGone,
    DiskAway,
    HeldElsewhere,
    NotFound,
    PoolSuspended,
    Stalled,
    TakenOver,
    ZvaultError,
)
from zvault.core.model import Tree
from zvault.core.policy.backoff import A_FIFTH, iterate_delays
from zvault.core.policy.sleep import describe_waiting
from zvault.core.replication.progress import RunMeter
from zvault.ops.context import Context
from zvault.ops.diagnosis.write_watch import watch_drift
from zvault.ops.hooks import HookRun, RunHooks
from zvault.ops.replication.inherited_keys import inherit_keys_again
from zvault.ops.replication.lag import list_newest_made, measure_lags
from zvault.ops.replication.listing import (
    BothListings,
    SizesWanted,
    count_with_snapname,
    list_both_sides,
    list_selected,
    list_unlisted_errors,
    make_sent_filter,
)
from zvault.ops.replication.read_only_source import is_read_only_refusal
from zvault.ops.replication.receive_properties import update_properties
from zvault.ops.replication.run_plan import OpenBackup, RunPlan, announce_plan, plan_run
from zvault.ops.replication.small_streams import SmallStreams
from zvault.ops.replication.source_record import update_vault
from zvault.ops.replication.source_snapshot import RecentSource
from zvault.ops.replication.transfer import Transfers
from zvault.ops.replication.transfer_all import StreamLimits, TransferQueue, make_cycle_error
from zvault.ops.retention.arrivals import NOTHING_ARRIVED, list_arrivals
from zvault.ops.retention.prune import apply_prune
from zvault.ops.retention.prune_plan import PrunePlan, plan_prune
from zvault.ops.retention.prune_source import prune_source
from zvault.ops.retention.vault_holds import move_holds
from zvault.ops.run_outcome import DatasetResults, RunOutcome, make_datasets_failed
from zvault.ops.run_snapshot import RunSnapshot
from zvault.ops.state.source_tree import find_missing_included
from zvault.ops.vaults.pool_copies import refuse_copy
from zvault.ops.vaults.run_permission import RunPermission
from zvault.ops.vaults.vault import OpenVault, Vaults
from zvault.ops.verification.proofs import prove_guids
from zvault.zfs.changes import LzcFailure
from zvault.zfs.pool.pool import PoolExporting

VAULT_AWAY = (DeviceGone, PoolSuspended, Stalled, DeadlineExceeded, PoolExporting)
"""What befalls a vault whose storage went away or stands still: it undoes nothing of what was sent before."""

RECENT_LISTING = 60.0
"""Seconds a listing of the source is good for after a run's transfers."""

RunPause = Callable[[float], Awaitable[bool]]
"""Waits so many seconds; tells whether to go on then, or to end."""


async def wait_seconds(seconds: float) -> bool:
    """Wait, and go on."""
    await asyncio.sleep(seconds)
    return True


async def _tell_nobody(_: BothListings) -> None: ...


@dataclass(frozen=True)
class RunSurvey:
    """A listing of both sides, and when it began (monotonic seconds)."""

    sides: BothListings
    began: float


@dataclass
class BackupRun:
    """One execution of one backup. Without ``snapshot``, or where its table says so, it makes none and
    sends those that are there.

    Its result is about what was sent. What becomes of the vault afterwards is the vault's state, and a warning here.

    It keeps the backup's name, and looks its table up at each step: a new configuration is in force from the next on.
    What is known of each dataset (``results``), and how far it is (``meter``), holds over all tries. ``turn``: where
    hosts share the vault. ``since``: from when on the snapshot of another vault's run will do (``RunSnapshot``).
    """

    context: Context
    vaults: Vaults
    name: str
    emit: Emit
    outcome: RunOutcome = field(default_factory=RunOutcome)
    id: str = ""
    pause: RunPause = wait_seconds
    snapshot: bool = True
    turn: RunPermission | None = None
    since: float | None = None

    def __post_init__(self) -> None:
        """The hooks, and what is known of each dataset, belong to this run and no other."""
        self.meter = RunMeter()
        self.results = DatasetResults()
        self.last_try = True
        # What both sides had before anything was pruned, and since when (seconds since the epoch).
        self.listed: tuple[BothListings, float] | None = None
        self.all_sent = False
        self.looked: dict[Side, float] = {}
        """Until when (monotonic seconds) what was listed of each side holds, as the lags were read from it."""
        self.tell_looked: Callable[[BothListings], Awaitable[None]] = _tell_nobody
        """Told both sides before anything is sent: whoever doubts the lag need not wait for the end."""
        self._source = RecentSource(self.context.clients, self.context.env.clock)
        self._missing: ZvaultError | None = None  # what include names and the source does not have
        self._read_only_source = False
        self._limited: dict[Side, set[str]] = {"source": set(), "vault": set()}
        """The datasets of which prune_limit held something back, by side."""
        self._first: BothListings | None = None  # both sides as they were before anything was sent
        about = HookRun(self.name, self.id, str(self.backup.source), self.backup.vault or "")
        self.hooks = RunHooks(self.context.records.hooks, about, self.emit, self._blemish)
        self.snapshots = RunSnapshot(
            self.context,
            self.name,
            self.emit,
            self.hooks,
            self._source,
            wanted=self.snapshot,
            since=self.since,
        )

    @property
    def backup(self) -> Backup:
        """The backup's table in the configuration in force. Raises NotFound."""
        return self.context.env.backup(self.name)

    def say(self, text: str) -> None:
        """Tell whoever follows the run."""
        self.emit(MessageEvent(text=text))

    def _warn(self, text: str) -> None:
        self.emit(WarningEvent(text=text))

    # The run: its tries, between its hooks

    async def execute(self) -> None:
        """Run it. A failure ends up in the outcome; only cancellation is raised."""
        try:
            async with self.hooks.around("run", self.backup.hooks, self._ending):
                retries, first = self.backup.retries, self.backup.retry_wait
                tries = islice(iterate_delays(first, jitter=A_FIFTH, chance=random.random), retries)
                for number, wait in enumerate([*tries, None], 1):
                    self.last_try, lost = wait is None, None
                    try:
                        await self._try()
                    except ZvaultError as error:
                        lost = error
                    if wait is None or not await self._wait_to_retry(lost, wait, number, retries):
                        break
                self._settle(lost)
        except ZvaultError as error:
            self.outcome.blame(error)
            self.outcome.result = "failed"
        finally:
            self.outcome.bytes, self.outcome.sent = self.meter.done, self.meter.sent
            self.outcome.pruned += self.snapshots.pruned or 0

    async def _wait_to_retry(self, lost: ZvaultError | None, wait: float, number: int, retries: int) -> bool:
        """Wait to try again what may go better; False where nothing would, or another run takes over."""
        why = self._find_retry_reason(lost)
        if why is None:
            return False
        self.emit(RetryEvent(wait=wait, number=number, retries=retries, error=why.as_dict()))
        if await self.pause(wait):
            return True
        self.say("not tried again: a new run takes over")
        return False

    def _settle(self, lost: ZvaultError | None) -> None:
        """Say how the tries ended. Raises what kept the last one from getting to its end."""
        if isinstance(lost, DiskAway) and not (self.results.failed or self.meter.done):
            # What waits for its disk has not failed: how far it lies behind is told by its lag. A run that had begun to
            # send, and whose disk was pulled out, has.
            if not self.snapshots.refused:
                self.outcome.blame(lost)
                self.outcome.result = "skipped"
                return
        elif lost is not None:
            if not (self.all_sent and isinstance(lost, VAULT_AWAY)):
                raise lost
            self._warn(f"all of it was sent, but what comes after that was not done: {lost}")
        if failed := {**self.snapshots.refused, **self.results.failed}:
            self.outcome.blame(make_datasets_failed(failed, self.outcome.datasets))
            self.outcome.result = "partial" if len(failed) < self.outcome.datasets else "failed"
        if self.outcome.result == "ok":
            self.outcome.fall_short(self._missing)

    def _find_retry_reason(self, lost: Exception | None) -> ZvaultError | None:
        """Why to try again, if this was not the last try; None where another would not go better.

        ``lost``: what kept this one from getting to its end.
        """
        why = lost or self.results.retryable
        faster = self.turn is not None and isinstance(why, (HeldElsewhere, TakenOver))
        return why if isinstance(why, ZvaultError) and why.retryable and not faster else None

    def _ending(self) -> tuple[str, str]:
        return self.outcome.result, str(self.outcome.error or "")

    def _blemish(self, error: ZvaultError) -> None:
        """A hook after something failed: what is done is done, but all is not well."""
        self.outcome.blame(error)
        self.outcome.result = "partial" if self.outcome.result == "ok" else self.outcome.result

    # One try: its steps, each of which is given what the one before it found

    async def _try(self) -> None:
        self._source.forget()
        # A source that is not there is told before anything is brought up.
        tree = await self._source.tree(self.backup)
        list_selected(self.backup, tree)
        self._missing = find_missing_included(self.backup, tree.datasets, tree.unlisted.keys())
        if self.backup.vault is None:
            await self._only_snapshot()
            return
        done = reached = False
        try:
            vault_used = self.vaults[self.backup.vault].use(
                f"backup {self.name}",
                self.say,
                warn=self._warn,
                create=True,
                shut_out=self.turn.shut_out if self.turn is not None and self.turn.of else None,
            )
            async with vault_used as vault, self._in_turn() as needless:
                if needless is not None:
                    self._skip(needless)
                    done = reached = True
                    return
                # Until `reached`, the run counts as without its vault, and snapshots its source all the same. A vault
                # that refused once it was up left no history of that time anywhere.
                vault.refuse_read_only("nothing can be backed up to it")
                self._tell_up(vault)
                refuse_copy(self.context, vault.managed.config, vault.guid)
                reached = True
                made, seen = await self._make_snapshot(vault)
                looked, opened, plan = await self._look_and_plan(vault, made, seen)
                await self.tell_looked(looked.sides)
                await self._transfer(opened, plan)
                self.all_sent = not self.results.failed
                after = await self._look_again(vault, looked, plan)
                self._listed(after, looked.began)
                self.outcome.lags = await after.compute(measure_lags, self.context, self.backup, after)
                await inherit_keys_again(vault.zfs, looked.sides, after, self.emit)
                await update_vault(vault.zfs, after, plan.source_records, self.emit)
                await update_properties(vault.zfs, opened.backup, after, self.emit)
                self.outcome.pruned += await self._prune(opened, after)
                self.outcome.proofs = await prove_guids(self.context, self.backup, after, vault, self.emit)
                done = True
        except ZvaultError as lost:
            if not reached:
                await self._snapshot_without_vault(lost)
            raise
        except asyncio.CancelledError:
            if not done:
                raise
            # Cancelled while the vault went down, which it has by now: nothing of the run was cut off.
            if (task := asyncio.current_task()) is not None:
                task.uncancel()

    def _skip(self, why: str) -> None:
        self.results.forget()
        self.snapshots.refused = {}
        self.outcome.result = "skipped"
        self.say(f"skipped: {why}")

    @asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[str | None]:
        """While it has the vault that hosts share; gives why it need not run, None where it is to."""
        if self.turn is None:
            yield None
            return

        def again(lost: Exception | None) -> bool:
            return not self.last_try and self._find_retry_reason(lost) is not None

        async with self.turn.taken(self._worst_lag, lambda: not self.results.failed, again) as needless:
            yield needless

    def _worst_lag(self) -> float | None:
        ages = [lag.age(self.context.env.clock.time()) for lag in self.outcome.lags.values()]
        known = [one for one in ages if one is not None]
        return max(known) if known and len(known) == len(ages) else None

    async def _only_snapshot(self) -> None:
        """A try of a backup without a vault: a snapshot, unless it only prunes, and the source pruned."""
        made, _ = await self.snapshots.make(None)
        looked = await self._look(None, made)
        sides = looked.sides
        self._note_unlisted(sides)
        self._listed(sides, looked.began)
        self.outcome.made = await sides.compute(list_newest_made, self.backup, sides)
        plans = await sides.compute(plan_prune, self.context, self.backup, sides)
        source = self.context.clients.source_of(self.backup)
        await move_holds(self.context, self.backup, {"source": source}, plans, self.emit)
        plans = await self._list_prunable(plans)
        self.outcome.pruned += await apply_prune(source, None, plans, self.emit)

    async def _snapshot_without_vault(self, lost: ZvaultError) -> None:
        """Make the run's snapshot though its vault cannot be had: else there were no history of that time anywhere.

        Not where another host has a vault that hosts share: that one makes the run. What goes wrong is told; the run
        fails for what keeps its vault away. Raises it for a disk that is away, for which no run fails.
        """
        others = self.turn is not None and isinstance(lost, (HeldElsewhere, TakenOver))
        if others or self.hooks.snapname or not self.snapshots.wanted_now:
            return
        try:
            made, _ = await self.snapshots.make(None)
            sides = await list_both_sides(self.context, self.backup, None, sizes="none")
            await self._tell_snapshot(made, sides)
            if not self.snapshots.pruned:
                self.snapshots.pruned = await prune_source(self.context, self.backup, self.emit, sides)
        except ZvaultError as error:
            if isinstance(lost, DiskAway):
                raise
            self._warn(
                f"while the vault cannot be had, the source could not be snapshotted or pruned: {error}"
            )

    async def _tell_snapshot(self, made: str, sides: BothListings) -> None:
        if made:
            count = await sides.compute(count_with_snapname, made, sides)
            self.emit(SnapshotMade(snapname=made, datasets=count))

    async def _make_snapshot(self, vault: OpenVault) -> tuple[str, Tree | None]:
        """Make the run's snapshot. A source that was imported read-only gets none: what it has is sent."""
        if self._read_only_source:
            return "", None
        try:
            return await self.snapshots.make(vault)
        except LzcFailure as failure:
            if not is_read_only_refusal(failure):
                raise
        self._read_only_source = True
        self._warn(
            f"the pool {self.backup.source.pool} is read-only, so no snapshot is made of it, nothing in it is held, and"
            " it is not pruned: the snapshots that it has are sent, those that zvault did not make if 'also' names them"
        )
        self._source.forget()
        return "", None

    def _tell_up(self, vault: OpenVault) -> None:
        self.emit(VaultUp(vault=vault.name, message=f"pool {vault.pool} is up"))
        awake = vault.managed.awake
        held = f"{describe_waiting(awake.refused)} for this run"
        if awake.problem is not None:
            held = str(awake.problem)
        self.emit(InhibitorEvent(held=awake.held, message=held))

    async def _look_and_plan(
        self, vault: OpenVault, made: str, seen: Tree | None
    ) -> tuple[RunSurvey, OpenBackup, RunPlan]:
        """List both sides, plan what is left to do, and tell it.

        What was written on the vault decides only how something gets there, and each run would have to ask ZFS for it
        (see Zfs.tree). So where there may be nothing left to do it is asked only if there is something after all; and
        where no events are had everything is listed at once.
        """
        sizes: SizesWanted = "vault" if made or vault.zfs.lapses is None else "none"
        looked = await self._look(vault, made, seen, sizes=sizes)
        if (anew := await self.snapshots.make_anew(vault, looked.sides)) is not None:
            made, seen = anew, None
            looked = await self._look(vault, made, sizes=sizes)
        self._refuse_without_snapshots(looked.sides)
        opened, plan = await self._plan(vault, looked.sides)
        if not (looked.sides.sized or plan.idle):
            looked = await self._look(vault, made, seen)
            opened, plan = await self._plan(vault, looked.sides)
        self.meter.expect(plan.sizes)
        announce_plan(opened, plan)
        return looked, opened, plan

    def _refuse_without_snapshots(self, sides: BothListings) -> None:
        """Raise NotFound for a run that makes no snapshot and finds none that it may send: it would end well and empty.

        So it is where ``also`` has a typing mistake, or whatever makes the snapshots has stopped.
        """
        backup = self.backup
        is_sent = make_sent_filter(backup)
        if self.snapshots.wanted_now and not self._read_only_source:
            return
        # Where a read-only source had nothing to send, the run made nothing, sent nothing, and ended well.
        if any(is_sent(snap) for one, _ in sides.pairs for snap in one.snapshots):
            return
        patterns = f", or that also = {backup.also} names" if backup.also else ""
        lacking = f"no dataset of {backup.source} has one that zvault made for it{patterns}"
        if self._read_only_source:
            raise NotFound(
                f"backup '{self.name}' found no snapshot to send",
                f"none can be made, as the pool {backup.source.pool} is read-only, and {lacking}",
                "name snapshots that other tools made there in 'also', and they are sent; or import the pool writable",
            )
        raise NotFound(
            f"backup '{self.name}' found no snapshot to send",
            f"this run makes none, and {lacking}",
            f"'zvaultctl run {self.name}' makes one unless snapshot.make is off;"
            " 'also' names the snapshots of other tools that are to be sent",
        )

    async def _look(
        self, vault: OpenVault | None, made: str, seen: Tree | None = None, *, sizes: SizesWanted = "vault"
    ) -> RunSurvey:
        """List both sides; the source is not listed again where nothing was made, or it was ``seen`` since."""
        seen = seen if self.snapshots.wanted_now else await self._source.tree(self.backup)
        began = self.context.env.clock.monotonic()
        zfs = vault.zfs if vault is not None else None
        sides = await list_both_sides(
            self.context, self.backup, zfs, source=seen, sizes=sizes, elsewhere=True, made=made
        )
        self.looked = dict.fromkeys(("source", "vault"), self.context.env.clock.monotonic())
        self._first = self._first or sides
        self.outcome.datasets = len(sides.pairs) + len(sides.unlisted)
        await self._tell_snapshot(made, sides)
        return RunSurvey(sides, began)

    async def _plan(self, vault: OpenVault, sides: BothListings) -> tuple[OpenBackup, RunPlan]:
        opened = OpenBackup(self.context, self.backup, vault, self.emit)
        return opened, await plan_run(opened, sides, self.results.settled)

    async def _transfer(self, opened: OpenBackup, plan: RunPlan) -> None:
        """Carry out the plan; its bases are held before anything is sent, and advanced before this returns.

        What was tried is in ``results`` afterwards. Raises what befell the vault, of which all else is the echo.
        """
        self.results.begin_try()
        self._note_unlisted(plan.sides)
        small = SmallStreams(opened, plan)
        transfers = Transfers(opened, plan, self.meter, small=small)
        for text in await transfers.lacking():
            self.emit(WarningEvent(text=text))
        activity = self.context.activity
        limits, slots = StreamLimits(self.context.env, self.backup, activity.sync_times), activity.slots
        throttle = limits.throttle()
        try:
            await transfers.cover()
            await small.learn()
            watch = watch_drift(self.context, opened.vault, self.emit)
            async with throttle as stage, watch:
                queue = TransferQueue(replace(transfers, throttle=stage), slots, limits, self._note)
                await queue.learn_sync_time()
                await queue.execute()
            unsettled = await plan.bases.wait_advanced()
        finally:
            await plan.bases.stop()
        if plan.bases.unprotected and not self._read_only_source:
            self._read_only_source = True
            self._warn(
                f"the pool {self.backup.source.pool} is read-only, so nothing in it is held, or pruned"
            )
        for name, error in unsettled.items():
            self._note(name, error)
        for name in queue.order.stuck():
            self._note(name, make_cycle_error(name))
        if self.results.failed and (lost := await opened.vault.trouble()) is not None:
            raise lost

    def _note(self, dataset: str, error: ZvaultError | None) -> None:
        """A dataset was tried: note how it fared, and tell what went wrong."""
        self.results.note(dataset, error)
        if error is not None:
            again = error.retryable and not self.last_try
            self.emit(DatasetFailed(dataset=dataset, error=error.as_dict(), again=again))

    def _note_unlisted(self, sides: BothListings) -> None:
        """Note the datasets that cannot be listed: nothing is done with them, and all others are."""
        for name, error in list_unlisted_errors(sides).items():
            if name not in self.results.failed:
                self._note(name, error)

    async def _look_again(self, vault: OpenVault, looked: RunSurvey, plan: RunPlan) -> BothListings:
        """List both sides once more, if anything was changed.

        Transfers change nothing of the source's snapshots, and those to be pruned are looked at before they are.
        """
        if not plan.changed:
            return looked.sides
        source = (
            looked.sides.source
            if self.context.env.clock.monotonic() - looked.began < RECENT_LISTING
            else None
        )
        after = await list_both_sides(self.context, self.backup, vault.zfs, source=source, sizes="vault")
        now = self.context.env.clock.monotonic()
        self.looked |= {"vault": now} if source is not None else {"source": now, "vault": now}
        return replace(after, stray=looked.sides.stray)

    def _listed(self, sides: BothListings, began: float) -> None:
        """Note what both sides have, as of the time (monotonic seconds) of the oldest of the listings."""
        self.listed = sides, self.context.env.clock.time() - (self.context.env.clock.monotonic() - began)

    async def _prune(self, opened: OpenBackup, sides: BothListings) -> int:
        """Move the holds on the vault, then prune both sides; how many snapshots went."""
        first, arrived = self._first, NOTHING_ARRIVED
        if first is not None:
            arrived = await sides.compute(list_arrivals, first, sides)
        plans = await sides.compute(plan_prune, self.context, self.backup, sides, arrived=arrived)
        await move_holds(self.context, self.backup, {"vault": opened.vault.zfs}, plans, self.emit)
        if self._read_only_source:
            plans = [plan for plan in plans if plan.side != "source"]
        plans = await self._list_prunable(plans)
        return await apply_prune(opened.source, opened.vault.zfs, plans, self.emit)

    async def _list_prunable(self, plans: Sequence[PrunePlan]) -> list[PrunePlan]:
        """List the plans without what this run has pruned as far as prune_limit allows: that is a share for each run,
        and twice in one would be more.

        Left out is a source that was pruned to make room, or while the vault could not be had, and each dataset of
        which the limit held something back in an earlier try. With three tries more, a run took 94 % for 50 %.
        """
        found = []
        for plan in plans:
            if plan.side == "source" and self.snapshots.pruned:
                continue
            left = plan.leave_out(self._limited[plan.side])
            over = await left.compute(attrgetter("over"), left)
            self._limited[plan.side] |= {one.dataset for one in over}
            found.append(left)
        return found
