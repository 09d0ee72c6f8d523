"""A backup as a job: it waits until nothing stands in its way, and for this host's turn; then it runs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from zvault.api.events import Emit
from zvault.daemon.active_run import ActiveRun
from zvault.daemon.backup_findings import BackupFindings
from zvault.daemon.history import RunHistory
from zvault.daemon.host_election import HostElection, find_other_hosts_run
from zvault.daemon.job_runner import JobRunner
from zvault.ops.context import Context
from zvault.ops.replication.listing import BothListings
from zvault.ops.run import BackupRun
from zvault.ops.run_outcome import RunOutcome
from zvault.ops.vaults.run_permission import RunPermission
from zvault.ops.vaults.shared_vault import SharedVault
from zvault.ops.vaults.vault import Vaults

SHARED_MOMENT = 60.0
"""Seconds before a run that was due within which another vault's run of the same backup made the snapshot that it
takes, in place of one of its own. A run by hand takes none from before it was asked for."""


class BackupGate:
    """What a backup waits for before it begins: it is not refused for that."""

    def __init__(self) -> None:
        self.held: dict[str, asyncio.Event] = {}
        """Backups whose runs wait until what an earlier zvaultd left of them is done."""
        self.reaping = asyncio.Lock()
        """Whoever releases orphaned holds has it: a run may be about to need them."""

    async def wait_held(self, backup: str) -> None:
        """Wait until what an earlier zvaultd left of a backup is done."""
        if (held := self.held.get(backup)) is not None:
            await held.wait()

    async def wait_reaped(self) -> None:
        """Wait while holds are released."""
        async with self.reaping:
            pass


@dataclass
class BackupJob:
    """Makes one run of the backup ``subject``. Without ``snapshot`` it makes none and sends those that are there."""

    context: Context
    vaults: Vaults
    runner: JobRunner
    history: RunHistory
    findings: BackupFindings
    turns: HostElection
    gate: BackupGate
    subject: str
    trigger: str
    snapshot: bool = True
    outcome: RunOutcome = field(default_factory=RunOutcome, init=False)
    aside: bool = field(default=False, init=False)
    _run: ActiveRun = field(init=False)
    _emit: Emit = field(init=False)
    _way: str | None = field(default=None, init=False)
    """The way that the backup went as it began to be run (Environment.way)."""

    def __post_init__(self) -> None:
        """What another vault's run snapshots from now on, while this one waits for its own, is new enough."""
        before = 0.0 if self.trigger == "hand" else SHARED_MOMENT
        self._since = self.context.env.clock.monotonic() - before

    @property
    def _name(self) -> str:
        """The backup's name in the configuration in force: it may have got another one at a reload."""
        return self.context.env.current_name(self.subject)

    async def execute(self, run: ActiveRun, emit: Emit) -> None:
        """Back up, in this host's turn where hosts share the vault."""
        self._run, self._emit = run, emit
        await self._wait_for_others()
        shared = self.turns.of(self.subject)
        if shared is None:
            it = self._prepare_run()
            await it.execute()
            await self.findings.keep_found(self._name, self._way, it)
            return
        await self.turns.run(shared, run, self.outcome, emit, self.pause, self.back_up_in_turn)
        if self.outcome.result == "skipped":
            self._note_who_made_it(shared)

    async def back_up_in_turn(self, turn: RunPermission) -> None:
        """Make the run while this host has the vault, and keep what it found."""
        it = self._prepare_run(turn)
        await it.execute()
        await self.findings.keep_found(self._name, self._way, it)

    def _prepare_run(self, turn: RunPermission | None = None) -> BackupRun:
        self._way = self.findings.readings.lags.way(self._name)
        it = BackupRun(
            self.context,
            self.vaults,
            self.subject,
            self._emit,
            self.outcome,
            id=self._run.id,
            pause=self.pause,
            snapshot=self.snapshot,
            turn=turn,
            since=self._since,
        )
        it.tell_looked = self.note_looked
        return it

    async def pause(self, seconds: float) -> bool:
        """Wait to try again; False where a new run takes over: one that was asked for, or was due earlier."""
        run, runner = self._run, self.runner
        if run.missed is not None and runner.closed is None:
            runner.supersede(run, replace(self, subject=self._name, trigger=run.missed, snapshot=True))
        return await runner.pause(run, seconds)

    async def note_looked(self, sides: BothListings) -> None:
        """The run has looked at both sides, and sends next: what was doubted until then is known."""
        await self.findings.note_looked(self._name, self._way, sides)

    async def _wait_for_others(self) -> None:
        await self.gate.wait_held(self._name)
        if (pruning := self.runner.find_run(self._name, "prune")) is not None:
            # Not refused: a backup that is due must not fall out because somebody prunes.
            await asyncio.wait({pruning.task})
        await self.runner.wait_superseded(self._name)
        await self.gate.wait_reaped()

    def _note_who_made_it(self, shared: SharedVault) -> None:
        """Write down that another host has made the run, where that is why it was skipped."""
        last, now = self.history.last(self._name), self.context.env.clock.time()
        if (made_by := find_other_hosts_run(shared, self.subject, last, now)) is not None:
            self.history.skip(self._run.id, made_by)
