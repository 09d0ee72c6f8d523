"""A reload of the configuration (SIGHUP, ``systemctl reload zvaultd``): a bad one leaves the old one in force.

monitors/config_monitor.py says meanwhile that the files are not what was loaded.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from zvault.config.load_config import find_readable_secrets, load_config
from zvault.config.schema import Config
from zvault.core.errors import ConfigError, ZvaultError
from zvault.daemon.backup_runs import BackupRuns
from zvault.daemon.journald import log
from zvault.daemon.metrics.scrape import MetricFigures
from zvault.daemon.monitors.config_monitor import ConfigMonitor
from zvault.daemon.renamed_backups import carry_over_names
from zvault.daemon.scheduler import BackupScheduler
from zvault.daemon.shutdown import order_stop
from zvault.daemon.status import DaemonStatus
from zvault.daemon.web.web_servers import WebServers
from zvault.ops.context import Context
from zvault.ops.vaults.past_record import list_past_vaults
from zvault.ops.vaults.vault import Vaults
from zvault.system import sd_notify


@dataclass(eq=False)
class ConfigReload:
    """Puts a new configuration in force, and tells the parts that go by it."""

    context: Context
    vaults: Vaults
    runs: BackupRuns
    schedulers: tuple[BackupScheduler, ...]
    config_monitor: ConfigMonitor
    status: DaemonStatus
    metrics: MetricFigures
    serving: WebServers
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def reload(self) -> None:
        """Take over a new configuration; a bad one leaves the old in force and is told."""
        async with self._turn:  # of two signals the later one has the newer files
            await self._reload()

    async def _reload(self) -> None:
        env = self.context.env
        sd_notify.notify_reloading("reloading")
        try:
            # Hundreds of backups take a second to be checked.
            config = await asyncio.to_thread(load_config, env.paths)
            self._refuse_loss(config)
        except ZvaultError as error:
            self.metrics.reload_ok = False
            self.status.warnings["config"] = f"the new configuration is not in force: {error}"
            log.error("the old configuration stays in force: %s", error)
        else:
            env.reconfigure(config)
            self.runs.runner.rename_subjects(carry_over_names(env, self.runs.history))
            self.metrics.reload_ok = True
            self.status.warnings.pop("config", None)
            await self.config_monitor.look()
            await asyncio.gather(*(scheduler.reschedule() for scheduler in self.schedulers))
            await self.serving.reload()
            log.info("configuration reloaded; backups: %d", len(config.backup))
            for told in find_readable_secrets(env.paths, config):
                log.warning("%s", told)
        sd_notify.notify_ready(self.status.line())
        await order_stop(self.context)

    def _refuse_loss(self, config: Config) -> None:
        """What is up here, or open as it was, cannot vanish: nobody could take it down, or close it, any more."""
        gone = [name for name in self.context.env.config.vault if name not in config.vault]
        left = [name for name in gone if self.vaults[name].lease.exists]
        if left:
            raise ConfigError(
                f"vault {', '.join(left)} is gone from the configuration but still up",
                "it could not be taken down any more",
                f"put it back, 'zvaultctl vault down {left[0]}', then remove it",
            )
        if then := [name for name in gone if list_past_vaults(self.context.records.undo, name)]:
            raise ConfigError(
                f"vault {', '.join(then)} is gone from the configuration but open as it was",
                "nobody could see or close that any more",
                f"put it back, 'zvaultctl vault close {then[0]}', then remove it",
            )
