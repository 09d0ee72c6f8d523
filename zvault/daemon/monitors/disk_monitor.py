"""Sees the disks of removable vaults appear, and has what is due run then.

udev links each pool's disk by the pool's name, so a look opens no device and wakes no disk that sleeps. A disk that
udev does not link so is found by the next run that is due: that one looks for the pool itself.
"""

from __future__ import annotations

from zvault.daemon.journald import make_vault_logger
from zvault.daemon.scheduler import BackupScheduler
from zvault.ops.vaults.vault import Vaults

DISK_INTERVAL = 5.0
"""Seconds between looks."""


class DiskMonitor:
    """Knows which removable vaults have their disk, and starts what is due when one gets it."""

    def __init__(self, vaults: Vaults, scheduler: BackupScheduler) -> None:
        self._vaults, self._scheduler = vaults, scheduler
        self._there: set[str] = set()

    async def look(self) -> None:
        """See which disks are there; of those that were not, the backups that are due begin.

        Which were there when zvaultd started is not known, so those count as new: what began by itself meanwhile is
        not due any more.
        """
        removable = [vault for vault in self._vaults.all() if vault.config.removable]
        there = {vault.name for vault in removable if not vault.is_away()}
        new, self._there = there - self._there, there
        activity, now = self._vaults.context.activity, self._vaults.context.env.clock.monotonic()
        for name in sorted(new):
            activity.appeared[name] = now
            make_vault_logger(name)("its disk is there")
        backups = self._vaults.context.env.config.backup
        due = [name for name, backup in backups.items() if backup.vault in new]
        if due:
            await self._scheduler.catch_up(due)
