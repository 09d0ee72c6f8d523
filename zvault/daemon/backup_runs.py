"""Runs in progress and what past ones left to know: who runs, what failed, how far each vault lags."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from zvault.api.backups import Side
from zvault.api.emit import Emit
from zvault.api.events import RunEvent
from zvault.config.schema import Backup
from zvault.core.dates import reject_future
from zvault.core.diagnosis.observations import ObservedRun
from zvault.core.errors import Busy, ErrorDocument, Refused, ZvaultError
from zvault.core.model import Dataset
from zvault.core.replication.plan_model import SnapshotFilter
from zvault.daemon.active_run import ActiveRun
from zvault.daemon.event_publisher import EventPublisher
from zvault.daemon.history import OTHER_TRIGGERS, RunHistory
from zvault.daemon.host_election import HostElection
from zvault.daemon.journald import log
from zvault.daemon.lag_readings import LagReadings
from zvault.daemon.other_hosts_run import find_other_hosts_run
from zvault.daemon.per_backup import ValuesByBackup
from zvault.daemon.restore_times import RestoreTimes
from zvault.daemon.run_counters import RunCounters
from zvault.ops.context import Context
from zvault.ops.replication.lag import measure_lags
from zvault.ops.replication.listing import BothListings, list_selected, make_own_filter
from zvault.ops.retention.prune import prune_backup
from zvault.ops.run import BackupRun
from zvault.ops.run_outcome import RunOutcome
from zvault.ops.snapshot_run import SnapshotRun
from zvault.ops.state.source_tree import list_source
from zvault.ops.vaults.past_vaults import PastVaults
from zvault.ops.vaults.run_permission import RunPermission
from zvault.ops.vaults.vault import Vaults
from zvault.system.side_threads import compute_aside

if TYPE_CHECKING:
    from zvault.ops.restore.plan_restore import RestoreRequest
    from zvault.ops.retention.holds import BaseProtection

RUN_SIDES = ("source", "vault")

Work = Callable[[str, str, RunOutcome], Awaitable[None]]
"""What a run does: given its id, its backup and the outcome to fill, which is told also when it is cut short."""


class BackupRuns:
    """Starts runs, one at a time a backup, and keeps what they found."""

    def __init__(self, context: Context, vaults: Vaults, history: RunHistory, events: EventPublisher) -> None:
        self.context = context
        self.vaults = vaults
        self.past = PastVaults(context, vaults)
        self.history = history
        self.events = events
        self.current: dict[str, ActiveRun] = {}
        self.readings = LagReadings(context)
        self.lags, self.proofs, self.made = self.readings.lags, self.readings.proofs, self.readings.made
        self.turns = HostElection(context, vaults)
        self.counters = RunCounters(over_limit=history.held_back())
        self.snapshot_troubles: ValuesByBackup[ErrorDocument | None] = ValuesByBackup(context.env)
        """What was wrong with the last snapshot of each backup that makes some apart from its runs."""
        self.closed: str | None = None
        """Why nothing may start now, in words; None where it may."""
        self.held: dict[str, asyncio.Event] = {}
        """Backups whose runs wait until what an earlier zvaultd left of them is done."""
        self._reaping = asyncio.Lock()
        self._changed_beside: dict[tuple[str, Side], float] = {}
        """When a side of a backup changed last while a run of it was at work (monotonic seconds)."""
        self.restore_times = RestoreTimes(context.env, history)
        events.hooks.append(self.restore_times.hear)
        events.hooks.append(self._count)
        context.activity.came_up.append(self._doubt_vault)

    def start(self, backup: str, trigger: str, *, snapshot: bool = True) -> str:
        """Start a run and return its id. Raises NotFound, Busy while one runs, Refused while stopping.

        One that only waits to try again gives way: the new one does all that it would have done. Without
        ``snapshot`` it sends the snapshots that are there and makes none.
        """
        self.context.env.backup(backup)
        if (running := self.running(backup)) is not None:
            if running.turn is not None and trigger != "hand":
                return running.id  # what is due is what it waits to do
            if running.waiting is not None:
                return self._take_over(running, trigger, snapshot=snapshot)
            running.missed = trigger if trigger != "hand" else running.missed
            raise Busy(
                f"backup '{backup}' is already running",
                f"run {running.id} began it",
                f"'zvaultctl follow {backup}' shows it to its end",
            )
        return self.launch(backup, trigger, partial(self._back_up, snapshot=snapshot))

    def refusal(self, backup: str) -> str | None:
        """Why no run of a backup could start now, in words; None where one could."""
        if self.closed is not None:
            return self.closed
        running = self.running(backup)
        if running is None or running.waiting is not None:
            return None
        return f"run {running.id} of it is under way: what is told here moves with it"

    def _take_over(self, waiting: ActiveRun, trigger: str, *, snapshot: bool = True) -> str:
        run = self.launch(waiting.backup, trigger, partial(self._back_up, snapshot=snapshot))
        waiting.superseded.set()
        return run

    async def _pause(self, run: str, seconds: float) -> bool:
        """Wait to try again, if nothing else comes: False when another run took over. A drain ends it at once."""
        current = self.current[run]
        current.waiting = self.context.env.clock.time() + seconds
        try:
            if self.closed is not None:
                current.task.cancel()
            elif current.missed is not None:
                self._take_over(current, current.missed)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await current.superseded.wait()
        finally:
            current.waiting = None
        return not current.superseded.is_set()

    def restore(self, request: RestoreRequest) -> str:
        """Start a restore and return its id, to be followed like a run."""
        from zvault.ops.restore.restore_datasets import restore_datasets

        vault = self.context.env.backup(request.backup).its_vault

        async def work(run: str, backup: str, outcome: RunOutcome) -> None:
            emit = self.emitter(run, backup)

            def say(text: str) -> None:
                emit("message", text=text)

            seen = self.past.seen(vault, request.vault_at, f"restore to {request.to}", say)
            async with seen as (context, vaults):
                done = await restore_datasets(context, vaults, request, emit)
            outcome.bytes = done.bytes
            outcome.datasets = outcome.sent = done.datasets
            outcome.fall_short(done.error)

        return self.launch(request.backup, "restore", work)

    def prune(self, backup: str, *, over_limit: bool) -> str:
        """Start to prune a backup and return the run's id. Raises NotFound, Busy, Refused as ``start`` does."""
        self.context.env.backup(backup)
        busy = self.running(backup) or self._pruning(backup)
        if busy is not None:
            raise Busy(
                f"backup '{backup}' is already running",
                f"run {busy.id} began it",
                "wait for it to end; a run prunes too",
            )

        async def work(run: str, backup: str, outcome: RunOutcome) -> None:
            emit, config = self.emitter(run, backup), self.context.env.backup(backup)
            outcome.pruned, selected = await prune_backup(
                self.context, self.vaults, config, emit, over_limit=over_limit
            )
            outcome.result = "ok" if outcome.pruned == selected else "partial"

        return self.launch(backup, "prune", work)

    def snapshot(self, backup: str, trigger: str = "") -> str:
        """Start to make a backup's snapshot at its own time, whatever runs; the id of what makes it, or makes one yet.

        Raises NotFound, Refused while nothing may start. ``trigger``: on time, or to catch up; it is told as the same.
        """
        self.context.env.backup(backup)
        if (making := self._under_way(backup, "snapshot")) is not None:
            return making.id

        async def work(run: str, backup: str, outcome: RunOutcome) -> None:
            def may_prune() -> bool:
                running = self.running(backup) or self._under_way(backup, "prune")
                return running is None or running.waiting is not None

            if (made := await self.turns.snapshot_made(backup, self.last_snapshot)) is not None:
                outcome.result = "skipped"
                self.emitter(run, backup)("message", text=f"skipped: {made}")
                return
            way = self.lags.way(backup)
            await SnapshotRun(
                self.context, backup, self.emitter(run, backup), outcome, run, may_prune
            ).execute()
            self.snapshot_troubles.put(backup, outcome.error.as_dict() if outcome.error else None, way)

        return self.launch(backup, "snapshot", work)

    async def last_snapshot(self, backup: Backup) -> datetime | None:
        """Return when zvault's newest snapshot of a backup's source was made; never a time to come. None where there is
        none, or nobody knows.
        """
        try:
            tree = await list_source(self.context.clients, backup, sizes=False)
            chosen = list_selected(backup, tree)
        except ZvaultError as error:
            log.warning("cannot tell when %s last made a snapshot: %s", backup.name, error)
            return None
        size = sum(1 + len(dataset.snapshots) for dataset in chosen)
        newest = await compute_aside(
            size, None, _find_newest, chosen, make_own_filter(backup), self.context.env.clock.time()
        )
        return None if newest is None else datetime.fromtimestamp(newest, UTC)

    async def reap(self, vault_guid: int | None) -> list[BaseProtection]:
        """Release orphaned holds and bookmarks. Raises Busy while anything runs: it may be about to need them."""
        from zvault.ops.retention.holds import release_orphans

        busy = {run.backup for run in self.current.values() if run.trigger != "scrub"}
        if busy or self._reaping.locked():
            names = ", ".join(sorted(busy)) or "another reaping"
            raise Busy("holds cannot be reaped now", f"{names} is running", "wait for it to end")
        async with self._reaping:
            return await release_orphans(self.context, self.vaults, vault_guid)

    def last_into(self, vault: str) -> ObservedRun | None:
        """The newest run that ended, of all backups into a vault."""
        backups = [name for name, backup in self.context.env.config.backup.items() if backup.vault == vault]
        ended = [
            run for name in backups if (run := self.history.last(name, way=self.lags.way(name))) is not None
        ]
        last = max(ended, key=lambda run: run["ended"] or 0.0, default=None)
        return (
            None
            if last is None
            else ObservedRun(last["backup"], last["bytes"], last["seconds"] or 0.0, last["warning"] or "")
        )

    def running(self, backup: str) -> ActiveRun | None:
        """The run of a backup in progress, if any; what is no backup does not count, nor one that was superseded."""
        return next(
            (
                run
                for run in self.current.values()
                if run.backup == backup and run.trigger not in OTHER_TRIGGERS and not run.superseded.is_set()
            ),
            None,
        )

    def _pruning(self, backup: str) -> ActiveRun | None:
        return self._under_way(backup, "prune")

    def _under_way(self, backup: str, trigger: str) -> ActiveRun | None:
        return next(
            (run for run in self.current.values() if run.backup == backup and run.trigger == trigger), None
        )

    def launch(self, backup: str, trigger: str, work: Work) -> str:
        """Start what is followed as a run is, and return its id. Raises Refused while nothing may start."""
        if self.closed is not None:
            raise Refused("no run can start", self.closed, "it is made up for once zvaultd goes on")
        now = self.context.env.clock.now()
        run = self._new_id(now)
        task = asyncio.create_task(self._conduct(run, backup, trigger, work), name=f"run {run}")
        self.current[run] = ActiveRun(run, backup, trigger, task, started=now.timestamp())
        task.add_done_callback(lambda _: self._never_began(run, backup, trigger))
        return run

    def _new_id(self, now: datetime) -> str:
        """Make an id that no other run has.

        Of pairs of runs that begin in one second one in 65,536 drew the same, and the history refused the second run
        (seen in a simulated year).
        """
        while True:
            run = f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
            if run not in self.current and self.history.run(run) is None:
                return run

    def _never_began(self, run: str, backup: str, trigger: str) -> None:
        """Write down a run that was cancelled before its first step: nothing in its task ran, no finally either."""
        if run in self.current:
            now, outcome = self.context.env.clock.time(), RunOutcome(result="interrupted")
            outcome.blame(self._stopped())
            self._begin(run, backup, trigger, now)
            self._finish(run, backup, trigger, outcome, now, now)

    async def _back_up(self, run: str, backup: str, outcome: RunOutcome, *, snapshot: bool) -> None:
        if (held := self.held.get(backup)) is not None:
            await held.wait()
        if (pruning := self._pruning(backup)) is not None:
            # Not refused: a backup that is due must not fall out because somebody prunes.
            await asyncio.wait({pruning.task})
        runs = [one for one in self.current.values() if one.backup == backup]
        if before := {one.task for one in runs if one.superseded.is_set()}:
            await asyncio.wait(before)
        async with self._reaping:
            pass
        pause, emit = partial(self._pause, run), self.emitter(run, backup)

        async def execute(turn: RunPermission | None) -> None:
            where = (self.context, self.vaults, backup, emit, outcome)
            it = BackupRun(*where, id=run, pause=pause, snapshot=snapshot, turn=turn)
            await self._execute(it, backup, outcome)

        shared = self.turns.of(backup)
        if shared is None:
            await execute(None)
        else:
            await self.turns.run(shared, self.current[run], outcome, emit, pause, execute)
            if outcome.result == "skipped":
                last, now = self.history.last(backup), self.context.env.clock.time()
                if (made_by := find_other_hosts_run(shared, backup, last, now)) is not None:
                    self.history.skip(run, made_by)

    async def _execute(self, it: BackupRun, backup: str, outcome: RunOutcome) -> None:
        way = self.lags.way(backup)
        it.tell_looked = partial(self._note_looked, backup, way)
        await it.execute()
        if outcome.lags:
            # What is doubted yet came while it waited for a try that did not get so far as to look.
            doubted = self.readings.is_doubted(backup)
            self.readings.keep(backup, outcome.lags, way)
            looked = it.looked.items()
            if doubted or any(self._changed_beside.get((backup, side), at) > at for side, at in looked):
                self.readings.doubt(backup)
        if outcome.made:
            self.readings.keep_made(backup, outcome.made, way)
        if outcome.proofs:
            self.proofs.put(backup, outcome.proofs, way)
        if it.listed is not None:
            await self.readings.note_exposed(backup, it.listed[0], way)
            self.readings.listings.keep(backup, it.listed[0], way, it.listed[1])

    async def _note_looked(self, backup: str, way: str | None, sides: BothListings) -> None:
        """A run has looked at both sides: what was doubted until then is known."""
        if self.readings.is_doubted(backup):
            found = await sides.compute(measure_lags, self.context, self.context.env.backup(backup), sides)
            self.readings.keep(backup, found, way)

    async def _conduct(self, run: str, backup: str, trigger: str, work: Work) -> None:
        """Run it from the first event to the last; whatever happens is written down and told."""
        started = self.context.env.clock.time()
        outcome = RunOutcome()
        self._begin(run, backup, trigger, started)
        try:
            await work(run, backup, outcome)
        except ZvaultError as error:
            outcome.result = "failed"
            outcome.blame(error)
        except asyncio.CancelledError:
            outcome.result = "interrupted"
            outcome.blame(self._stopped())
        except Exception as error:
            outcome.result = "failed"
            outcome.blame(make_unexpected_error(error))
            raise
        finally:
            ended = self.context.env.clock.time()
            self._finish(run, backup, trigger, outcome, started, ended)

    def _stopped(self) -> ZvaultError:
        return Refused(
            "the run was stopped", self.closed or "it was told to", "the next run resumes where it stopped"
        )

    def _begin(self, run: str, backup: str, trigger: str, started: float) -> None:
        if trigger != "snapshot":  # made every few minutes, perhaps: the history has those that went wrong
            self._write_begun(run, backup, trigger, started)
        self.emitter(run, backup)("run-started", trigger=trigger)

    def _write_begun(self, run: str, backup: str, trigger: str, started: float) -> None:
        try:
            self.history.begin(run, backup, trigger, started, self.lags.way(backup))
        except Exception:
            log.exception("%s: the beginning of run %s is missing in the history", backup, run)

    def _finish(
        self, run: str, backup: str, trigger: str, outcome: RunOutcome, started: float, ended: float
    ) -> None:
        current = self.current.pop(run)
        held_back: dict[str, int] | None = None
        if (trigger == "prune" or trigger not in OTHER_TRIGGERS) and outcome.result in {"ok", "partial"}:
            held_back = {side: current.over_limit.get(side, 0) for side in RUN_SIDES}
            self.counters.over_limit |= {(backup, side): count for side, count in held_back.items()}
        error = outcome.error.as_dict() if outcome.error else None
        figures = {
            "bytes": outcome.bytes,
            "datasets": outcome.datasets,
            "sent": outcome.sent,
            "pruned": outcome.pruned,
        }
        if trigger == "snapshot" and outcome.result not in {"ok", "skipped"}:
            self._write_begun(run, backup, trigger, started)
        try:
            self.history.end(run, ended, outcome.result, figures, error, current.drift, held_back)
        except Exception:
            log.exception("%s: the end of run %s is missing in the history", backup, run)
        if trigger not in OTHER_TRIGGERS:
            self.counters.runs[backup, outcome.result] += 1
            if outcome.error is not None:
                self.counters.failures[backup, outcome.error.reason] += 1
        self.emitter(run, backup)(
            "run-finished",
            trigger=trigger,
            result=outcome.result,
            **figures,
            seconds=max(0.0, ended - started),  # the clock may have been set back
            error=error,
        )

    def emitter(self, run: str, backup: str) -> Emit:
        """Tells what happens in a run."""

        def emit(event: str, **fields: Any) -> None:
            head = {"event": event, "run": run, "backup": backup, "time": self.context.env.clock.time()}
            self.events.publish(cast(RunEvent, {**head, **fields}))

        return emit

    def _count(self, event: RunEvent) -> None:
        """Keep the live figures of its run, the counters, and what it pruned."""
        self.counters.count(event)
        self.readings.listings.hear(event)
        if (current := self.current.get(event["run"])) is not None:
            current.note(event)

    async def refresh_lag(self, backup: Backup) -> None:
        """Read a backup's lag from the pools, unless a run of it is at work."""
        await self.readings.refresh(backup, lambda: self._at_work(backup.name))

    def doubt_lag(self, backup: str, *, source: bool = False, vault: bool = False) -> None:
        """Take a backup's lag for unknown until it was read again. A run reads it by itself, as it looks last: what
        changes after that on either side is read again once it has ended.
        """
        if not self._at_work(backup):
            self.readings.doubt(backup)
            return
        sides: dict[Side, bool] = {"source": source, "vault": vault}
        now = self.context.env.clock.monotonic()
        for side in (side for side, changed in sides.items() if changed):
            self._changed_beside[backup, side] = now

    def _doubt_vault(self, vault: str) -> None:
        """It came up, and may be older than when it went down."""
        for name, backup in self.context.env.config.backup.items():
            if backup.vault == vault:
                self.doubt_lag(name)

    async def last_run(self, backup: Backup) -> datetime | None:
        """Return when a backup last began to run; never a time to come. None where it never did, or nobody knows.

        Its own record tells that, and what its vault has: the newest snapshot on the source may be another backup's. It
        counts only where a backup makes nothing else. A time from the future is of a clock that was wrong, then or now;
        to wait until it has come could be to wait for years, so it counts for nothing.
        """
        try:
            await self.refresh_lag(backup)
        except ZvaultError as error:
            log.warning("cannot tell what %s last put on its vault: %s", backup.name, error)
        # Only now: that may have taken minutes, in which it ran.
        known = [self.history.last_begun(backup.name, self.lags.way(backup.name))]
        now = self.context.env.clock.time()
        known += [lag.covered(now) for lag in self.lags.get(backup.name, {}).values()]
        known += self.made.get(backup.name, {}).values()
        if (running := self.running(backup.name)) is not None:
            known.append(min(running.started, now))  # the clock may have been set back since: it has begun
        newest = max((at for one in known if (at := reject_future(one, now)) is not None), default=None)
        return None if newest is None else datetime.fromtimestamp(newest, UTC)

    def _at_work(self, backup: str) -> bool:
        running = self.running(backup)
        return running is not None and running.waiting is None

    async def drain(self, why: str, within: float) -> None:
        """Let runs end by themselves for a while, then stop their streams so that they can be resumed."""
        self.closed = why
        for run in self.current.values():
            if run.waiting is not None:
                run.task.cancel()
        if tasks := {run.task for run in self.current.values()}:
            await asyncio.wait(tasks, timeout=within)
        await self.put_down(why)

    async def put_down(self, why: str, within: float | None = None) -> set[str]:
        """Let nothing start until ``reopen``, and stop what runs, so that it can be resumed.

        Returns the backups whose runs it stopped, after ``within`` seconds also if some have not ended yet.
        """
        self.closed = why
        stopped = list(self.current.values())
        for run in stopped:
            run.task.cancel()
        if stopped:
            await asyncio.wait({run.task for run in stopped}, timeout=within)
        return {run.backup for run in stopped if run.trigger not in OTHER_TRIGGERS}

    def reopen(self) -> None:
        """Let runs start again."""
        self.closed = None


def _find_newest(datasets: Sequence[Dataset], ours: SnapshotFilter, now: float) -> float | None:
    """When the newest of some datasets' snapshots was made that are ``ours``; never a time to come."""
    dates = (snap.creation for dataset in datasets for snap in dataset.snapshots if ours(snap))
    return max((at for one in dates if (at := reject_future(one, now)) is not None), default=None)


def make_unexpected_error(error: Exception) -> ZvaultError:
    """An error nobody foresaw, as one that can be told."""
    return ZvaultError(
        "zvault met an error it does not know",
        f"{type(error).__name__}: {error}",
        "the journal has the details; please report it",
    )
