"""What was worked out of each backup at the last look, for the next one: only what changed is worked out again.

Nothing here is a fact by itself. Each part says what its results depend on, and is looked up only where that is the
same: ``pairs`` core/replication/pair_datasets.py, ``lags`` ops/replication/lag.py, ``retention``
ops/retention/cached_verdicts.py. All of them depend on the configuration, and are dropped with it.

From pass to pass goes what the pass before made of each dataset, in their order: the same object where nothing changed.
So no pass visits what did not change (core/cached_results.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from zvault.config.schema import Backup, Config
from zvault.core.cached_results import CachedResults
from zvault.core.model import Dataset
from zvault.core.names import DatasetName
from zvault.core.policy.cached_verdicts import CachedVerdicts, DatasetVerdicts
from zvault.core.policy.retention import KeepDecision
from zvault.core.replication.lag import DatasetLag
from zvault.core.replication.lineage import DatasetPair
from zvault.core.replication.pair_datasets import CachedPairs
from zvault.ops.state.environment import Environment

Clones = Mapping[str, DatasetName]
"""By snapname, who is a clone of it or goes on from it."""

ByDataset = Mapping[str, Clones]

NO_CLONES: Clones = {}


@dataclass(frozen=True, slots=True)
class VerdictDependencies:
    """The facts that verdicts depend on besides their pair, by dataset: from which snapshots others of the source go on
    (``lent``), and which have clones on either side.
    """

    lent: ByDataset = field(default_factory=dict)
    clones: ByDataset = field(default_factory=dict)

    def of(self, pair: DatasetPair) -> tuple[Clones, Clones, Clones]:
        """The snapshots of a pair: lent, and with clones on the source, and on the vault."""
        name, there = pair.source.name, pair.vault
        on_vault = self.clones.get(there.name, NO_CLONES) if there is not None else NO_CLONES
        return self.lent.get(name, NO_CLONES), self.clones.get(name, NO_CLONES), on_vault

    def names(self, pair: DatasetPair) -> set[str]:
        """The datasets by which it has to do with a pair."""
        return {pair.source.name} | ({pair.vault.name} if pair.vault is not None else set())

    def others_than(self, before: VerdictDependencies) -> set[str]:
        """The datasets of which it says something else than then."""
        return {
            name
            for then, now in ((before.lent, self.lent), (before.clones, self.clones))
            if then != now
            for name in then.keys() | now.keys()
            if then.get(name) != now.get(name)
        }


@dataclass(frozen=True, slots=True)
class PairVerdicts:
    """The verdicts on the source's dataset, and on the vault's where there is one; good ``since`` and ``until``."""

    source: DatasetVerdicts
    vault: DatasetVerdicts | None
    since: float
    until: float

    @classmethod
    def of(cls, source: DatasetVerdicts, vault: DatasetVerdicts | None) -> PairVerdicts:
        """Those of a pair."""
        both = [one.verdicts for one in (source, vault) if one is not None]
        return cls(source, vault, max(one.since for one in both), min(one.until for one in both))


@dataclass
class HeldAsWanted:
    """The vault's verdicts whose holds were as these want it, with Zfs.lapses of then, ``but`` some."""

    groups: Sequence[Sequence[KeepDecision]] = ()
    lapses: int = -1
    but: Sequence[Sequence[KeepDecision]] = ()


@dataclass
class CachedRetention:
    """The verdicts of the last look, and what they depend on beside their pairs: ``depends`` is the same for all."""

    pairs: CachedResults[DatasetPair, PairVerdicts] = field(default_factory=CachedResults)
    besides: VerdictDependencies = field(default_factory=VerdictDependencies)
    depends: tuple[object, ...] = ()
    verdicts: CachedVerdicts | None = None
    held: HeldAsWanted = field(default_factory=HeldAsWanted)


@dataclass
class DisprovedPairs:
    """The pairs of which a bookmark on the source tells what a pool does not have."""

    pool: int = 0
    pairs: CachedResults[DatasetPair, bool] = field(default_factory=CachedResults)


CachedRecords = dict[str, tuple[Dataset, int, str]]
"""The record of what each dataset of a source has (ops/replication/source_record.py), with Zfs.lapses of when it was
read.
"""


@dataclass
class CachedBackup:
    """The knowledge of one backup, as it is configured in ``backup`` and ``config``, with this host's name.

    ``lags`` and ``retention`` are of the ``pairs``. ``free_of_steering`` are the GUIDs of the vault's datasets on which
    no stream left a property that steers other tools.
    """

    backup: Backup
    config: Config
    host: str
    pairs: CachedPairs = field(default_factory=CachedPairs)
    lags: CachedResults[DatasetPair, DatasetLag] = field(default_factory=CachedResults)
    records: CachedRecords = field(default_factory=dict)
    retention: CachedRetention = field(default_factory=CachedRetention)
    disproved: DisprovedPairs = field(default_factory=DisprovedPairs)
    free_of_steering: set[int] = field(default_factory=set)


class CachedBackups:
    """By the backup's name."""

    def __init__(self) -> None:
        self._known: dict[str, CachedBackup] = {}

    def of(self, env: Environment, backup: Backup) -> CachedBackup:
        """Return what is known of a backup, by this table of it and the configuration in force; nothing, if one is
        new.
        """
        known = self._known.get(backup.name)
        if (
            known is None
            or known.backup is not backup
            or known.config is not env.config
            or known.host != env.host
        ):
            known = self._known[backup.name] = CachedBackup(backup, env.config, env.host)
        for name in self._known.keys() - env.config.backup.keys():
            del self._known[name]
        return known
