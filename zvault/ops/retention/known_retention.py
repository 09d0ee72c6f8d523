"""Retention's verdicts on a backup's datasets, looked up for those of which nothing changed.

The verdicts on a pair depend on both sides' snapshots and bookmarks (the pair is the same object), on which snapshots
others are clones of or go on from, on what other backups have still to send (their pools, and the bookmarks in the
pair), on the backup's table, on the ``min_age`` of the vault and of that which the source lies in, on the time zone,
and on now as core/policy/known_verdicts.py says. Holds and clones elsewhere are no part of them: those are asked of the
pools each time (``without_stuck``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import tzinfo

from zvault.config.schema import Backup
from zvault.core.model import Dataset
from zvault.core.policy.known_verdicts import DatasetVerdicts, KnownVerdicts
from zvault.core.policy.min_age import too_young
from zvault.core.policy.retention import KeepRules
from zvault.core.replication.lineage import DatasetPair
from zvault.core.snapshot_list import after, guids_of
from zvault.ops.replication.sides_and_plan import ours_of
from zvault.ops.retention.other_backups import OtherBackups
from zvault.ops.state.known_backups import Both, Clones, KnownRetention, PairVerdicts

NONE: Clones = {}

_BASE = "the base of the next incremental"


@dataclass(frozen=True, slots=True)
class Ages:
    """The ``min_age`` of the vault, and that of a vault of this host whose pool the source lies in, in seconds."""

    vault: float = 0.0
    source: float = 0.0


def look_at(
    known: KnownRetention, now: float, zone: tzinfo, backup: Backup, others: OtherBackups, ages: Ages
) -> RetentionLook:
    """A look now. Where all verdicts depend on something else than then, nothing is known."""
    depends = (backup.name, str(zone), others.key, ages)
    if known.verdicts is None or known.depends != depends:
        lasting = backup.snapshot.skip_unchanged
        known.pairs, known.depends = {}, depends
        known.verdicts = KnownVerdicts(zone, ours_of(backup), lasting=lasting)
    return RetentionLook(known, known.verdicts, now, backup, others, ages)


@dataclass
class RetentionLook:
    """Decides pair by pair, at one moment."""

    known: KnownRetention
    verdicts: KnownVerdicts
    now: float
    backup: Backup
    others: OtherBackups
    ages: Ages
    seen: dict[str, PairVerdicts] = field(default_factory=dict)

    def pair(self, pair: DatasetPair, lent: Mapping[str, Clones], clones: Mapping[str, Clones]) -> Both:
        """Both sides of a pair. ``lent`` are snapshots from which other datasets go on."""
        name, there = pair.source.name, pair.vault
        on_vault = clones.get(there.name, NONE) if there is not None else NONE
        besides = (lent.get(name, NONE), clones.get(name, NONE), on_vault)
        before = self.known.pairs.get(name)
        if (
            before is None
            or before.pair is not pair
            or before.besides != besides
            or not self._hold(before.both)
        ):
            before = PairVerdicts(pair, besides, self._decided(pair, *besides))
        self.seen[name] = before
        return before.both

    def gone(self, there: Dataset, clones: Mapping[str, Clones]) -> DatasetVerdicts:
        """A dataset of the vault that the source has no more."""
        needed = _origins(there, clones.get(there.name, NONE))
        return self._on_vault(there, self.backup.keep.gone, needed)

    def end(self) -> None:
        """Forget what was not asked for."""
        self.known.pairs = self.seen

    def _hold(self, both: Both) -> bool:
        source, vault = both
        return source.verdicts.hold(self.now) and (vault is None or vault.verdicts.hold(self.now))

    def _decided(self, pair: DatasetPair, lent: Clones, clones: Clones, on_vault: Clones) -> Both:
        base, there, source = pair.base, pair.vault, pair.source
        guards = _source_guards(source, base[0].createtxg if base else 0) if self.backup.vault else {}
        borrowed = {snap.guid: _BASE for snap in source.snapshots if snap.snapname in lent} if lent else {}
        protected = self.others.need(source) | guards | borrowed | _origins(source, clones)
        on_source = self._side(source, self.backup.keep.source, protected, self.ages.source)
        if there is None:
            return on_source, None
        kept = {base[1].guid: _BASE} if base else _all(there)
        return on_source, self._on_vault(there, self.backup.keep.vault, kept | _origins(there, on_vault))

    def _on_vault(self, there: Dataset, rules: KeepRules, needed: Mapping[int, str]) -> DatasetVerdicts:
        return self._side(there, rules, needed, self.ages.vault)

    def _side(
        self, there: Dataset, rules: KeepRules, needed: Mapping[int, str], min_age: float
    ) -> DatasetVerdicts:
        young = too_young(there.snapshots, min_age, self.now)
        return self.verdicts.decide(
            there.snapshots, rules, now=self.now, protected={**young, **needed}, min_age=min_age
        )


def _source_guards(dataset: Dataset, base_txg: int) -> dict[int, str]:
    return {
        snap.guid: _BASE if snap.createtxg == base_txg else "not on the vault yet"
        for snap in after(dataset.snapshots, base_txg - 1)
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
    return dict.fromkeys(guids_of(dataset.snapshots), "no base is shared with the source any more")
