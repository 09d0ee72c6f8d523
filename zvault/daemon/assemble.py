"""Builds the parts of zvaultd from the bottom up: each is given those that it uses, and none is made later."""

from __future__ import annotations

from collections.abc import Callable

from zvault.api.events import PrunedEvent, RunEvent, TransferFinished, VaultHolds, VaultRead
from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.daemon import journald
from zvault.daemon.api.server import Api
from zvault.daemon.app import ZvaultDaemon
from zvault.daemon.backup_findings import BackupFindings
from zvault.daemon.backup_runs import BackupRuns
from zvault.daemon.event_publisher import EventPublisher
from zvault.daemon.history import RunHistory
from zvault.daemon.job_runner import JobRunner
from zvault.daemon.lag_readings import LagReadings
from zvault.daemon.metrics.scrape import MetricFigures
from zvault.daemon.monitors.config_monitor import ConfigMonitor
from zvault.daemon.monitors.disk_monitor import DiskMonitor
from zvault.daemon.monitors.scrub_heal_scheduler import ScrubHealScheduler
from zvault.daemon.monitors.sleep_monitor import SleepMonitor
from zvault.daemon.monitors.stall_monitor import StallMonitor
from zvault.daemon.monitors.state_monitor import StateMonitor
from zvault.daemon.monitors.vault_monitor import VaultMonitor
from zvault.daemon.monitors.verify_scheduler import VerifyScheduler
from zvault.daemon.notify.notifier import Notifier
from zvault.daemon.page.page_source import PageSource
from zvault.daemon.page.topics import PageTopic
from zvault.daemon.periodic_checks import PeriodicChecks
from zvault.daemon.pool_watch import PoolWatch
from zvault.daemon.reload import ConfigReload
from zvault.daemon.run_counters import RunCounters
from zvault.daemon.run_recorder import RunRecorder
from zvault.daemon.run_resumer import RunResumer
from zvault.daemon.scheduler import BackupScheduler, get_snapshot_times
from zvault.daemon.seen_vaults import SeenVaults
from zvault.daemon.status import DaemonStatus
from zvault.daemon.web.web_servers import WebServers
from zvault.ops.context import Context
from zvault.ops.state.environment import Environment, WallClock
from zvault.ops.vaults.vault import Vaults
from zvault.system.process.runner import HostRunner
from zvault.zfs.change_feed import ChangeFeed


def assemble_daemon(
    config: Config,
    paths: Paths,
    clock: WallClock | None = None,
    loop_lag: Callable[[], float] | None = None,
) -> ZvaultDaemon:
    """Build a zvaultd. What it waits for goes by ``clock``, and by the time of the event loop that it is served in.

    ``loop_lag`` tells how long that loop kept others waiting (system/loop_lag.py).
    """
    feed = ChangeFeed(paths.events_kept)
    context = Context.of(Environment.of(config, paths, HostRunner(), clock), feed)
    env, vaults = context.env, Vaults(context)

    # What runs, and what is kept of it. The history hears of an event before those who tell of it: they read it there.
    events, history = EventPublisher(), RunHistory(paths.history)
    events.subscribe(RunEvent, journald.log_event)
    events.subscribe(TransferFinished, history.note_sent)
    events.subscribe(PrunedEvent, history.note_pruned)
    runs = assemble_runs(context, vaults, history, events)
    scheduler = BackupScheduler(context, runs.start, runs.findings.last_run)
    snapshot_scheduler = BackupScheduler(
        context, runs.snapshot, runs.findings.last_snapshot, get_snapshot_times
    )
    scrub_heal_scheduler = ScrubHealScheduler(context, vaults, runs, scheduler)
    verify_scheduler = VerifyScheduler(context, vaults, runs)
    disk_monitor = DiskMonitor(vaults, scheduler)
    resumer = RunResumer(runs, snapshot_scheduler, scheduler)

    # What watches, and judges by that
    pool_watch = PoolWatch(context, runs.findings, feed)
    vault_monitor, seen_vaults = VaultMonitor(vaults, env.clock), SeenVaults(vaults)
    state_monitor, config_monitor = StateMonitor(paths.state, history), ConfigMonitor(env)
    sleep_monitor = SleepMonitor(context, vaults, runs.runner, resumer.wake_up)
    status = DaemonStatus(
        context,
        vault_monitor,
        runs,
        history,
        scheduler,
        env.clock.time(),
        state=state_monitor,
        config=config_monitor,
        pool_watch=pool_watch,
        snapshot_scheduler=snapshot_scheduler,
    )
    stall_monitor = StallMonitor(context, vaults, status.stalls)
    checks = PeriodicChecks(status, seen_vaults, vault_monitor, scrub_heal_scheduler, sleep_monitor)

    # What tells of it
    notifier = Notifier(status, seen_vaults.list_documents, seen_vaults.list_outdated)
    events.subscribe(RunEvent, notifier.hear)
    metrics = MetricFigures(status, seen_vaults, notifier, loop_lag)
    page = PageSource(status, events, seen_vaults.list_documents)
    events.subscribe(RunEvent, page.hear)
    serving = WebServers(
        context,
        status.warnings,
        {
            PageTopic.METRICS: metrics.text,
            PageTopic.OVERVIEW: page.overview,
            PageTopic.BACKUP: page.backup,
            PageTopic.RUN: page.run,
            PageTopic.DATASET: page.dataset,
            PageTopic.FILES: page.files,
        },
    )
    api = Api(status, runs, history, events, vaults, scrub_heal_scheduler, verify_scheduler, notifier)
    config_reload = ConfigReload(
        context, vaults, runs, (snapshot_scheduler, scheduler), config_monitor, status, metrics, serving
    )
    return ZvaultDaemon(
        paths=paths,
        context=context,
        events=events,
        history=history,
        vaults=vaults,
        runs=runs,
        scheduler=scheduler,
        snapshot_scheduler=snapshot_scheduler,
        scrub_heal_scheduler=scrub_heal_scheduler,
        verify_scheduler=verify_scheduler,
        disk_monitor=disk_monitor,
        resumer=resumer,
        pool_watch=pool_watch,
        vault_monitor=vault_monitor,
        seen_vaults=seen_vaults,
        state_monitor=state_monitor,
        config_monitor=config_monitor,
        config_reload=config_reload,
        sleep_monitor=sleep_monitor,
        stall_monitor=stall_monitor,
        status=status,
        checks=checks,
        notifier=notifier,
        metrics=metrics,
        page=page,
        serving=serving,
        api=api,
    )


def assemble_runs(
    context: Context, vaults: Vaults, history: RunHistory, events: EventPublisher
) -> BackupRuns:
    """Build what starts and runs jobs, and what keeps what they found."""
    counters = RunCounters(over_limit=history.held_back())
    readings = LagReadings(context)
    runner = JobRunner(context.env, events, RunRecorder(history, counters, readings))
    findings = BackupFindings(context, readings, runner, history)
    events.subscribe(RunEvent, counters.count)
    events.subscribe(PrunedEvent, readings.listings.note_pruned)
    events.subscribe(RunEvent, runner.note_event)
    context.activity.came_up.append(findings.doubt_vault)
    runs = BackupRuns(context, vaults, history, runner, findings, counters)
    events.subscribe(VaultRead, runs.restore_times.note_reading)
    events.subscribe(VaultHolds, runs.restore_times.note_held)
    return runs
