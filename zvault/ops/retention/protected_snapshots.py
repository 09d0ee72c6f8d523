"""Which snapshots are never pruned, whatever the rules say, and why: bases, unsent snapshots, origins of clones.

On the source these are the base of the next incremental and all that is newer, snapshots that a dataset's relatives go
on from, those that other backups have still to send (other_backups.py), and those that have clones. On the vault they
are the base, or everything where there is none, and those that have clones. ``min_age`` protects too
(core/policy/min_age.py), and so do holds, which are asked of the pools as a prune destroys.
"""

from __future__ import annotations

from dataclasses import dataclass

from zvault.config.schema import Backup
from zvault.core.model import Dataset
from zvault.core.replication.base_names import list_sent_marks
from zvault.core.replication.lineage import DatasetPair
from zvault.core.snapshot_list import list_guids, list_newer_snapshots
from zvault.ops.retention.other_backups import OtherBackups
from zvault.ops.state.cached_backups import Clones

_BASE = "the base of the next incremental"


@dataclass(frozen=True, slots=True)
class UnseenVault:
    """A vault that nobody has looked at: the GUID of the pool that it had last, None where that is not known."""

    pool: int | None


@dataclass(frozen=True, slots=True)
class SourceProtection:
    """Protects the snapshots of ``backup``'s source that are needed, by this backup and by ``others``.

    ``unseen``: nobody has looked at the vault. Then no pair has a base, and the source's own bookmarks for that vault's
    pool say from where on it needs what is there.
    """

    backup: Backup
    others: OtherBackups
    unseen: UnseenVault | None = None

    def protect(self, pair: DatasetPair, lent: Clones, clones: Clones) -> dict[int, str]:
        """By GUID the snapshots of the pair's source dataset that must stay, with the reason. ``lent`` are those that
        other datasets go on from.
        """
        source = pair.source
        needed = self._from_base(source, pair.base[0].createtxg if pair.base else 0)
        borrowed = {snap.guid: _BASE for snap in source.snapshots if snap.snapname in lent} if lent else {}
        return self.others.need(source) | needed | borrowed | protect_origins(source, clones)

    def _from_base(self, source: Dataset, base_txg: int) -> dict[int, str]:
        """The base of a source dataset, and what came after it."""
        if self.backup.vault is None:
            return {}
        if self.unseen is None:
            return _base_and_newer(source, base_txg)
        oldest = _find_last_base(source, self.unseen.pool)
        if oldest and self.backup.backlog == "newest":
            # Only the newest is ever sent, which every rule keeps: while the vault is away the others need not pile up.
            return {snap.guid: _BASE for snap in source.snapshots if snap.createtxg == oldest}
        return _base_and_newer(source, oldest)


def protect_vault_base(pair: DatasetPair, there: Dataset, clones: Clones) -> dict[int, str]:
    """By GUID the snapshots of a pair's vault dataset, ``there``, that must stay, and why; without a base, all."""
    if pair.base:
        kept = {pair.base[1].guid: _BASE}
    else:
        kept = dict.fromkeys(list_guids(there.snapshots), "no base is shared with the source any more")
    return kept | protect_origins(there, clones)


def protect_origins(dataset: Dataset, clones: Clones) -> dict[int, str]:
    """By GUID the snapshots that others are clones of, with the reason; ZFS would not destroy them."""
    if not clones:
        return {}
    return {
        snap.guid: f"{clones[snap.snapname]} is a clone of it"
        for snap in dataset.snapshots
        if snap.snapname in clones
    }


def _base_and_newer(dataset: Dataset, base_txg: int) -> dict[int, str]:
    return {
        snap.guid: _BASE if snap.createtxg == base_txg else "not on the vault yet"
        for snap in list_newer_snapshots(dataset.snapshots, base_txg - 1)
    }


def _find_last_base(dataset: Dataset, pool: int | None) -> int:
    """The transaction group of the newest base that a vault's pool had when it was last seen.

    The bookmark of the base before stays for a pool that goes back; its snapshot is not needed for that. Where no
    bookmark says what the pool had, it is 0, older than all. One that only protects proves nothing: what it told may
    have been taken back, as the pool was seen to have gone back to before that
    (ops/replication/disproved_bookmarks.py), and then its base is an older snapshot that nothing else protects.
    """
    if pool is None:
        return 0
    return max((mark.createtxg for mark in list_sent_marks(dataset, pool)), default=0)
