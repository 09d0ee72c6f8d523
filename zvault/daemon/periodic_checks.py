"""What zvaultd looks at again and again by itself, so that nobody who asks has to wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from zvault.config.schema import Backup
from zvault.core.errors import ZvaultError
from zvault.daemon.health.journal import VerdictJournal
from zvault.daemon.job_runner import make_unexpected_error
from zvault.daemon.journald import log
from zvault.daemon.monitors.scrub_heal_scheduler import ScrubHealScheduler
from zvault.daemon.monitors.sleep_monitor import SleepMonitor
from zvault.daemon.monitors.vault_monitor import VaultMonitor
from zvault.daemon.scheduler import PROMPT
from zvault.daemon.seen_vaults import SeenVaults
from zvault.daemon.status import LAG, DaemonStatus
from zvault.ops.restore import snapshot_reader

LEFT_OPEN_PATIENCE = 120.0
"""Seconds for each thing that stayed open to go. It takes a minute where udev keeps it."""


class PeriodicChecks:
    """The looks at vaults and lags, and what follows from them."""

    def __init__(
        self,
        status: DaemonStatus,
        seen_vaults: SeenVaults,
        vault_monitor: VaultMonitor,
        scrub_heal_scheduler: ScrubHealScheduler,
        sleep_monitor: SleepMonitor,
    ) -> None:
        self.status = status
        self._seen, self._vault_monitor = seen_vaults, vault_monitor
        self._scrub_heal_scheduler, self._sleep_monitor = scrub_heal_scheduler, sleep_monitor
        self._verdicts = VerdictJournal(status.context.env.clock)
        self._left: list[str] = []
        self._asked: dict[str, tuple[Backup, asyncio.Task[None]]] = {}

    async def again_and_again(self, what: str, look: Callable[[], Awaitable[None]], every: float) -> None:
        """Look at something, so that a scrape need not. Whatever goes wrong, look again: stale is not silent."""
        while True:
            try:
                await look()
            except Exception as error:
                log.exception("looking at %s failed", what)
                self.status.warnings[f"observe {what}"] = (
                    f"{what} cannot be looked at: {make_unexpected_error(error)}"
                )
            else:
                self.status.warnings.pop(f"observe {what}", None)
            await asyncio.sleep(every)

    async def at_vaults(self) -> None:
        """Look at all vaults; tell the journal of what is no longer as it was."""
        began = self.status.context.env.clock.monotonic()
        vaults = await self._vault_monitor.watch()
        self._seen.note_look(vaults, began)
        context = self.status.context
        for vault in vaults:
            context.records.costs.look(context.env, vault)
        self._scrub_heal_scheduler.care(vaults)
        warnings = self.status.warnings
        for name in [name for name in warnings if name.startswith("inhibitor ")]:
            del warnings[name]
        warnings |= self._sleep_monitor.warnings()
        moving = self._seen.list_outdated()
        verdicts = self.status.verdicts(vaults)
        # Of a vault on its way up or down once it is there.
        runs = self.status.runs
        unread = [name for name in self.status.context.env.config.backup if runs.readings.being_read(name)]
        self._verdicts.tell(verdicts, moving, unread)

    async def at_readings(self) -> None:
        """Take away what stayed mounted or held of snapshots that were open for reading, as soon as that can be."""
        left = await snapshot_reader.close_left_open(self.status.context, LEFT_OPEN_PATIENCE)
        left += await self.status.runs.past.sweep(log.info, all_of_it=False)
        for text in left:
            if text not in self._left:
                log.warning("%s", text)
        self._left = left

    async def at_lags(self) -> None:
        """Read all backups' lags, side by side: a source that does not answer keeps no other's lag from being known.

        Whoever is still asked after PROMPT seconds is not asked again until that has ended.
        """
        backups = self.status.context.env.config.backup
        for name, (backup, task) in list(self._asked.items()):
            if backups.get(name) != backup:
                task.cancel()
                del self._asked[name]
        for name, backup in backups.items():
            if name not in self._asked:
                self._asked[name] = backup, asyncio.create_task(self._at_lag(backup))
        if self._asked:
            done, _ = await asyncio.wait([task for _, task in self._asked.values()], timeout=PROMPT)
            self._asked = {name: one for name, one in self._asked.items() if one[1] not in done}
        warnings = self.status.warnings
        for key in [key for key in warnings if key.startswith(LAG) and key.removeprefix(LAG) not in backups]:
            del warnings[key]

    async def at_doubted(self) -> None:
        """Read lags as soon as one of them is doubted."""
        doubted = self.status.runs.readings.doubted
        await doubted.wait()
        doubted.clear()
        await self.at_lags()

    async def close(self) -> None:
        """Give up what is still asked."""
        tasks = [task for _, task in self._asked.values()]
        self._asked.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _at_lag(self, backup: Backup) -> None:
        key = f"{LAG}{backup.name}"
        try:
            await self.status.runs.findings.refresh_lag(backup)
        except Exception as error:
            if not isinstance(error, ZvaultError):
                log.exception("looking at the lag of %s failed", backup.name)
            told = error if isinstance(error, ZvaultError) else make_unexpected_error(error)
            self.status.warnings[key] = f"the lag of {backup.name} is not known: {told}"
        else:
            self.status.warnings.pop(key, None)
