"""zvaultd: start, reconcile, serve until told to stop, drain."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import math
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import zvault
from zvault.api.events import Emit, RunEvent
from zvault.config.paths import Paths
from zvault.core.errors import ZvaultError
from zvault.core.zfs_version import warn_if_untested
from zvault.daemon import journald
from zvault.daemon.api.server import Api
from zvault.daemon.backup_runs import BackupRuns
from zvault.daemon.event_publisher import EventPublisher, make_emit
from zvault.daemon.history import RunHistory
from zvault.daemon.job_runner import make_unexpected_error
from zvault.daemon.journald import log
from zvault.daemon.metrics.scrape import MetricFigures
from zvault.daemon.monitors.config_monitor import CONFIG_INTERVAL, ConfigMonitor
from zvault.daemon.monitors.disk_monitor import DISK_INTERVAL, DiskMonitor
from zvault.daemon.monitors.scrub_heal_scheduler import ScrubHealScheduler
from zvault.daemon.monitors.sleep_monitor import SleepMonitor
from zvault.daemon.monitors.stall_monitor import EVENTS_RETRY_PAUSE, StallMonitor
from zvault.daemon.monitors.state_monitor import STATE_INTERVAL, StateMonitor
from zvault.daemon.monitors.vault_monitor import VAULT_INTERVAL, VaultMonitor
from zvault.daemon.monitors.verify_scheduler import VERIFY_INTERVAL, VerifyScheduler
from zvault.daemon.notify.notifier import Notifier
from zvault.daemon.page.page_source import PageSource
from zvault.daemon.periodic_checks import PeriodicChecks
from zvault.daemon.pool_watch import FEED_INTERVAL, PoolWatch
from zvault.daemon.reload import ConfigReload
from zvault.daemon.renamed_backups import carry_over_names, find_hooks_backup
from zvault.daemon.run_resumer import RunResumer
from zvault.daemon.scheduler import PROMPT, BackupScheduler
from zvault.daemon.seen_vaults import SeenVaults
from zvault.daemon.shutdown import close_readings, end_runs, order_stop, release_vaults
from zvault.daemon.status import DaemonStatus
from zvault.daemon.web.web_servers import WebServers
from zvault.ops import hooks
from zvault.ops.context import Context
from zvault.ops.restore import snapshot_reader
from zvault.ops.tuning.set_parameters import reconcile_tuning
from zvault.ops.vaults.vault import ManagedVault, Vaults
from zvault.system import sd_notify
from zvault.zfs.pool.module_parameters import read_loaded_version

OBSERVE_EVERY = 15.0
"""Seconds between looks at lags for the metrics."""

STATUS_LINE_INTERVAL = 2.0

READINGS_EVERY = 30.0
"""Seconds between looks at what stayed mounted or held: somebody read there, or the vault was down."""

LISTINGS_SAVE_INTERVAL = 120.0
"""Seconds between two times that what was listed is written down, where it changed."""

NOTIFY_PAUSE = 1.0
"""Seconds between looks at what is to be told, at least: what comes at the same time is told together."""

DRAIN_PATIENCE = 600.0
"""Seconds a drain may take: the export of a slow pool takes minutes. A shutdown of the host waits no longer."""

PATIENCE_STEP = 5.0

START_EXTENSION = 60.0
"""Seconds that systemd is asked to wait, again and again. A loop that stands still for longer is worth a restart."""

DRAIN_EXTENSION = 15.0
"""The same while stopping. What is left of it after the daemon's end goes to children that hang in the kernel."""

CUT_OFF = ZvaultError(
    "the last run did not end",
    "zvaultd was killed, or the host went down",
    "none; a backup runs again at once and resumes what was cut off",
)
"""What is told of a run that a crash ended."""


@dataclass(eq=False)
class ZvaultDaemon:
    """One zvaultd, of the parts that assemble.py builds: it starts, serves and drains."""

    paths: Paths
    context: Context
    events: EventPublisher
    history: RunHistory
    vaults: Vaults
    runs: BackupRuns
    scheduler: BackupScheduler
    snapshot_scheduler: BackupScheduler
    scrub_heal_scheduler: ScrubHealScheduler
    verify_scheduler: VerifyScheduler
    disk_monitor: DiskMonitor
    resumer: RunResumer
    pool_watch: PoolWatch
    vault_monitor: VaultMonitor
    seen_vaults: SeenVaults
    state_monitor: StateMonitor
    config_monitor: ConfigMonitor
    config_reload: ConfigReload
    sleep_monitor: SleepMonitor
    stall_monitor: StallMonitor
    status: DaemonStatus
    checks: PeriodicChecks
    notifier: Notifier
    metrics: MetricFigures
    page: PageSource
    serving: WebServers
    api: Api

    def __post_init__(self) -> None:
        """What is under way is this daemon's own."""
        self._stop, self._run_event, self._told_line = asyncio.Event(), asyncio.Event(), ""
        self._tasks: set[asyncio.Task[None]] = set()
        self.events.subscribe(RunEvent, self._hear)

    def _hear(self, _: RunEvent) -> None:
        """Have the line for systemd told anew while something happens."""
        self._run_event.set()

    async def serve(self) -> None:
        """Live from the first reconcile to the end of the drain."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload_soon)
        self._background(self._feed_watchdog())
        again_and_again = self.checks.again_and_again
        # A start that is killed begins anew, for ever. Each step has a deadline of its own: together they need none.
        async with _patience(math.inf, START_EXTENSION, self._stop):
            await order_stop(self.context)
            with _note_start(self.paths.starting):
                interrupted = await self.reconcile()
                self._background(again_and_again("state", self.state_monitor.look, STATE_INTERVAL))
                self._background(again_and_again("configuration", self.config_monitor.look, CONFIG_INTERVAL))
                await self.api.listen(self.paths.socket)
            await self.serving.look()
            await asyncio.gather(self.snapshot_scheduler.start(), self.scheduler.start())
        self.resumer.resume_runs(interrupted)
        self._background(again_and_again("vaults", self._look_at_vaults, VAULT_INTERVAL))
        self._background(again_and_again("disks", self.disk_monitor.look, DISK_INTERVAL))
        self._background(again_and_again("lags", self._look_at_lags, OBSERVE_EVERY))
        self._background(again_and_again("doubted lags", self.checks.at_doubted, 0.0))
        self._background(again_and_again("events", self.pool_watch.look, FEED_INTERVAL))
        self._background(again_and_again("proofs", self.verify_scheduler.look, VERIFY_INTERVAL))
        self._background(again_and_again("readings", self.checks.at_readings, READINGS_EVERY))
        self._background(again_and_again("listings", self._save_listings, LISTINGS_SAVE_INTERVAL))
        self._background(again_and_again("stalls", self.stall_monitor.watch, EVENTS_RETRY_PAUSE))
        self._background(again_and_again("notifications", self.notifier.look, NOTIFY_PAUSE))
        self._background(self._tell_status())
        self._background(self.sleep_monitor.watch())
        log.info("zvaultd %s is ready; backups: %d", zvault.__version__, len(self.context.env.config.backup))
        sd_notify.notify_ready(self.status.line())
        await self._stop.wait()
        async with _patience(DRAIN_PATIENCE, DRAIN_EXTENSION):
            await self._drain()

    async def reconcile(self) -> set[str]:
        """Compare what is with what should be: adopt or undo what an earlier daemon left.

        Returns the backups whose last run did not end.
        """
        carry_over_names(self.context.env, self.history)
        hooks.rename_pending_hooks(self.context.records.hooks, partial(find_hooks_backup, self.context.env))
        for name in self.history.interrupt_unfinished(self.context.env.clock.time(), CUT_OFF.as_dict()):
            log.warning("%s: %s", name, CUT_OFF, extra={"BACKUP": name})
        interrupted = {name for name in self.context.env.config.backup if self.history.cut_off(name)}
        await self._run_pending_hooks("snapshot")
        for text in await snapshot_reader.close_left_open(self.context, PROMPT):
            log.warning("%s", text)
        past = asyncio.create_task(self._sweep_past())
        self._tasks.add(past)
        past.add_done_callback(self._tasks.discard)
        await asyncio.wait({past}, timeout=PROMPT)
        # What a hook after a run takes away, the vault may stand on: then it goes down first.
        ended = hooks.list_cut_off_backups(self.context.records.hooks)
        needed = {self.context.env.backup(name).vault for name in interrupted - ended}
        adopting, later = set[asyncio.Task[None]](), set[str]()
        for vault in self.vaults.all():
            hooked = {name for name in ended if self._vault_of(name) == vault.name}
            later |= hooked
            self.runs.gate.held |= {name: asyncio.Event() for name in hooked}
            # One that hosts share may be another's by now: the run asks for its turn first, with nothing left here.
            needs = vault.name in needed and not vault.config.hosts
            task = self._background(self._adopt_and_run_hooks(vault, hooked, needed=needs))
            if not vault.config.hosts:
                adopting.add(task)
        # The import of a slow pool takes minutes, and a cache may be written back for hours before its vault is down.
        # Neither another vault waits for that nor systemd: only who uses this one, and hooks that may end its storage.
        if adopting:
            await asyncio.wait(adopting, timeout=PROMPT)
        await reconcile_tuning(self.context, log.info)
        await self._run_pending_hooks("run", lambda backup: backup not in later)
        _tell_version()
        return interrupted

    async def _sweep_past(self) -> None:
        """Take away what an earlier daemon had open as it was; that its pool hangs keeps nothing else waiting."""
        for text in await self.runs.past.sweep(log.info):
            log.warning("%s", text)

    def _vault_of(self, backup: str) -> str | None:
        found = self.context.env.config.backup.get(backup)
        return found.vault if found is not None else None

    async def _adopt_and_run_hooks(self, vault: ManagedVault, hooked: set[str], *, needed: bool) -> None:
        """Join or give up what was left of a vault, then run the hooks of its backups that are pending."""
        try:
            await self._adopt(vault, needed=needed)
            if hooked:
                await self._run_pending_hooks("run", hooked.__contains__)
        finally:
            for name in hooked:
                self.runs.gate.held.pop(name).set()

    async def _run_pending_hooks(
        self, scope: hooks.Scope, concerns: Callable[[str], bool] = lambda _: True
    ) -> None:
        """Run the hooks that a crash kept from running, of the backups that it ``concerns``."""

        def emitter(run: str, backup: str) -> Emit:
            return make_emit(journald.log_event, self.context.env.clock, run, lambda: backup)

        for error in await hooks.recover_hooks(
            self.context.records.hooks, emitter, scope, sd_notify.extend_start, concerns
        ):
            self.status.warnings[f"hooks {scope}"] = str(error)
            log.error("%s", error)

    async def _adopt(self, vault: ManagedVault, *, needed: bool) -> None:
        try:
            await vault.adopt(journald.make_vault_logger(vault.name), needed=needed)
        except Exception as error:
            # Whatever is wrong with one vault, a lease of it that nobody can read too: the others are served.
            told = error if isinstance(error, ZvaultError) else make_unexpected_error(error)
            vault.error = told
            log.error("vault %s: %s", vault.name, told, extra={"VAULT": vault.name})

    def _background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _feed_watchdog(self) -> None:
        """From the loop itself: when it hangs, systemd shall know."""
        interval = sd_notify.read_watchdog_interval()
        while interval is not None:
            sd_notify.feed_watchdog()
            await asyncio.sleep(interval)

    async def _tell_status(self) -> None:
        """While something runs; what is told at rest comes of the verdicts, and is told after each look at them."""
        while True:
            self._tell_line()
            if not self.runs.runner.current:
                self._run_event.clear()
                await self._run_event.wait()
            await asyncio.sleep(STATUS_LINE_INTERVAL)

    def _tell_line(self) -> None:
        if (line := self.status.line()) != self._told_line:
            sd_notify.notify_status(line)
            self._told_line = line

    async def _look_at_vaults(self) -> None:
        await self.checks.at_vaults()
        self._tell_line()

    async def _look_at_lags(self) -> None:
        await self.checks.at_lags()
        await self.serving.look()

    def _reload_soon(self) -> None:
        self._background(self.config_reload.reload())

    async def _save_listings(self) -> None:
        """Keep what was listed for the next start. Where that cannot be written, it is listed again then."""
        with contextlib.suppress(OSError):
            await self.context.clients.kept.save_changed()

    async def _drain(self) -> None:
        """Begin nothing new, end what runs, leave nothing half-made."""
        log.info("stopping: %d runs to end", len(self.runs.runner.current))
        sd_notify.notify_stopping("draining")
        self.scheduler.stop()
        self.snapshot_scheduler.stop()
        self.runs.past.stop("the daemon is stopping")
        await end_runs(self.context, self.runs.runner)
        for task in list(self._tasks):
            task.cancel()
        self.resumer.close()
        await self.checks.close()
        await self.notifier.close()
        self.scrub_heal_scheduler.close()
        await self.vault_monitor.close()
        await self.api.close()
        await self.serving.close()
        await close_readings(self.context)
        for text in await self.runs.past.sweep(log.info):
            log.warning("%s", text)
        await release_vaults(self.context, self.vaults)
        await self._save_listings()
        await self.context.clients.close()
        self.context.records.costs.close()
        self.history.close()
        log.info("stopped")


@contextlib.contextmanager
def _note_start(path: Path) -> Iterator[None]:
    """Have the file there meanwhile, by which zvaultctl says that zvaultd is starting, and not that it is down.

    It is locked. The kernel frees the lock when its holder dies, so what a zvaultd that was killed leaves says nothing,
    whoever has its process ID by then. It is made anew each time, for anybody may lock one that was left, and is put in
    place once it is locked.
    """
    made = path.with_name(f"{path.name}.new")
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            made.unlink(missing_ok=True)
            file = stack.enter_context(made.open("x", encoding="ascii"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.write(f"{os.getpid()}\n")
            file.flush()
            made.chmod(0o644)
            made.rename(path)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                path.unlink()


@contextlib.asynccontextmanager
async def _patience(
    longest: float, extension: float, stop: asyncio.Event | None = None
) -> AsyncIterator[None]:
    """Have systemd wait as long as something is done, but no longer than ``longest`` seconds: its own timeout is short.

    That one is then left for what hangs in the kernel after the daemon is gone: no restart waits for it long. Once it
    is to ``stop``, a start has no more time than a drain: the hooks of an earlier run may take a day.
    """

    async def ask() -> None:
        left = longest
        while left > 0:
            sd_notify.extend_start(extension)
            if stop is not None and stop.is_set():
                left = min(left, DRAIN_PATIENCE)
            left -= PATIENCE_STEP
            await asyncio.sleep(PATIENCE_STEP)

    asking = asyncio.create_task(ask())
    try:
        yield
    finally:
        asking.cancel()


def _tell_version() -> None:
    """Warn of an OpenZFS that zvault was not tested with. It is used all the same; one not loaded is unknown."""
    with contextlib.suppress(OSError):
        if told := warn_if_untested(read_loaded_version()):
            log.warning("%s", told)
