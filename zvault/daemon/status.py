"""The daemon's state as one document: what ``zvaultctl status`` shows and the metrics are made from."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import zvault
from zvault.core.lag import DatasetLag
from zvault.core.stalls import Stalls
from zvault.daemon.current import Current
from zvault.daemon.history import ASIDE, History
from zvault.daemon.lookout import Lookout
from zvault.daemon.proofs import proofs_document
from zvault.daemon.runs import Runs
from zvault.daemon.scheduler import Scheduler
from zvault.ops.context import Context
from zvault.ops.lag import age
from zvault.ops.tune import complaints

Document = dict[str, Any]


@dataclass
class Status:
    """Puts the state together. ``warnings`` are what the daemon itself complains of, by subject."""

    context: Context
    lookout: Lookout
    runs: Runs
    history: History
    scheduler: Scheduler
    started: float
    warnings: dict[str, str] = field(default_factory=dict)
    stalls: Stalls = field(default_factory=Stalls)

    async def document(self) -> Document:
        """Everything. Answers also while a pool hangs: what is asked of it has a deadline."""
        return {
            "daemon": {
                "version": zvault.__version__,
                "pid": os.getpid(),
                "started": self.started,
                "warnings": [
                    *self.warnings.values(),
                    *self.context.drifts.values(),
                    *self.stalls.warnings(self.context.clock.time()),
                    *complaints(self.context.leases),
                ],
            },
            "backups": [self.backup(name) for name in self.context.config.backup],
            "vaults": await self.lookout.documents(),
        }

    def backup(self, name: str) -> Document:
        """One backup, from what is in memory and in the history."""
        config = self.context.backup(name)
        run = self.runs.running(name)
        last = self.history.last(name)
        success = self.history.last(name, "ok")
        lag = self.lag(name)
        lags = self.runs.lags.get(name)
        return {
            "name": name,
            "source": str(config.source),
            "vault": config.vault,
            "into": config.into,
            "state": "idle" if run is None else "running" if run.waiting is None else "waiting",
            "lag_seconds": lag,
            "max_lag_seconds": config.max_lag,
            "late": self.late(name),
            "last_success": success["ended"] if success else None,
            "last_run": last["started"] if last else None,
            "last_result": last["result"] if last else None,
            "last_error": last["error"] if last else None,
            "next_run": self.scheduler.next_run(name),
            "run": run.id if run else None,
            "retry_at": run.waiting if run else None,
            "datasets": len(lags) if lags is not None else None,
            "proofs": proofs_document(
                config.verify, self.runs.proofs.get(name, {}), self.context.clock.time()
            ),
            "pending": sum(lag.pending for lag in lags.values()) if lags is not None else None,
            "bytes_done": run.bytes_done if run else 0,
            "bytes_total": run.bytes_total if run else None,
        }

    def lag(self, name: str) -> float | None:
        """A backup's lag now: its worst dataset's; None while any is unknown."""
        seconds = [age(lag, self.context.clock.time()) for lag in self.runs.lags.get(name, {}).values()]
        known = [value for value in seconds if value is not None]
        return max(known) if known and len(known) == len(seconds) else None

    def dataset_lags(self, name: str) -> dict[str, tuple[DatasetLag, float | None]]:
        """Each dataset's lag as last read, and its seconds now."""
        now = self.context.clock.time()
        return {dataset: (lag, age(lag, now)) for dataset, lag in self.runs.lags.get(name, {}).items()}

    def late(self, name: str) -> bool:
        """Whether the vault lies further behind than the user tolerates. Unknown is late: silence is no success."""
        limit = self.context.backup(name).max_lag
        if limit is None:
            return False
        lag = self.lag(name)
        return lag is None or lag > limit

    def line(self) -> str:
        """One line for ``systemctl status``."""
        running = [run for run in self.runs.current.values() if run.trigger not in ASIDE]
        if running:
            return "; ".join(_running(run) for run in running)
        late = [name for name in self.context.config.backup if self.late(name)]
        return f"late: {', '.join(late)}" if late else f"idle; backups: {len(self.context.config.backup)}"


def _running(run: Current) -> str:
    if run.waiting is not None:
        return f"{run.backup}: waiting to try again"
    if not run.streams:
        return f"{run.backup}: starting" if not run.bytes_done else f"{run.backup}: between streams"
    what = next(iter(run.streams)) if len(run.streams) == 1 else f"{len(run.streams)} datasets at once"
    return f"{run.backup}: {what}" + (
        f" {run.bytes_done * 100 // run.bytes_total}%" if run.bytes_total else ""
    )
