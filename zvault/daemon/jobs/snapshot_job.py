"""A backup's snapshot at its own time, as a job."""

from __future__ import annotations

from dataclasses import dataclass, field

from zvault.api.events import Emit, MessageEvent
from zvault.daemon.active_run import ActiveRun
from zvault.daemon.backup_findings import BackupFindings
from zvault.daemon.host_election import HostElection
from zvault.daemon.job_runner import JobRunner
from zvault.ops.context import Context
from zvault.ops.run_outcome import RunOutcome
from zvault.ops.snapshot_run import SnapshotRun


@dataclass
class SnapshotJob:
    """Makes one snapshot of the backup ``subject``, unless another host that shares its vault has made one."""

    context: Context
    runner: JobRunner
    findings: BackupFindings
    turns: HostElection
    subject: str
    outcome: RunOutcome = field(default_factory=RunOutcome, init=False)
    trigger: str = field(default="snapshot", init=False)
    aside: bool = field(default=True, init=False)

    async def execute(self, run: ActiveRun, emit: Emit) -> None:
        """Make it, and keep what was wrong with it."""
        made = await self.turns.snapshot_made(self.subject, self.findings.last_snapshot)
        if made is not None:
            self.outcome.result = "skipped"
            emit(MessageEvent(text=f"skipped: {made}"))
            return
        troubles = self.findings.snapshot_troubles
        way = troubles.way(self.subject)
        it = SnapshotRun(self.context, self.subject, emit, self.outcome, run.id, self.may_prune)
        await it.execute()
        if it.source_pruned:
            run.over_limit.setdefault("source", 0)
        error = self.outcome.error
        troubles.put(self.context.env.current_name(self.subject), error.as_dict() if error else None, way)

    def may_prune(self) -> bool:
        """True while nothing else is at work on the backup that prunes by itself."""
        name = self.context.env.current_name(self.subject)
        running = self.runner.running(name) or self.runner.find_run(name, "prune")
        return running is None or running.waiting is not None
