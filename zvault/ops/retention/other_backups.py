"""What other backups of the same source have still to send: their snapshots are not pruned before they have."""

from __future__ import annotations

from dataclasses import dataclass, field

from zvault.config.schema import Backup
from zvault.core.model import Dataset, Snapshot
from zvault.core.replication.base_names import list_sent_marks
from zvault.core.replication.plan_model import SnapshotFilter
from zvault.core.snapshot_list import list_newer_snapshots
from zvault.ops.context import Context
from zvault.ops.replication.listing import make_sent_filter


@dataclass(frozen=True, slots=True)
class _OtherBackup:
    """A backup that may send the snapshots of another. ``pool`` is the GUID of the pool that its vault has, None where
    that is not known: what one had before it tells nothing of what is to be sent to it.
    """

    backup: Backup
    wanted: SnapshotFilter
    pool: int | None

    def unsent(self, dataset: Dataset) -> list[Snapshot]:
        """List what it has still to send of a dataset. Where it is not known what its vault has, that is all it
        wants.
        """
        backup = self.backup
        inside = dataset.name.is_within(backup.source.dataset)
        if not inside or not backup.takes(dataset.name):
            return []
        # Such a bookmark is made once the vault has the base, and only then. One that only protects tells nothing: it
        # may be of what is about to be sent, or of what the vault was seen not to have any more.
        marks = list_sent_marks(dataset, self.pool) if self.pool is not None else []
        bases = [mark.createtxg for mark in marks]
        newest = max(bases, default=-1)
        return [snap for snap in list_newer_snapshots(dataset.snapshots, newest) if self.wanted(snap)]


@dataclass(frozen=True)
class OtherBackups:
    """The other backups that read a backup's source and send every snapshot, not only the newest."""

    _others: tuple[_OtherBackup, ...] = field(default=())

    @property
    def key(self) -> tuple[tuple[str, int | None], ...]:
        """The facts that ``need`` depends on, besides the configuration and the dataset."""
        return tuple((other.backup.name, other.pool) for other in self._others)

    @classmethod
    def of(cls, context: Context, backup: Backup) -> OtherBackups:
        """As configured now. What a vault has is told by the source's bookmarks, so none needs to be up."""
        env = context.env
        others = [
            other
            for other in env.config.backup.values()
            if other.name != backup.name
            and other.source.host == backup.source.host
            and other.backlog == "all"
            and other.vault is not None
        ]
        pools = {
            name: context.records.pools.last(env.vault(name)) for name in {one.its_vault for one in others}
        }
        return cls(tuple(_OtherBackup(one, make_sent_filter(one), pools[one.its_vault]) for one in others))

    def need(self, dataset: Dataset) -> dict[int, str]:
        """By GUID the snapshots of a source dataset that another backup has still to send, with the reason."""
        found: dict[int, str] = {}
        for other in self._others:
            for snap in other.unsent(dataset):
                found.setdefault(snap.guid, f"backup {other.backup.name} has not sent it yet")
        return found
