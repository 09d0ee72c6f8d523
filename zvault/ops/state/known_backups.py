"""What was worked out of each backup at the last look, for the next one: only what changed is worked out again.

Nothing here is a fact by itself. Each part says what its results depend on, and is looked up only where that is the
same: ``pairs`` core/replication/lineage.py, ``plans`` core/replication/planner.py, ``lags`` ops/replication/lag.py,
``retention`` ops/retention/known_retention.py. All of them depend on the configuration, and are dropped with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zvault.config.schema import Backup, Config
from zvault.core.model import Dataset
from zvault.core.names import DatasetName
from zvault.core.policy.known_verdicts import DatasetVerdicts, KnownVerdicts
from zvault.core.replication.lag import DatasetLag
from zvault.core.replication.lineage import DatasetPair, KnownPairs
from zvault.core.replication.planner import KnownPlans
from zvault.ops.state.environment import Environment

Clones = Mapping[str, DatasetName]
"""By snapname, who is a clone of it or goes on from it."""

Both = tuple[DatasetVerdicts, DatasetVerdicts | None]
"""The verdicts on the source's dataset, and on the vault's where there is one."""


@dataclass(frozen=True, slots=True)
class PairVerdicts:
    """The verdicts on a pair, and what they depend on besides."""

    pair: DatasetPair
    besides: tuple[Clones, Clones, Clones]
    both: Both


@dataclass
class KnownRetention:
    """The verdicts of the last look, by the source's dataset, and what they all depend on. ``held`` are the vault's
    datasets whose holds are as the verdicts on them want it, as long as Zfs.lapses is what it was.
    """

    pairs: dict[str, PairVerdicts] = field(default_factory=dict)
    depends: tuple[object, ...] = ()
    verdicts: KnownVerdicts | None = None
    held: dict[str, tuple[DatasetVerdicts, int]] = field(default_factory=dict)


KnownRecords = dict[str, tuple[Dataset, int, str]]
"""The record of what each dataset of a source has (ops/replication/source_record.py), with Zfs.lapses of when it was
read.
"""


@dataclass
class KnownBackup:
    """Of one backup, as it is configured in ``backup`` and ``config``, with this host's name: by its datasets' names.

    ``places``: whether its patterns take it, and its place on the vault. ``quiet``: of which pairs nothing has to be
    asked of the pools for a plan, with what the dataset above on the vault has on record. ``lags``: with the pair,
    and until when the source was as its newest snapshot there.
    """

    backup: Backup
    config: Config
    host: str
    places: dict[str, tuple[bool, DatasetName]] = field(default_factory=dict)
    pairs: KnownPairs = field(default_factory=KnownPairs)
    quiet: dict[str, tuple[DatasetPair, str]] = field(default_factory=dict)
    plans: KnownPlans = field(default_factory=dict)
    lags: dict[str, tuple[DatasetPair, float | None, DatasetLag]] = field(default_factory=dict)
    records: KnownRecords = field(default_factory=dict)
    retention: KnownRetention = field(default_factory=KnownRetention)


class KnownBackups:
    """By the backup's name."""

    def __init__(self) -> None:
        self._known: dict[str, KnownBackup] = {}

    def of(self, env: Environment, backup: Backup) -> KnownBackup:
        """What is known of a backup, by this table of it and the configuration in force; nothing, if one is new."""
        known = self._known.get(backup.name)
        if (
            known is None
            or known.backup is not backup
            or known.config is not env.config
            or known.host != env.host
        ):
            known = self._known[backup.name] = KnownBackup(backup, env.config, env.host)
        for name in self._known.keys() - env.config.backup.keys():
            del self._known[name]
        return known
