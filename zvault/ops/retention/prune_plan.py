"""Plan the pruning of both sides of a backup: what the rules keep, what is protected, what prune_limit holds back."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

from zvault.api.backups import Side
from zvault.config.schema import Backup
from zvault.core.model import Dataset, Snapshot
from zvault.core.names import DatasetName, SnapshotName
from zvault.core.policy.min_age import too_young
from zvault.core.policy.prune_limit import Excess, excess, within_limit
from zvault.core.policy.retention import KeepDecision, KeepRules, decide, in_order
from zvault.core.replication.plan_model import Ours
from zvault.ops.context import Context
from zvault.ops.replication.sides_and_plan import Sides, ours_of
from zvault.ops.retention.arrivals import NOTHING_ARRIVED, Arrivals
from zvault.ops.retention.other_backups import OtherBackups
from zvault.ops.state.environment import Environment


@dataclass(frozen=True)
class PrunePlan:
    """What to prune on one side of ``backup``: ``judged`` by the rules, dataset by dataset, then within prune_limit.

    Of each dataset a ``share`` of the snapshots that are ``ours`` may go in one run, the oldest first. What ``arrived``
    in this run (GUIDs) does not count. ``replica`` tells that others send what is there: zvault holds the newest of it,
    and what is kept for long.
    """

    side: Side
    judged: tuple[KeepDecision, ...]
    share: float = 1.0
    ours: Ours = lambda _: True
    backup: str = "BACKUP"
    arrived: Set[int] = frozenset()
    replica: bool = False

    @cached_property
    def _by_dataset(self) -> list[tuple[list[KeepDecision], Excess | None]]:
        found = []
        for _, group in groupby(self.judged, key=lambda verdict: verdict.snapshot.dataset):
            verdicts = list(group)
            found.append((verdicts, excess(verdicts, self.share, self.ours, self.arrived)))
        return found

    @cached_property
    def verdicts(self) -> tuple[KeepDecision, ...]:
        """Every snapshot with its reason."""
        limited = (within_limit(verdicts, over, self.arrived) for verdicts, over in self._by_dataset)
        return tuple(verdict for verdicts in limited for verdict in verdicts)

    @property
    def over(self) -> tuple[Excess, ...]:
        """The datasets of which prune_limit holds something back."""
        return tuple(over for _, over in self._by_dataset if over is not None)

    @property
    def selected(self) -> list[Snapshot]:
        """The snapshots selected for pruning, those of a dataset in the order in which they are to go."""
        limited = (within_limit(verdicts, over, self.arrived) for verdicts, over in self._by_dataset)
        return [verdict.snapshot for verdicts in limited for verdict in in_order(verdicts)]

    @property
    def unwanted(self) -> list[Snapshot]:
        """Those that no rule keeps, also where prune_limit does."""
        return [verdict.snapshot for verdict in self.judged if not verdict.keep]


def plan_prune(
    context: Context,
    backup: Backup,
    sides: Sides,
    *,
    over_limit: bool = False,
    arrived: Arrivals = NOTHING_ARRIVED,
) -> list[PrunePlan]:
    """Plan the pruning of both sides; of the source alone where there is no vault, or its own host prunes it.
    Protected are bases, snapshots that have clones, and those that this backup, or another of the same source, has not
    sent yet.

    What is held is not known here: see ``without_stuck``. ``over_limit`` selects also what prune_limit holds back;
    for it does not count what ``arrived`` in the run that prunes.
    """
    env, others = context.env, OtherBackups.of(context, backup)
    share = 1.0 if over_limit else backup.prune_limit
    source, vault = _Judge(env, backup, share), _Judge(env, backup, share)
    clones = sides.source.clones() | sides.vault.clones()
    min_age = env.vault(backup.vault).min_age if backup.vault is not None else 0.0
    min_age_of_source = env.min_age_of(backup.source)

    def young(there: Dataset, age: float = min_age) -> dict[int, str]:
        return too_young(there.snapshots, age, env.clock.time())

    bases = {pair.base[0].name for pair in sides.pairing.pairs if pair.base is not None}
    for pair in sides.pairing.pairs:
        base, there = pair.base, pair.vault
        guards = _source_guards(pair.source, base[0].createtxg if base else 0) if backup.vault else {}
        borrowed = {snap.guid: _BASE for snap in pair.source.snapshots if snap.name in bases}
        needed = young(pair.source, min_age_of_source) | others.need(pair.source) | guards | borrowed
        source.judge(pair.source, backup.keep.source, needed | _origins(pair.source, clones))
        if there is not None:
            kept = {base[1].guid: _BASE} if base else _all(there)
            vault.judge(there, backup.keep.vault, young(there) | kept | _origins(there, clones))
    for there in sides.pairing.gone:
        vault.judge(there, backup.keep.gone, young(there) | _origins(there, clones))
    sides_pruned = [replace(source.plan("source", arrived.source), replica=backup.prunes_only)]
    if backup.prunes_vault:
        sides_pruned.append(replace(vault.plan("vault", arrived.vault), replica=True))
    return sides_pruned


_BASE = "the base of the next incremental"


class _Judge:
    """Collects the verdicts on one side."""

    def __init__(self, env: Environment, backup: Backup, share: float) -> None:
        self.now, self.zone = env.clock.time(), env.zone
        self.backup, self.ours, self.share = backup.name, ours_of(backup), share
        self.lasting = backup.snapshot.skip_unchanged
        self.verdicts: list[KeepDecision] = []

    def judge(self, dataset: Dataset, rules: KeepRules, protected: Mapping[int, str]) -> None:
        self.verdicts += decide(
            dataset.snapshots,
            rules,
            now=self.now,
            zone=self.zone,
            protected=protected,
            ours=self.ours,
            lasting=self.lasting,
        )

    def plan(self, side: Side, arrived: Set[int]) -> PrunePlan:
        return PrunePlan(side, tuple(self.verdicts), self.share, self.ours, self.backup, arrived)


def _source_guards(dataset: Dataset, base_txg: int) -> dict[int, str]:
    return {
        snap.guid: _BASE if snap.createtxg == base_txg else "not on the vault yet"
        for snap in dataset.snapshots
        if snap.createtxg >= base_txg
    }


def _origins(dataset: Dataset, clones: Mapping[SnapshotName, DatasetName]) -> dict[int, str]:
    """The snapshots that others are clones of; ZFS would not destroy them."""
    return {
        snap.guid: f"{clones[snap.name]} is a clone of it"
        for snap in dataset.snapshots
        if snap.name in clones
    }


def _all(dataset: Dataset) -> dict[int, str]:
    return {snap.guid: "no base is shared with the source any more" for snap in dataset.snapshots}
