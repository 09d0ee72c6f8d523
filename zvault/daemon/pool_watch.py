"""Hears of changes on this host's pools after which what is known of a backup's lag may be wrong.

A source that is renamed, made anew, rolled back or imported, and a vault whose datasets are: no lag is told of them
until they were read. A snapshot or hold that comes or goes is no such change: it makes no lag better than it is told.
"""

from __future__ import annotations

from zvault.config.schema import Backup
from zvault.core.names import DatasetName
from zvault.daemon.runs import Runs
from zvault.ops.context import Context
from zvault.zfs.change_feed import ChangeFeed
from zvault.zfs.pool.change_reader import Changed

LOOK_EVERY = 5.0
"""Seconds between looks at the events; whoever asks for the status has them looked at, too."""


class PoolWatch:
    """A follower of the feed of events that knows which backups they concern."""

    def __init__(self, context: Context, runs: Runs, feed: ChangeFeed) -> None:
        self._context, self._runs, self._feed = context, runs, feed
        feed.follow(self)

    async def look(self) -> None:
        """Take in all that has happened until now. Where no events are had, nothing is learned."""
        await self._feed.collect()

    def followed(self) -> int:
        """It knows of no dataset that another follower does not."""
        return 0

    def note(self, changed: Changed) -> None:
        """Doubt the lag of each backup that a change concerns."""
        whole = [DatasetName(name) for name, points in changed.datasets.items() if points is None]
        if not (changed.missed or changed.pools or whole):
            return
        for backup in self._context.env.config.backup.values():
            roots = self._roots(backup)
            if roots and (
                changed.missed
                or any(root.pool in changed.pools for root in roots)
                or any(name.is_within(root) for name in whole for root in roots)
            ):
                self._runs.doubt_lag(backup.name)

    def _roots(self, backup: Backup) -> list[DatasetName]:
        """Where on this host a backup reads and writes."""
        env = self._context.env
        if backup.vault is None:
            return []
        roots = [backup.source.dataset] if backup.source.host is None else []
        if env.vault(backup.vault).host is None:
            roots.append(env.target_of(backup, backup.source.dataset))
        return roots
