"""The daemon's state as one document: what ``zvaultctl status`` shows and the metrics are made from."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime

import zvault
from zvault.api.status import BackupDocument, StatusDocument
from zvault.config.schema import Backup
from zvault.core.diagnosis.stalls import Stalls
from zvault.core.policy.missed import missed_times, overdue
from zvault.core.replication.lag import DatasetLag
from zvault.daemon.active_run import ActiveRun
from zvault.daemon.history import ASIDE, History
from zvault.daemon.monitors.proof_report import proofs_document
from zvault.daemon.monitors.state_monitor import StateMonitor
from zvault.daemon.monitors.vault_monitor import VaultMonitor
from zvault.daemon.runs import Runs
from zvault.daemon.scheduler import Scheduler
from zvault.ops.context import Context
from zvault.ops.replication.lag import age, pending
from zvault.ops.tuning.parameters import complaints


@dataclass
class Status:
    """Puts the state together. ``warnings`` are what the daemon itself complains of, by subject."""

    context: Context
    vault_monitor: VaultMonitor
    runs: Runs
    history: History
    scheduler: Scheduler
    started: float
    warnings: dict[str, str] = field(default_factory=dict)
    stalls: Stalls = field(default_factory=Stalls)
    state: StateMonitor | None = None

    async def document(self) -> StatusDocument:
        """Everything. Answers also while a pool hangs: what is asked of it has a deadline."""
        return {
            "daemon": {
                "version": zvault.__version__,
                "pid": os.getpid(),
                "started": self.started,
                "warnings": [
                    *self.warnings.values(),
                    *([self.unwritable] if self.unwritable is not None else []),
                    *self.context.activity.writes.drifts.values(),
                    *self.stalls.warnings(self.context.env.clock.time()),
                    *complaints(self.context.records.leases),
                ],
            },
            "backups": [self.backup(backup) for backup in self.context.env.config.backup.values()],
            "vaults": await self.vault_monitor.documents(),
        }

    def backup(self, backup: Backup) -> BackupDocument:
        """One backup, from what is in memory and in the history: of the source and the vault that it has now."""
        name = backup.name
        run = self.runs.running(name)
        failed = run.failed if run is not None and run.waiting is not None else None
        way = self.context.env.way(backup)
        last = self.history.last(name, way=way)
        success = self.history.last(name, "ok", way=way)
        lag = self.lag(name)
        lags = self.runs.lags.get(name)
        return {
            "name": name,
            "source": str(backup.source),
            "vault": backup.vault,
            "into": backup.into,
            "state": "idle" if run is None else "running" if run.waiting is None else "waiting",
            "lag_seconds": lag,
            "max_lag_seconds": backup.max_lag,
            "late": self.late(backup),
            "last_success": success["ended"] if success else None,
            "last_run": last["started"] if last else None,
            "last_result": last["result"] if last else None,
            "last_error": last["error"] if last else None,
            "next_run": self.scheduler.next_run(name),
            "run": run.id if run else None,
            "retry_at": run.waiting if run else None,
            "retry_since": failed["time"] if failed else None,
            "retry_error": failed["error"] if failed else None,
            "datasets": len(lags) if lags is not None else None,
            "proofs": proofs_document(
                backup.verify, self.runs.proofs.get(name), self.context.env.clock.time()
            ),
            "pending": pending(lags.values()) if lags is not None else None,
            "held_back": self._held_back(name),
            "bytes_done": run.bytes_done if run else 0,
            "bytes_total": run.bytes_total if run else None,
        }

    def _held_back(self, name: str) -> int | None:
        """Of how many datasets, on either side, prune_limit held something back; None before it was first pruned."""
        counts = [count for (backup, _), count in self.runs.counters.over_limit.items() if backup == name]
        return sum(counts) if counts else None

    @property
    def unwritable(self) -> str | None:
        """Why what is kept cannot be written, and what to do; None where it can, as far as anybody looked."""
        return self.state.trouble if self.state is not None else None

    def lag(self, name: str) -> float | None:
        """A backup's lag now: its worst dataset's; None while any is unknown."""
        seconds = [age(lag, self.context.env.clock.time()) for lag in self.runs.lags.get(name, {}).values()]
        known = [value for value in seconds if value is not None]
        return max(known) if known and len(known) == len(seconds) else None

    def dataset_lags(self, name: str) -> dict[str, tuple[DatasetLag, float | None]]:
        """Each dataset's lag as last read, and its seconds now."""
        now = self.context.env.clock.time()
        return {dataset: (lag, age(lag, now)) for dataset, lag in self.runs.lags.get(name, {}).items()}

    def late(self, backup: Backup) -> bool:
        """Whether the vault lies further behind than the user tolerates. Unknown is late: silence is no success.

        Where no lag is said to be too much, two of its times without a new backup are.
        """
        lag = self.lag(backup.name)
        if backup.max_lag is None:
            return self._overdue(backup, lag)
        return lag is None or lag > backup.max_lag

    def _overdue(self, backup: Backup, lag: float | None) -> bool:
        schedule, env = backup.every or backup.schedule, self.context.env
        if schedule is None:
            return False
        success = self.history.last(backup.name, "ok", way=env.way(backup))
        last = env.clock.time() - lag if lag is not None else success["started"] if success else None
        since = datetime.fromtimestamp(self.started if last is None else last, UTC)
        run = self.runs.running(backup.name)
        missed = missed_times(schedule, since, env.clock.now(), env.zone)
        return overdue(missed, at_work=run is not None and run.waiting is None, began=last is not None)

    def line(self) -> str:
        """One line for ``systemctl status``."""
        running = [run for run in self.runs.current.values() if run.trigger not in ASIDE]
        if running:
            return "; ".join(_running(run) for run in running)
        late = [name for name, backup in self.context.env.config.backup.items() if self.late(backup)]
        return f"late: {', '.join(late)}" if late else f"idle; backups: {len(self.context.env.config.backup)}"


def _running(run: ActiveRun) -> str:
    if run.waiting is not None:
        return f"{run.backup}: waiting to try again"
    if not run.streams:
        return f"{run.backup}: starting" if not run.bytes_done else f"{run.backup}: between streams"
    what = next(iter(run.streams)) if len(run.streams) == 1 else f"{len(run.streams)} datasets at once"
    return f"{run.backup}: {what}" + (
        f" {run.bytes_done * 100 // run.bytes_total}%" if run.bytes_total else ""
    )
