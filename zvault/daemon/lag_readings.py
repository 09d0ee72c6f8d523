"""The lags and proofs of backups as they were last read from the pools."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from zvault.config.schema import Backup
from zvault.core.errors import ZvaultError
from zvault.core.replication.lag import DatasetLag
from zvault.daemon.journald import log
from zvault.daemon.known_proofs import KnownProofs
from zvault.daemon.listings import BackupListings
from zvault.daemon.per_backup import ValuesByBackup, move_names
from zvault.ops.context import Context
from zvault.ops.replication.disproved_bookmarks import correct_disproved
from zvault.ops.replication.lag import list_newest_guids, list_newest_made, measure_lags
from zvault.ops.replication.listing import BothListings, list_both_sides
from zvault.ops.replication.vault_encryption import list_exposed
from zvault.ops.verification.proofs import read_proofs

DOWN_SOURCE_INTERVAL = 60.0
"""Seconds between looks at the source of a backup whose vault is down."""


@dataclass(frozen=True, slots=True)
class LagReading:
    """A reading of lags: when it was (monotonic seconds), and whether anybody has seen the vault since zvaultd started.

    ``seen_at`` is when that was, in seconds since the epoch.
    """

    at: float
    seen: bool
    seen_at: float | None = None


READING_PATIENCE = 60.0
"""Seconds for which it is told that a lag is being read; after that it is unknown like any other."""

READING_TRIES = 3
"""Looks in a row at what changes while it is looked at. Where it has changed during each look for READING seconds, the
last of them is told all the same: a lag that stays unknown as long as datasets come and go, as containers do, says
less than one that is a look old."""


@dataclass(eq=False, slots=True)
class DoubtedLags:
    """The lags as they were read before something may have changed, and since when (monotonic seconds)."""

    lags: dict[str, DatasetLag]
    since: float


class LagReadings:
    """The readings of each backup's lag, by dataset, and of its proofs.

    From when something may have changed until it was read (``doubt``) every lag of a backup is unknown in ``lags``.
    ``doubted`` is set by then, and ``settled`` is set while nothing is doubted.

    ``made``: of one that makes snapshots only, when the newest of each dataset was made.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.lags: ValuesByBackup[dict[str, DatasetLag]] = ValuesByBackup(context.env)
        self.proofs = KnownProofs(context.env)
        self.made: ValuesByBackup[Mapping[str, int | None]] = ValuesByBackup(context.env)
        self.listings = BackupListings(context.env)
        self._read: ValuesByBackup[LagReading] = ValuesByBackup(context.env)
        self._on_vault: ValuesByBackup[frozenset[int]] = ValuesByBackup(context.env)
        """The GUIDs of the newest snapshots that the vault had when it was looked at last."""
        self._not_taken_back: dict[str, str] = {}
        self._doubts: dict[str, DoubtedLags] = {}
        self._changes: Counter[str] = Counter()
        """How often something may have changed, also before anything was known: what changes while a backup is looked
        at is looked at, too.
        """
        self._restless: dict[str, float] = {}
        """When a look was kept last though something changed meanwhile (monotonic seconds)."""
        context.env.heed_renames(self._heed_rename)
        self.doubted, self.settled = asyncio.Event(), asyncio.Event()
        self.settled.set()

    def _heed_rename(self, before: str, name: str) -> None:
        move_names(before, name, [self._not_taken_back, self._doubts, self._changes, self._restless])

    async def refresh(self, backup: Backup, at_work: Callable[[], bool]) -> None:
        """Read a backup's lag from the pools: from the vault where it is up, else from what is known of it.

        While it is down the source is still listed, less often: what is new there is not on the vault. Nothing is kept
        while a run is ``at_work``: it tells by itself once it has ended.
        """
        for left in reversed(range(READING_TRIES)):
            changes = self._changes[backup.name]
            if at_work():
                return
            if backup.vault is None:
                await self._refresh_made(backup, at_work)
                return
            await self._refresh(backup, changes, at_work, final=not left)
            if self._changes[backup.name] == changes:
                return

    def doubt(self, backup: str) -> None:
        """Something may have changed: what was read before is not told until it was read again; unless it changes all
        the time.
        """
        self._changes[backup] += 1
        before, now = self._doubts.get(backup), self.context.env.clock.monotonic()
        if self._is_restless(backup):
            self.doubted.set()
            return
        lags = self.read_last(backup)
        if lags is None:
            return
        self._doubts[backup] = DoubtedLags(lags, before.since if before is not None else now)
        self.lags.put(backup, {name: DatasetLag(name, None, None) for name in lags}, self.lags.way(backup))
        self.doubted.set()
        self.settled.clear()

    def _is_restless(self, backup: str) -> bool:
        """Whether a backup changed during each of the last looks, and the last one was not long ago."""
        since = self._restless.get(backup)
        return since is not None and self.context.env.clock.monotonic() - since < READING_PATIENCE

    def is_doubted(self, backup: str) -> bool:
        """True if a lag is unknown since something may have changed."""
        return backup in self._doubts

    def being_read(self, backup: str) -> bool:
        """True if a lag is unknown only because it is being read."""
        doubt = self._doubts.get(backup)
        return doubt is not None and self.context.env.clock.monotonic() - doubt.since < READING_PATIENCE

    def read_last(self, backup: str) -> dict[str, DatasetLag] | None:
        """The lags as they were read last, also where they are doubted: for whoever looks at the source by himself."""
        doubt = self._doubts.get(backup)
        return doubt.lags if doubt is not None and backup in self.lags else self.lags.get(backup)

    def _may_keep(self, backup: str, changes: int, *, final: bool) -> bool:
        """Whether what a look found is to be told: nothing changed meanwhile, or it is the ``final`` one of several."""
        if self._changes[backup] == changes:
            self._restless.pop(backup, None)
            return True
        doubt = self._doubts.get(backup)
        now = self.context.env.clock.monotonic()
        if final and (
            self._is_restless(backup) or (doubt is not None and now - doubt.since >= READING_PATIENCE)
        ):
            self._restless[backup] = now
            return True
        return False

    async def _refresh(
        self, backup: Backup, changes: int, at_work: Callable[[], bool], *, final: bool
    ) -> None:
        """As ``refresh``, of a backup that has a vault; nothing is kept where there were more ``changes`` meanwhile,
        but of the ``final`` look at what does not come to rest.
        """
        name, clients, vault = backup.name, self.context.clients, self.context.env.vault(backup.its_vault)
        up = await clients.pool_is_up(vault)
        last, way = self._read.get(name), self.lags.way(name)
        recent = last is not None and self.context.env.clock.monotonic() - last.at < DOWN_SOURCE_INTERVAL
        if not up and recent and not self.is_doubted(name):
            return
        began = self.context.env.clock.time()
        # What was written since, or used, decides no lag: where nothing else changed nothing has to be listed.
        sides = await list_both_sides(
            self.context, backup, clients.vault_of(backup) if up else None, sizes="none"
        )
        if up and not await clients.pool_is_up(vault):
            # Exported while it was listed: ZFS then says the same as of a pool that is empty. The next look knows more.
            return
        if not at_work() and self._may_keep(name, changes, final=final):
            before = self.read_last(name) if last is not None and last.seen else None
            had = self._on_vault.get(name) or frozenset()
            found = await sides.compute(measure_lags, self.context, backup, sides, before=before, had=had)
            if not at_work() and self._may_keep(name, changes, final=final):
                self.keep(name, found, way, seen=up or before is not None, looked=up)
                await self.note_exposed(name, sides, way)
                self.listings.keep(name, sides, way, began)
                if up:
                    await self._take_back(backup, sides)
        if up and name not in self.proofs:
            self.proofs.put(name, await read_proofs(clients.vault_of(backup), sides), way)

    async def note_exposed(self, backup: str, sides: BothListings, way: str | None) -> None:
        """Note what a look found on the vault in the clear, of a backup that went this ``way``."""
        if sides.vault_seen:
            self.context.records.exposed.note(backup, way, await sides.compute(list_exposed, sides))

    async def _take_back(self, backup: Backup, sides: BothListings) -> None:
        """Have no bookmark tell, after a restart, what this look has disproved. Whoever may not change the source is
        told once.
        """
        try:
            for dataset in await correct_disproved(self.context, backup, sides):
                log.warning(
                    "%s: the vault does not have what the newest bookmark of %s tells; the bookmark is corrected",
                    backup.name,
                    dataset.name,
                    extra={"BACKUP": backup.name},
                )
        except ZvaultError as error:
            if self._not_taken_back.get(backup.name) != str(error):
                log.warning(
                    "%s: bookmarks on the source tell what the vault does not have: %s", backup.name, error
                )
            self._not_taken_back[backup.name] = str(error)
        else:
            self._not_taken_back.pop(backup.name, None)

    async def _refresh_made(self, backup: Backup, at_work: Callable[[], bool]) -> None:
        """Read how old the snapshots are of a backup that makes nothing else."""
        name = backup.name
        last, way = self._read.get(name), self.made.way(name)
        if last is not None and self.context.env.clock.monotonic() - last.at < DOWN_SOURCE_INTERVAL:
            return
        began = self.context.env.clock.time()
        sides = await list_both_sides(self.context, backup, None, sizes="none")
        if not at_work():
            made = await sides.compute(list_newest_made, backup, sides)
            if not at_work():
                self.keep_made(name, made, way)
                self.listings.keep(name, sides, way, began)

    def keep_made(self, backup: str, made: Mapping[str, int | None], way: str | None) -> None:
        """Keep when the newest snapshot of each dataset was made."""
        self.made.put(backup, made, way)
        self._read.put(backup, LagReading(self.context.env.clock.monotonic(), False, None), way)

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
        self._doubts.pop(backup, None)
        if not self._doubts:
            self.settled.set()
        self.lags.put(backup, found, way)
        if looked:
            self._on_vault.put(backup, frozenset(list_newest_guids(found.values())), way)
        at = self.context.env.clock.time() if looked else self.seen_at(backup)
        self._read.put(
            backup, LagReading(self.context.env.clock.monotonic(), seen, at if seen else None), way
        )

    def seen_at(self, backup: str) -> float | None:
        """Return when anybody last looked at a backup's vault, in seconds since the epoch; None where nobody has since
        zvaultd started.
        """
        last = self._read.get(backup)
        return last.seen_at if last is not None else None
