"""A backup that is due on a vault that hosts share asks first whether it is this host's turn."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timedelta, tzinfo

from zvault.api.events import Emit, MessageEvent, WarningEvent
from zvault.api.runs import RunDocument
from zvault.config.schema import Backup
from zvault.core.errors import HeldElsewhere, TakenOver, ZvaultError
from zvault.core.policy.cron_schedule import CronSchedule, ScheduleInterval, find_next_time
from zvault.core.sharing.election import ElectionState
from zvault.core.sharing.run_decision import DueRun, RunAction, RunDecision, SettledRun
from zvault.core.sharing.shared_note import SharedRunOutcome
from zvault.core.units import format_duration
from zvault.daemon.active_run import ActiveRun
from zvault.ops.context import Context
from zvault.ops.run_outcome import RunOutcome
from zvault.ops.vaults.host_claim import HostClaim
from zvault.ops.vaults.run_permission import RunPermission
from zvault.ops.vaults.shared_vault import SharedVault
from zvault.ops.vaults.vault import Vaults

STEP = 15.0
"""Seconds between looks at the clock: it goes on while the host sleeps, and asyncio's does not."""
STAGGER = 10.0
"""Seconds by which each of several hosts makes snapshots later than the one before it: as long as one may take."""
STORE_RETRY_PAUSE = 60.0
"""Seconds until a store that does not answer is asked again."""
ASKS = 5
"""Times that the vault is asked for, where note and lease say that it can be had and it cannot."""
CLEANS = 5.0
"""Seconds between looks whether a host that was cut off or shut out has cleaned up; they ask nobody."""
LOOK_BACK_DAYS = (1, 8, 35, 400)
"""Days to look back for the due moments of a calendar schedule."""

Execute = Callable[[RunPermission], Awaitable[None]]
"""Makes a run, in its turn."""
Decide = Callable[[DueRun], Awaitable[RunDecision]]
ElectionPause = Callable[[float], Awaitable[bool]]
"""Waits so many seconds; tells whether to go on then, or to end because a new run takes over."""


class HostElection:
    """The turns of backups, for all vaults that hosts share."""

    def __init__(self, context: Context, vaults: Vaults) -> None:
        self.context = context
        self.vaults = vaults
        self._shared: dict[str, SharedVault] = {}
        self._settled: dict[str, SettledRun] = {}

    def vault(self, name: str) -> SharedVault | None:
        """A vault of the configuration that hosts share; None for any other."""
        config = self.context.env.config.vault.get(name)
        if config is None or not config.hosts:
            return None
        if name not in self._shared:
            self._shared[name] = SharedVault(self.vaults[name])
        return self._shared[name]

    def all(self) -> list[SharedVault]:
        """Each vault that hosts share."""
        found = (self.vault(name) for name in self.context.env.config.vault)
        return [shared for shared in found if shared is not None]

    def periods(self) -> Iterator[tuple[str, float]]:
        """Seconds between two due moments of each backup that is due by itself on one of these."""
        env = self.context.env
        for name, backup in env.config.backup.items():
            schedule = backup.every or backup.schedule
            if schedule is not None and self.of(name) is not None:
                yield name, measure_interval(schedule, env.clock.now(), env.zone)

    def of(self, backup: str) -> SharedVault | None:
        """The shared vault of a backup; None where its vault is this host's alone, or it has none."""
        config = self.context.env.config.backup.get(backup)
        return None if config is None or config.vault is None else self.vault(config.vault)

    async def snapshot_made(
        self, name: str, last: Callable[[Backup], Awaitable[datetime | None]]
    ) -> str | None:
        """Why this host need not make a backup's snapshot, whose own time has come: another host that shares its vault
        has made one. None where it is to. ``last`` tells when the newest was made.

        Hosts that share a vault share its sources. Where each made snapshots at the same times there would be one for
        each host. So each waits a little longer than the one before it in ``hosts``, and looks first.
        """
        shared, backup = self.of(name), self.context.env.backup(name)
        times = backup.snapshot.timetable
        if shared is None or times is None:
            return None
        hosts, env = list(shared.vault.config.hosts), self.context.env
        place = hosts.index(shared.host) if shared.host in hosts else len(hosts)
        await asyncio.sleep(STAGGER * place)
        newest, now = await last(backup), env.clock.now()
        if newest is None:
            return None
        age, period = (now - newest).total_seconds(), measure_interval(times, now, env.zone)
        return f"the newest is {format_duration(age)} old" if age < period / 2 else None

    def claim(self, backup: str) -> HostClaim | None:
        """Return what another host claims of the last run of a backup, which it made."""
        shared = self.of(backup)
        return shared.claim(backup) if shared is not None else None

    def lag(self, backup: str, own: float | None) -> float | None:
        """A backup's lag: what this host has read itself, or what another host claims to have done since."""
        known = [one for one in (own, self.done_lag(backup)) if one is not None]
        return min(known, default=None)

    def claimed_lag(self, backup: str) -> float | None:
        """The lag by now that follows from what another host says of the run that it made last."""
        shared, claim = self.of(backup), self.claim(backup)
        return None if shared is None or claim is None else claim.lag_now(shared.clock())

    def done_lag(self, backup: str) -> float | None:
        """The lag by now after the last run that another host says it has done: by this a backup is judged."""
        shared = self.of(backup)
        claim = shared.done.get(backup) if shared is not None else None
        return None if shared is None or claim is None else claim.lag_now(shared.clock())

    async def run(
        self,
        shared: SharedVault,
        current: ActiveRun,
        outcome: RunOutcome,
        emit: Emit,
        pause: ElectionPause,
        execute: Execute,
    ) -> None:
        """Make a run that is due when its turn comes, or see that another host has made it."""
        name = current.backup
        due = self._due(self.context.env.backup(name), shared, asked=current.trigger == "hand")
        decide, goes_on = shared.decide, True
        for asked in itertools.count(1):
            decision = await self._its_turn(shared, due, current, emit, pause, decide) if goes_on else None
            if decision is None or decision.action not in (RunAction.RUN, RunAction.TAKE_OVER):
                outcome.result = "skipped"
                emit(MessageEvent(text=f"skipped: {decision.reason if decision else 'a new run takes over'}"))
                if decision is not None and decision.settled is not None:
                    self._settled[name] = decision.settled
                return
            if decision.action is RunAction.TAKE_OVER:
                emit(WarningEvent(text=f"taking vault {shared.name} over: {decision.reason}"))
            await execute(self._turn(shared, due, decision.of, emit))
            if not isinstance(outcome.error, (HeldElsewhere, TakenOver)):
                break
            if isinstance(shared.vault.error, HeldElsewhere):
                shared.vault.error = None  # another host has the vault, as it may
            if asked == ASKS:
                break
            emit(MessageEvent(text=f"not now: {outcome.error}"))
            current.turn = f"it could not have the vault: {outcome.error}"
            outcome.error, outcome.result = None, "ok"
            goes_on = await self._pause(shared, min(STORE_RETRY_PAUSE, shared.bound), pause)
            current.turn = None
            decide = shared.decide_anew  # by the lease too: the note alone would have it tried again
        if outcome.result != "interrupted" and (last := shared.last(name)) is not None:
            self._settled[name] = SettledRun(last.number, shared.clock(), last.failures)

    @staticmethod
    def _turn(shared: SharedVault, due: DueRun, of: str, emit: Emit) -> RunPermission:
        return RunPermission(
            shared,
            due,
            of,
            lambda text: emit(MessageEvent(text=text)),
            lambda text: emit(WarningEvent(text=text)),
        )

    async def _its_turn(
        self,
        shared: SharedVault,
        due: DueRun,
        current: ActiveRun,
        emit: Emit,
        pause: ElectionPause,
        decide: Decide,
    ) -> RunDecision | None:
        """Wait until there is something to do; None where a new run takes over."""
        told = ""
        try:
            while True:
                wait = STORE_RETRY_PAUSE
                try:
                    decision = await decide(due)
                except ZvaultError as error:
                    if not error.retryable:
                        raise
                    reason = f"it is not known whose turn it is: {error}"
                else:
                    reason, wait = decision.reason, self._wait(shared, decision)
                    if not wait:
                        return decision
                if reason != told:
                    emit(MessageEvent(text=f"waits: {reason}"))
                current.turn = told = reason
                if not await self._pause(shared, wait, pause):
                    return None
        finally:
            current.turn = None

    @staticmethod
    def _wait(shared: SharedVault, decision: RunDecision) -> float:
        """How many seconds to wait, 0 where the decision holds now."""
        if decision.action is RunAction.WAIT:
            return max(1.0, (decision.until or 0.0) - shared.clock())
        left_over = shared.turn in (ElectionState.CUT_OFF, ElectionState.SHUT_OUT)
        return CLEANS if decision.action is RunAction.STAND_BY and left_over else 0.0

    @staticmethod
    async def _pause(shared: SharedVault, seconds: float, pause: ElectionPause) -> bool:
        until = shared.clock() + seconds
        while (left := until - shared.clock()) > 0:
            if not await pause(min(STEP, left)):
                return False
        return True

    def _due(self, backup: Backup, shared: SharedVault, *, asked: bool) -> DueRun:
        env = self.context.env
        schedule = backup.every or backup.schedule
        period = measure_interval(schedule, env.clock.now(), env.zone) if schedule is not None else 0.0
        settled = self._settled.get(backup.name)
        by_hand = asked or schedule is None
        return DueRun(backup.name, shared.clock(), period, settled, asked=by_hand)


def measure_interval(schedule: CronSchedule | ScheduleInterval, now: datetime, zone: tzinfo) -> float:
    """Seconds between the two newest due moments of a schedule."""
    if isinstance(schedule, ScheduleInterval):
        return schedule.seconds
    for days in LOOK_BACK_DAYS:
        before, last, at = None, None, now - timedelta(days=days)
        while (at := find_next_time(schedule, at, zone)) <= now:
            before, last = last, at
        if before is not None and last is not None:
            return last.timestamp() - before.timestamp()
    return float(LOOK_BACK_DAYS[-1] * 86400)


def find_other_hosts_run(
    shared: SharedVault, backup: str, last: RunDocument | None, now: float
) -> str | None:
    """The host whose run of a backup ended well, as it says, after ``last``, this host's own newest; None if there is
    none, or that is not known.

    ``now``: seconds since the epoch. A run that was cut short counts from its beginning: nobody knows when it ended.
    """
    run, note = shared.last(backup), shared.note
    if run is None or note is None or run.host == shared.host or run.outcome is not SharedRunOutcome.DONE:
        return None
    if last is None:
        return run.host
    since = last["started"] if last["result"] == "interrupted" else last["ended"] or last["started"]
    return run.host if now - run.age - note.at_most(shared.clock()) > since else None
