"""Retention's verdicts on a backup's datasets, looked up for those of which nothing changed.

The verdicts on a pair depend on both sides' snapshots and bookmarks (the pair is the same object), on which snapshots
others are clones of or go on from, on what other backups have still to send (their pools, and the bookmarks in the
pair), on the backup's table, on the ``min_age`` of the vault and of that which the source lies in, on the time zone,
and on now as core/policy/cached_verdicts.py says. Holds and clones elsewhere are no part of them: those are asked of
the pools each time (``prune.drop_stuck``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from itertools import compress, repeat
from operator import attrgetter, gt, lt

from zvault.config.schema import Backup
from zvault.core.cached_results import CachedResults
from zvault.core.model import Dataset
from zvault.core.policy.cached_verdicts import CachedVerdicts, DatasetVerdicts
from zvault.core.policy.min_age import list_too_young
from zvault.core.policy.retention import KeepRules
from zvault.core.replication.base_names import list_sent_marks
from zvault.core.replication.lineage import DatasetPair
from zvault.core.snapshot_list import list_guids, list_newer_snapshots
from zvault.ops.replication.listing import make_own_filter
from zvault.ops.retention.other_backups import OtherBackups
from zvault.ops.state.cached_backups import (
    NO_CLONES,
    ByDataset,
    CachedRetention,
    Clones,
    PairVerdicts,
    VerdictDependencies,
)

_BASE = "the base of the next incremental"


@dataclass(frozen=True, slots=True)
class Ages:
    """The ``min_age`` of the vault, and that of a vault of this host whose pool the source lies in, in seconds."""

    vault: float = 0.0
    source: float = 0.0


@dataclass(frozen=True, slots=True)
class UnseenVault:
    """A vault that nobody has looked at: the GUID of the pool that it had last, None where that is not known."""

    pool: int | None


def look_at(
    known: CachedRetention, now: float, zone: tzinfo, backup: Backup, others: OtherBackups, ages: Ages
) -> RetentionLook:
    """A look now. Where all verdicts depend on something else than then, nothing is known."""
    depends = (backup.name, str(zone), others.key, ages)
    if known.verdicts is None or known.depends != depends:
        lasting = backup.snapshot.skip_unchanged
        known.pairs, known.depends = CachedResults(), depends
        known.verdicts = CachedVerdicts(zone, make_own_filter(backup), lasting=lasting)
    return RetentionLook(known, known.verdicts, now, backup, others, ages)


@dataclass
class RetentionLook:
    """Decides on pairs, at one moment.

    ``unseen``: nobody has looked at the vault. Then no pair has a base, and the source's own bookmarks for that vault's
    pool say from where on it needs what is there.
    """

    known: CachedRetention
    verdicts: CachedVerdicts
    now: float
    backup: Backup
    others: OtherBackups
    ages: Ages
    unseen: UnseenVault | None = None

    def pairs(self, pairs: Sequence[DatasetPair], besides: VerdictDependencies) -> Sequence[PairVerdicts]:
        """Both sides of each pair."""
        moved = besides.others_than(self.known.besides)

        def decided(pair: DatasetPair) -> PairVerdicts:
            return self._decided(pair, *besides.of(pair))

        def expired(found: Sequence[PairVerdicts]) -> Iterator[int]:
            ended = map(lt, map(attrgetter("until"), found), repeat(self.now))
            yield from compress(range(len(found)), ended)
            to_come = map(gt, map(attrgetter("since"), found), repeat(self.now))
            yield from compress(range(len(found)), to_come)
            if moved:
                yield from (place for place, pair in enumerate(pairs) if besides.names(pair) & moved)

        found = self.known.pairs.again(pairs, decided, expired)
        self.known.besides = besides
        return found

    def gone(self, there: Dataset, clones: ByDataset) -> DatasetVerdicts:
        """A dataset of the vault that the source has no more."""
        needed = _origins(there, clones.get(there.name, NO_CLONES))
        return self._on_vault(there, self.backup.keep.gone, needed)

    def _decided(self, pair: DatasetPair, lent: Clones, clones: Clones, on_vault: Clones) -> PairVerdicts:
        base, there, source = pair.base, pair.vault, pair.source
        guards = self._guards(source, base[0].createtxg if base else 0)
        borrowed = {snap.guid: _BASE for snap in source.snapshots if snap.snapname in lent} if lent else {}
        protected = self.others.need(source) | guards | borrowed | _origins(source, clones)
        on_source = self._side(source, self.backup.keep.source, protected, self.ages.source)
        if there is None:
            return PairVerdicts.of(on_source, None)
        kept = {base[1].guid: _BASE} if base else _all(there)
        kept |= _origins(there, on_vault)
        return PairVerdicts.of(on_source, self._on_vault(there, self.backup.keep.vault, kept))

    def _guards(self, source: Dataset, base_txg: int) -> dict[int, str]:
        """The base of a source dataset, and what came after it."""
        if self.backup.vault is None:
            return {}
        if self.unseen is None:
            return _source_guards(source, base_txg)
        oldest = _find_last_base(source, self.unseen.pool)
        if oldest and self.backup.backlog == "newest":
            # Only the newest is ever sent, which every rule keeps: while the vault is away the others need not pile up.
            return {snap.guid: _BASE for snap in source.snapshots if snap.createtxg == oldest}
        return _source_guards(source, oldest)

    def _on_vault(self, there: Dataset, rules: KeepRules, needed: Mapping[int, str]) -> DatasetVerdicts:
        return self._side(there, rules, needed, self.ages.vault)

    def _side(
        self, there: Dataset, rules: KeepRules, needed: Mapping[int, str], min_age: float
    ) -> DatasetVerdicts:
        young = list_too_young(there.snapshots, min_age, self.now)
        return self.verdicts.decide(
            there.snapshots, rules, now=self.now, protected={**young, **needed}, min_age=min_age
        )


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


def _source_guards(dataset: Dataset, base_txg: int) -> dict[int, str]:
    return {
        snap.guid: _BASE if snap.createtxg == base_txg else "not on the vault yet"
        for snap in list_newer_snapshots(dataset.snapshots, base_txg - 1)
    }


def _origins(dataset: Dataset, clones: Clones) -> dict[int, str]:
    """The snapshots that others are clones of; ZFS would not destroy them."""
    if not clones:
        return {}
    return {
        snap.guid: f"{clones[snap.snapname]} is a clone of it"
        for snap in dataset.snapshots
        if snap.snapname in clones
    }


def _all(dataset: Dataset) -> dict[int, str]:
    return dict.fromkeys(list_guids(dataset.snapshots), "no base is shared with the source any more")
