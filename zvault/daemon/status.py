"""The daemon's state as one document: what ``zvaultctl status`` shows and the metrics are made from."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import zvault
from zvault.api.status import BackupDocument, StatusDocument, TurnDocument
from zvault.api.vaults import JudgedVault, VaultDocument
from zvault.config.schema import Backup
from zvault.core.diagnosis.stalls import StallLog
from zvault.core.health.backup import is_late
from zvault.core.health.daemon import DAEMON_SUBJECT, DaemonFacts, judge_daemon
from zvault.core.health.verdict import HealthVerdict, SubjectKind
from zvault.core.replication.lag import DatasetLag
from zvault.daemon.active_run import ActiveRun
from zvault.daemon.backup_runs import BackupRuns
from zvault.daemon.health.facts import find_worst_age, find_worst_lag, make_backup_facts
from zvault.daemon.health.health_judge import HealthJudge
from zvault.daemon.history import RunHistory
from zvault.daemon.monitors.config_monitor import ConfigMonitor
from zvault.daemon.monitors.proof_report import make_proofs_document
from zvault.daemon.monitors.state_monitor import StateMonitor
from zvault.daemon.monitors.vault_monitor import VaultMonitor
from zvault.daemon.pool_watch import PoolWatch
from zvault.daemon.restore_times import make_restore_time
from zvault.daemon.scheduler import BackupScheduler
from zvault.ops.context import Context
from zvault.ops.replication.lag import count_pending
from zvault.ops.stream.parallel import describe_wait
from zvault.ops.tuning.set_parameters import list_tuning_complaints
from zvault.ops.vault_facts import make_health_document, make_judged_vault

EVENTS_PATIENCE = 1.0
"""Seconds to wait for the events of the pools, which are read without a lock of a pool's; and for what is read then."""

LAG = "lag "
"""Begins the key of the warning that a backup's lag is not known."""


@dataclass
class DaemonStatus:
    """Puts the state together. ``warnings`` are what the daemon itself complains of, by subject.

    All that says how something is takes it from the verdicts here: status, exit codes, metrics, journal.
    """

    context: Context
    vault_monitor: VaultMonitor
    runs: BackupRuns
    history: RunHistory
    scheduler: BackupScheduler
    started: float
    warnings: dict[str, str] = field(default_factory=dict)
    stalls: StallLog = field(default_factory=StallLog)
    state: StateMonitor | None = None
    config: ConfigMonitor | None = None
    pool_watch: PoolWatch | None = None
    snapshot_scheduler: BackupScheduler | None = None

    def __post_init__(self) -> None:
        """It remembers since when something is unknown."""
        self.judge = HealthJudge(self.context)
        self._newest: dict[tuple[SubjectKind, str], HealthVerdict] = {}
        self._catching_up: asyncio.Future[None] | None = None

    async def document(self) -> StatusDocument:
        """Everything. Answers also while a pool hangs: what is asked of it has a deadline."""
        if self.pool_watch is not None:
            await self._catch_up(self.pool_watch)
        return self.document_of(await self.vault_monitor.documents())

    async def _catch_up(self, watch: PoolWatch) -> None:
        """Tell nothing as it was before a change that was made by now: wait a moment for what is being read."""
        if self._catching_up is None or self._catching_up.done():
            self._catching_up = asyncio.ensure_future(watch.look())
        # Never cancelled: a question to the helper that is given up loses events, and all would have to be listed.
        await asyncio.wait({self._catching_up}, timeout=EVENTS_PATIENCE)
        readings = self.runs.readings
        if any(map(readings.being_read, self.context.env.config.backup)):
            with suppress(TimeoutError):
                await asyncio.wait_for(readings.settled.wait(), EVENTS_PATIENCE)

    def document_of(self, vaults: Sequence[VaultDocument]) -> StatusDocument:
        """Everything, with vaults as they were seen before: nothing is waited for."""
        return {
            "daemon": {
                "version": zvault.__version__,
                "pid": os.getpid(),
                "started": self.started,
                "warnings": [
                    *self.warnings.values(),
                    *([self.unwritable] if self.unwritable is not None else []),
                    *self.context.activity.writes.drifts.values(),
                    *(text for texts in self._stalls().values() for text in texts),
                    *list_tuning_complaints(self.context.records.undo),
                ],
                "verdict": make_health_document(self.daemon_verdict()),
            },
            "backups": [self.backup(backup) for backup in self.context.env.config.backup.values()],
            "vaults": self.judged(vaults),
        }

    def judged(self, vaults: Sequence[VaultDocument]) -> list[JudgedVault]:
        """Vaults with their verdicts."""
        return [make_judged_vault(self.context, vault, self.vault_verdict(vault)) for vault in vaults]

    def verdicts(self, vaults: Sequence[VaultDocument]) -> dict[tuple[SubjectKind, str], HealthVerdict]:
        """All verdicts, by kind and name; those on the vaults by documents that were made before.

        ``line`` goes by those that were made last.
        """
        found: dict[tuple[SubjectKind, str], HealthVerdict] = {
            ("daemon", DAEMON_SUBJECT): self.daemon_verdict()
        }
        config = self.context.env.config
        for name, backup in config.backup.items():
            found["backup", name] = self.backup_verdict(backup)
        for vault in vaults:
            if vault["name"] in config.vault:
                found["vault", vault["name"]] = self.vault_verdict(vault)
        self._newest = found
        return found

    def vault_verdict(self, vault: VaultDocument) -> HealthVerdict:
        """Judge a vault by its document and what is remembered of it."""
        return self.judge.vault(vault, self._stalls())

    def backup_verdict(self, backup: Backup) -> HealthVerdict:
        """Judge a backup by what is in memory and in the history."""
        facts = make_backup_facts(
            self.context,
            self.runs,
            self.history,
            backup,
            started=self.started,
            next_run=self.scheduler.next_run(backup.name),
            not_read=self.warnings.get(f"{LAG}{backup.name}", ""),
        )
        return self.judge.backup(facts, self.context.env.way(backup))

    def daemon_verdict(self) -> HealthVerdict:
        """Judge the daemon and its host. What it complains of backups and vaults is in their verdicts."""
        state = self.state if self.state is not None and self.state.looked else None
        return judge_daemon(
            DaemonFacts(
                warnings={key: text for key, text in self.warnings.items() if not key.startswith(LAG)},
                config_differs=self.config.differs if self.config is not None else None,
                unwritable=(state.trouble or "") if state is not None else None,
                space=state.space if state is not None else None,
                clock_behind=self.scheduler.behind(),
                stalls=self._stalls().get("", ()),
                tuning=tuple(list_tuning_complaints(self.context.records.undo)),
                crashes=tuple(self.stalls.crashes),
            )
        )

    def _stalls(self) -> dict[str, tuple[str, ...]]:
        """The stalls that are not over, by vault; under "" those of which nobody knows whose they are."""
        found: dict[str, tuple[str, ...]] = {}
        for vault, text in self.stalls.warnings(self.context.env.clock.time()):
            found[vault] = (*found.get(vault, ()), text)
        return found

    def backup(self, backup: Backup, verdict: HealthVerdict | None = None) -> BackupDocument:
        """One backup, from what is in memory and in the history: of the source and the vault that it has now.

        ``verdict`` is that on it, where it was just made: making it takes longer than all else.
        """
        name = backup.name
        run = self.runs.runner.running(name)
        # One that waits for its turn has not failed.
        retry_at = run.waiting if run is not None and run.turn is None else None
        failed = run.failed if run is not None and retry_at is not None else None
        way = self.context.env.way(backup)
        last = self.history.last(name, way=way)
        success = self.history.last(name, "ok", way=way)
        if self.history.made_since(name, way=way) is not None:
            last = success  # what failed here since counts no more
        lag = self.lag(name)
        lags = self.runs.lags.get(name)
        verdict = verdict or self.backup_verdict(backup)
        restore = self.runs.restore_times.estimate_whole(backup)
        return {
            "name": name,
            "source": str(backup.source),
            "vault": backup.vault,
            "into": backup.into if backup.vault is not None else None,
            "makes_snapshots": backup.snapshot.make,
            "snapshot_age_seconds": self.snapshot_age(name),
            "state": "idle" if run is None else "running" if run.waiting is None else "waiting",
            "lag_seconds": lag,
            "max_lag_seconds": backup.max_lag,
            "late": is_late(verdict),
            "restore": make_restore_time(restore) if restore is not None else None,
            "max_restore_seconds": backup.max_restore,
            "last_success": success["ended"] if success else None,
            "last_run": last["started"] if last else None,
            "last_result": last["result"] if last else None,
            "last_error": last["error"] if last else None,
            "scheduled": backup.scheduled,
            "next_run": self.scheduler.next_run(name),
            "next_snapshot": self._next_snapshot((backup.siblings or (name,))[0]),
            "run": run.id if run else None,
            "waits_for": describe_wait(self.context.activity.slots, self.context.clients.damage_names, name),
            "retry_at": retry_at,
            "retry_since": failed.time if failed else None,
            "retry_error": failed.error if failed else None,
            "datasets": len(lags) if lags is not None else len(self.runs.made.get(name, {})) or None,
            "proofs": make_proofs_document(
                backup.verify, self.runs.proofs.get(name), self.context.env.clock.time()
            ),
            "pending": count_pending(lags.values()) if lags is not None else None,
            "held_back": self._held_back(name),
            "bytes_done": run.bytes_done if run else 0,
            "bytes_total": run.bytes_total if run else None,
            "turn": self._turn(name),
            "verdict": make_health_document(verdict),
        }

    def _turn(self, name: str) -> TurnDocument | None:
        turns, run = self.runs.turns, self.runs.runner.running(name)
        if turns.of(name) is None:
            return None
        claim = turns.claim(name)
        return {
            "waits": run.turn if run is not None else None,
            "claimed_by": claim.host if claim is not None else None,
            "claimed_lag": turns.claimed_lag(name),
            "own_lag": self._own_lag(name),
            "skipped": self.runs.counters.runs[name, "skipped"],
        }

    def _next_snapshot(self, name: str) -> float | None:
        times = self.snapshot_scheduler
        return times.next_run(name) if times is not None else None

    def _held_back(self, name: str) -> int | None:
        """Of how many datasets, on either side, prune_limit held something back; None before it was first pruned."""
        counts = [count for (backup, _), count in self.runs.counters.over_limit.items() if backup == name]
        return sum(counts) if counts else None

    @property
    def unwritable(self) -> str | None:
        """Why what is kept cannot be written, and what to do; None where it can, as far as anybody looked."""
        return self.state.trouble if self.state is not None else None

    def lag(self, name: str) -> float | None:
        """A backup's lag now: its worst dataset's; None while any is unknown.

        Where hosts share the vault, at most what follows from the last run that another says it has done.
        """
        return self.runs.turns.lag(name, self._own_lag(name))

    def _own_lag(self, name: str) -> float | None:
        return find_worst_lag(self.runs.lags.get(name, {}), self.context.env.clock.time())

    def snapshot_age(self, name: str) -> float | None:
        """Return how old the newest snapshot is where it is the oldest, of a backup that makes snapshots only; None
        if unknown.
        """
        return find_worst_age(self.runs.made.get(name, {}), self.context.env.clock.time())

    def dataset_lags(self, name: str) -> dict[str, tuple[DatasetLag, float | None]]:
        """Each dataset's lag as last read, and its seconds now."""
        now = self.context.env.clock.time()
        return {dataset: (lag, lag.age(now)) for dataset, lag in self.runs.lags.get(name, {}).items()}

    def line(self) -> str:
        """One line for ``systemctl status``. What is late, it knows from the newest look at all verdicts."""
        running = [run for run in self.runs.runner.current.values() if not run.aside]
        if running:
            return "; ".join(_running(run) for run in running)
        backups = self.context.env.config.backup
        behind = [
            name
            for name, backup in backups.items()
            if is_late(self._newest.get(("backup", name)) or self.backup_verdict(backup))
        ]
        return f"late: {', '.join(behind)}" if behind else f"idle; backups: {len(backups)}"


def _running(run: ActiveRun) -> str:
    if run.waiting is not None:
        return f"{run.backup}: waiting {'to try again' if run.turn is None else 'for its turn'}"
    if not run.streams:
        return f"{run.backup}: starting" if not run.bytes_done else f"{run.backup}: between streams"
    what = next(iter(run.streams)) if len(run.streams) == 1 else f"{len(run.streams)} datasets at once"
    return f"{run.backup}: {what}" + (
        f" {run.bytes_done * 100 // run.bytes_total}%" if run.bytes_total else ""
    )
