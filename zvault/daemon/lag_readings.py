"""The lags and proofs of backups as they were last read from the pools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from zvault.config.schema import Backup
from zvault.core.replication.lag import DatasetLag
from zvault.daemon.known_proofs import KnownProofs
from zvault.daemon.learned import Learned
from zvault.daemon.listings import Listings
from zvault.ops.context import Context
from zvault.ops.replication.lag import lags, newest_made
from zvault.ops.replication.sides import look
from zvault.ops.verification.proofs import read_proofs

DOWN_EVERY = 60.0
"""Seconds between looks at the source of a backup whose vault is down."""


@dataclass(frozen=True, slots=True)
class Reading:
    """When lags were read (monotonic seconds), and whether anybody has seen the vault since zvaultd started.

    ``seen_at`` is when that was, in seconds since the epoch.
    """

    at: float
    seen: bool
    seen_at: float | None = None


class LagReadings:
    """What was read of each backup's lag, by dataset, and of its proofs.

    ``made``: of one that makes snapshots only, when the newest of each dataset was made.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.lags: Learned[dict[str, DatasetLag]] = Learned(context.env)
        self.proofs = KnownProofs(context.env)
        self.made: Learned[Mapping[str, int | None]] = Learned(context.env)
        self.listings = Listings(context.env)
        self._read: Learned[Reading] = Learned(context.env)

    async def refresh(self, backup: Backup, at_work: Callable[[], bool]) -> None:
        """Read a backup's lag from the pools: from the vault where it is up, else from what is known of it.

        While it is down the source is still listed, less often: what is new there is not on the vault. Nothing is kept
        while a run is ``at_work``: it tells by itself once it has ended.
        """
        if at_work():
            return
        if backup.vault is None:
            await self._refresh_made(backup, at_work)
            return
        name, clients, vault = backup.name, self.context.clients, self.context.env.vault(backup.vault)
        up = await clients.pool_is_up(vault)
        last, way = self._read.get(name), self.lags.way(name)
        if not up and last is not None and self.context.env.clock.monotonic() - last.at < DOWN_EVERY:
            return
        began = self.context.env.clock.time()
        # What was written since, or used, decides no lag: where nothing else changed nothing has to be listed.
        sides = await look(self.context, backup, clients.vault_of(backup) if up else None, sizes="none")
        if up and not await clients.pool_is_up(vault):
            # Exported while it was listed: ZFS then says the same as of a pool that is empty. The next look knows more.
            return
        if not at_work():
            before = self.lags.get(name) if last is not None and last.seen else None
            found = await sides.compute(lags, self.context, backup, sides, before=before)
            if not at_work():
                self.keep(name, found, way, seen=up or before is not None, looked=up)
                self.listings.keep(name, sides, way, began)
        if up and name not in self.proofs:
            self.proofs.put(name, await read_proofs(clients.vault_of(backup), sides), way)

    async def _refresh_made(self, backup: Backup, at_work: Callable[[], bool]) -> None:
        """Read how old the snapshots are of a backup that makes nothing else."""
        name = backup.name
        last, way = self._read.get(name), self.made.way(name)
        if last is not None and self.context.env.clock.monotonic() - last.at < DOWN_EVERY:
            return
        began = self.context.env.clock.time()
        sides = await look(self.context, backup, None, sizes="none")
        if not at_work():
            made = await sides.compute(newest_made, backup, sides)
            if not at_work():
                self.keep_made(name, made, way)
                self.listings.keep(name, sides, way, began)

    def keep_made(self, backup: str, made: Mapping[str, int | None], way: str | None) -> None:
        """Keep when the newest snapshot of each dataset was made."""
        self.made.put(backup, made, way)
        self._read.put(backup, Reading(self.context.env.clock.monotonic(), False, None), way)

    def keep(
        self,
        backup: str,
        found: dict[str, DatasetLag],
        way: str | None,
        *,
        seen: bool = True,
        looked: bool = True,
    ) -> None:
        """Keep what was found of a backup that went this ``way``; ``seen``: on its vault, also if some time ago.

        ``looked``: just now.
        """
        self.lags.put(backup, found, way)
        at = self.context.env.clock.time() if looked else self.seen_at(backup)
        self._read.put(backup, Reading(self.context.env.clock.monotonic(), seen, at if seen else None), way)

    def seen_at(self, backup: str) -> float | None:
        """When anybody last looked at a backup's vault, in seconds since the epoch; None where nobody has since zvaultd
        started.
        """
        last = self._read.get(backup)
        return last.seen_at if last is not None else None
