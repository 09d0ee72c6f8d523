"""How long a vault takes to write a transaction group with little in it, while streams go into it.

It decides how many small streams go at once (core/replication/streams_at_once.py).
"""

from __future__ import annotations

import time

from zvault.core.errors import ZvaultError
from zvault.core.replication.streams_at_once import estimate_sync_time
from zvault.ops.context import Context
from zvault.ops.vaults.vault import OpenVault
from zvault.zfs.pool.statistics import groups_argv, parse_groups

SYNC_TIME_DEADLINE = 5.0
"""Seconds for OpenZFS's counters of a pool; one that hangs may not answer."""

SYNC_TIME_AGE = 10.0
"""Seconds for which a known time is not asked for again."""

SYNC_TIME_PAUSE = 1.0
"""Seconds between two attempts to learn an unknown one: the vault's first groups of a run tell it."""


class VaultSyncTime:
    """Keeps the time of one vault up to date in ``activity.sync_times``, where the next run finds it, too."""

    def __init__(self, context: Context, vault: OpenVault) -> None:
        self._context, self._vault = context, vault
        self._next = 0.0

    async def update(self) -> None:
        """Look, unless that was done just now. Nothing changes where OpenZFS cannot tell, or the vault is elsewhere."""
        name, context, now = self._vault.name, self._context, time.monotonic()
        if now < self._next or self._vault.zfs.host.address is not None:
            return
        self._next = now + SYNC_TIME_PAUSE
        try:
            argv = groups_argv(self._vault.pool)
            said = await context.env.runner.run(argv, deadline=SYNC_TIME_DEADLINE, check=False)
        except (ZvaultError, OSError):
            return
        groups, _ = parse_groups(said.stdout)
        in_order = (groups[number] for number in sorted(groups))
        found = estimate_sync_time((one.written, one.sync) for one in in_order)
        if found is not None:
            context.activity.sync_times[name] = found
            self._next = now + SYNC_TIME_AGE
