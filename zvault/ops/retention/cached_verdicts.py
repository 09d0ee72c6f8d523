"""Retention's verdicts on a backup's datasets, looked up for those of which nothing changed.

The verdicts on a pair depend on both sides' snapshots and bookmarks (the pair is the same object), on which snapshots
others are clones of or go on from, on what other backups have still to send (their pools, and the bookmarks in the
pair), on the backup's table, on the ``min_age`` of the vault and of that which the source lies in, on the time zone,
and on now as core/policy/cached_verdicts.py says. Holds and clones elsewhere are no part of them: those are asked of
the pools each time (``prune.drop_stuck``). What is never pruned, whatever the rules say: protected_snapshots.py.
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
from zvault.core.replication.lineage import DatasetPair
from zvault.ops.replication.listing import make_own_filter
from zvault.ops.retention.protected_snapshots import SourceProtection, protect_origins, protect_vault_base
from zvault.ops.state.cached_backups import (
    NO_CLONES,
    ByDataset,
    CachedRetention,
    Clones,
    PairVerdicts,
    VerdictDependencies,
)


@dataclass(frozen=True, slots=True)
class Ages:
    """The ``min_age`` of the vault, and that of a vault of this host whose pool the source lies in, in seconds."""

    vault: float = 0.0
    source: float = 0.0


def look_at(
    known: CachedRetention, now: float, zone: tzinfo, protection: SourceProtection, ages: Ages
) -> RetentionLook:
    """A look now. Where all verdicts depend on something else than then, nothing is known."""
    backup = protection.backup
    depends = (backup.name, str(zone), protection.others.key, ages)
    if known.verdicts is None or known.depends != depends:
        lasting = backup.snapshot.skip_unchanged
        known.pairs, known.depends = CachedResults(), depends
        known.verdicts = CachedVerdicts(zone, make_own_filter(backup), lasting=lasting)
    return RetentionLook(known, known.verdicts, now, backup, protection, ages)


@dataclass
class RetentionLook:
    """Decides on pairs, at one moment; ``protection`` says what the source needs whatever the rules say."""

    known: CachedRetention
    verdicts: CachedVerdicts
    now: float
    backup: Backup
    protection: SourceProtection
    ages: Ages

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
        needed = protect_origins(there, clones.get(there.name, NO_CLONES))
        return self._on_vault(there, self.backup.keep.gone, needed)

    def _decided(self, pair: DatasetPair, lent: Clones, clones: Clones, on_vault: Clones) -> PairVerdicts:
        needed = self.protection.protect(pair, lent, clones)
        on_source = self._side(pair.source, self.backup.keep.source, needed, self.ages.source)
        if pair.vault is None:
            return PairVerdicts.of(on_source, None)
        kept = protect_vault_base(pair, pair.vault, on_vault)
        return PairVerdicts.of(on_source, self._on_vault(pair.vault, self.backup.keep.vault, kept))

    def _on_vault(self, there: Dataset, rules: KeepRules, needed: Mapping[int, str]) -> DatasetVerdicts:
        return self._side(there, rules, needed, self.ages.vault)

    def _side(
        self, there: Dataset, rules: KeepRules, needed: Mapping[int, str], min_age: float
    ) -> DatasetVerdicts:
        young = list_too_young(there.snapshots, min_age, self.now)
        return self.verdicts.decide(
            there.snapshots, rules, now=self.now, protected={**young, **needed}, min_age=min_age
        )
