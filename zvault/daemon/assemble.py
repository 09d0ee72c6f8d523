"""Builds the parts of zvaultd from the bottom up: each is given those that it uses, and none is made later."""

from __future__ import annotations

from zvault.daemon.backup_findings import BackupFindings
from zvault.daemon.backup_runs import BackupRuns
from zvault.daemon.event_publisher import EventPublisher
from zvault.daemon.history import RunHistory
from zvault.daemon.job_runner import JobRunner
from zvault.daemon.lag_readings import LagReadings
from zvault.daemon.run_counters import RunCounters
from zvault.daemon.run_recorder import RunRecorder
from zvault.ops.context import Context
from zvault.ops.vaults.vault import Vaults


def assemble_runs(
    context: Context, vaults: Vaults, history: RunHistory, events: EventPublisher
) -> BackupRuns:
    """Build what starts and runs jobs, and what keeps what they found."""
    counters = RunCounters(over_limit=history.held_back())
    readings = LagReadings(context)
    runner = JobRunner(context.env, events, RunRecorder(history, counters, readings))
    findings = BackupFindings(context, readings, runner, history)
    events.subscribe(counters.count)
    events.subscribe(readings.listings.hear)
    events.subscribe(runner.note_event)
    context.activity.came_up.append(findings.doubt_vault)
    return BackupRuns(context, vaults, history, runner, findings, counters)
