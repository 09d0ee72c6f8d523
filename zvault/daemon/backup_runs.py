"""Starts the jobs of backups, or says why one cannot start now: one run at a time, and what may run beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zvault.api.answers import StartedAnswer
from zvault.core.diagnosis.observations import ObservedRun
from zvault.core.errors import Busy
from zvault.daemon.backup_findings import BackupFindings
from zvault.daemon.history import RunHistory
from zvault.daemon.host_election import HostElection
from zvault.daemon.job_runner import JobRunner
from zvault.daemon.jobs.backup_job import BackupGate, BackupJob
from zvault.daemon.jobs.prune_job import PruneJob
from zvault.daemon.jobs.restore_job import RestoreFilesJob, RestoreJob
from zvault.daemon.jobs.snapshot_job import SnapshotJob
from zvault.daemon.restore_times import RestoreTimes
from zvault.daemon.run_counters import RunCounters
from zvault.ops.context import Context
from zvault.ops.vaults.past_vaults import PastVaults
from zvault.ops.vaults.vault import Vaults

if TYPE_CHECKING:
    from zvault.ops.restore.plan_restore import RestoreRequest
    from zvault.ops.restore.restore_files import FilesRequest
    from zvault.ops.retention.holds import BaseProtection


class BackupRuns:
    """Starts runs, one at a time a backup. The parts that it has are those that its jobs work with."""

    def __init__(
        self,
        context: Context,
        vaults: Vaults,
        history: RunHistory,
        runner: JobRunner,
        findings: BackupFindings,
        counters: RunCounters,
    ) -> None:
        self.context = context
        self.vaults = vaults
        self.history = history
        self.runner = runner
        self.findings = findings
        self.counters = counters
        self.readings = findings.readings
        self.lags, self.proofs, self.made = self.readings.lags, self.readings.proofs, self.readings.made
        self.snapshot_troubles = findings.snapshot_troubles
        self.past = PastVaults(context, vaults)
        self.turns = HostElection(context, vaults)
        self.gate = BackupGate()
        self.restore_times = RestoreTimes(context.env, history)
        context.env.heed_renames(counters.move_findings)

    def start(self, backup: str, trigger: str, *, snapshot: bool = True) -> str:
        """Start a run and return its id. Raises NotFound, Busy while one runs, Refused while stopping.

        One that only waits to try again gives way: the new one does all that it would have done. Without
        ``snapshot`` it sends the snapshots that are there and makes none.
        """
        self.context.env.backup(backup)
        job = BackupJob(
            self.context,
            self.vaults,
            self.runner,
            self.history,
            self.findings,
            self.turns,
            self.gate,
            backup,
            trigger,
            snapshot,
        )
        running = self.runner.running(backup)
        if running is None:
            return self.runner.start(job)
        if running.turn is not None and trigger != "hand":
            return running.id  # what is due is what it waits to do
        if running.waiting is not None:
            return self.runner.supersede(running, job)
        running.missed = trigger if trigger != "hand" else running.missed
        raise Busy(
            f"backup '{backup}' is already running",
            f"run {running.id} began it",
            f"'zvaultctl follow {backup}' shows it to its end",
        )

    def start_all(self, name: str, *, snapshot: bool = True) -> StartedAnswer:
        """Start a run by hand into each vault of a backup: they begin together, so they send the same snapshot.

        Of those of which one is under way none is started. Raises NotFound, Refused; Busy where that are all.
        """
        started: dict[str, str] = {}
        busy: dict[str, Busy] = {}
        for backup in self.context.env.list_backups_of(name):
            try:
                started[backup.name] = self.start(backup.name, "hand", snapshot=snapshot)
            except Busy as error:
                busy[backup.name] = error
        if not started:
            raise next(iter(busy.values()))
        told = {backup: error.as_dict() for backup, error in busy.items()}
        return {"run": next(iter(started.values())), "runs": started, "busy": told}

    def refusal(self, backup: str) -> str | None:
        """Why no run of a backup could start now, in words; None where one could."""
        if self.runner.closed is not None:
            return self.runner.closed
        running = self.runner.running(backup)
        if running is None or running.waiting is not None:
            return None
        return f"run {running.id} of it is under way: what is told here moves with it"

    def prune(self, backup: str, *, over_limit: bool) -> str:
        """Start to prune a backup and return the run's id. Raises NotFound, Busy, Refused as ``start`` does."""
        self.context.env.backup(backup)
        busy = self.runner.running(backup) or self.runner.find_run(backup, "prune")
        if busy is not None:
            raise Busy(
                f"backup '{backup}' is already running",
                f"run {busy.id} began it",
                "wait for it to end; a run prunes too",
            )
        return self.runner.start(PruneJob(self.context, self.vaults, backup, over_limit))

    def snapshot(self, backup: str, _trigger: str = "") -> str:
        """Start to make a backup's snapshot at its own time, whatever runs; the id of what makes it, or makes one yet.

        Raises NotFound, Refused while nothing may start. On time, or to catch up: it is told as the same.
        """
        self.context.env.backup(backup)
        if (making := self.runner.find_run(backup, "snapshot")) is not None:
            return making.id
        return self.runner.start(SnapshotJob(self.context, self.runner, self.findings, self.turns, backup))

    def restore(self, request: RestoreRequest) -> str:
        """Start a restore and return its id, to be followed like a run."""
        vault = self.context.env.backup(request.backup).its_vault
        return self.runner.start(RestoreJob(self.past, vault, request))

    def restore_files(self, wanted: FilesRequest) -> str:
        """Start to copy files out of a snapshot, and return the run's id."""
        vault = self.context.env.backup(wanted.request.backup).its_vault
        return self.runner.start(RestoreFilesJob(self.past, vault, wanted))

    async def reap(self, vault_guid: int | None) -> list[BaseProtection]:
        """Release orphaned holds and bookmarks. Raises Busy while anything runs: it may be about to need them."""
        from zvault.ops.retention.holds import release_orphans

        busy = {run.backup for run in self.runner.current.values() if run.trigger != "scrub"}
        if busy or self.gate.reaping.locked():
            names = ", ".join(sorted(busy)) or "another reaping"
            raise Busy("holds cannot be reaped now", f"{names} is running", "wait for it to end")
        async with self.gate.reaping:
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
