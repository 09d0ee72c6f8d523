"""Hears of changes on this host's pools after which what is known of a backup's lag may be wrong.

A source that is renamed, made anew, rolled back or imported, and a vault whose datasets are: no lag is told of them
until they were read. A snapshot or hold that comes or goes is no such change: it makes no lag better than it is told.
"""

from __future__ import annotations

from zvault.config.schema import Backup
from zvault.core.names import DatasetName
from zvault.daemon.backup_findings import BackupFindings
from zvault.ops.context import Context
from zvault.zfs.change_feed import ChangeFeed
from zvault.zfs.pool.event_reader import ChangedDatasets

FEED_INTERVAL = 5.0
"""Seconds between looks at the events; whoever asks for the status has them looked at, too."""


class PoolWatch:
    """A follower of the feed of events that knows which backups they concern."""

    def __init__(self, context: Context, findings: BackupFindings, feed: ChangeFeed) -> None:
        self._context, self._findings, self._feed = context, findings, feed
        feed.follow(self)

    async def look(self) -> None:
        """Take in all that has happened until now. Where no events are had, nothing is learned."""
        await self._feed.collect()

    def followed(self) -> int:
        """It knows of no dataset that another follower does not."""
        return 0

    def note(self, changed: ChangedDatasets) -> None:
        """Doubt the lag of each backup that a change concerns."""
        whole = [DatasetName(name) for name, points in changed.datasets.items() if points is None]
        if not (changed.missed or changed.pools or whole):
            return
        for backup in self._context.env.config.backup.values():
            read, written = self._roots(backup)
            # What a backup leaves out moves no lag of it, and may come and go all day.
            of_source = read is not None and (
                changed.missed
                or read.pool in changed.pools
                or any(name.is_within(read) and backup.takes(name) for name in whole)
            )
            of_vault = written is not None and (
                changed.missed or any(name.is_within(written) for name in whole)
            )
            moved = written is not None and written.pool in changed.pools
            if of_source or of_vault or moved:
                # A run imports and exports the vault's pool itself: that is nothing to read again after it.
                self._findings.doubt_lag(backup.name, source=of_source, vault=of_vault)

    def _roots(self, backup: Backup) -> tuple[DatasetName | None, DatasetName | None]:
        """Where on this host a backup reads and writes; None where it does elsewhere."""
        env = self._context.env
        if backup.vault is None:
            return None, None
        read = backup.source.dataset if backup.source.host is None else None
        here = env.vault(backup.vault).host is None
        return read, env.target_of(backup, backup.source.dataset) if here else None
