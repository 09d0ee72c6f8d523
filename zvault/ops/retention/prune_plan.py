"""Plan the pruning of both sides of a backup: what the rules keep, what is protected, what prune_limit holds back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, compress, filterfalse, groupby, repeat
from operator import attrgetter, is_not, not_
from typing import ParamSpec, TypeVar, overload

from zvault.api.backups import Side
from zvault.config.schema import Backup
from zvault.core.lazy import LazyProperty
from zvault.core.model import Snapshot
from zvault.core.names import DatasetName, SnapshotName, split_snapshot
from zvault.core.policy.cached_verdicts import DatasetVerdicts, keeps_all, pack_verdicts
from zvault.core.policy.prune_limit import PruneExcess, find_prune_excess, limit_prune
from zvault.core.policy.retention import KeepDecision, order_by_prune
from zvault.core.replication.lineage import Pairing
from zvault.core.replication.plan_model import SnapshotFilter
from zvault.ops.context import Context
from zvault.ops.replication.listing import BothListings, make_own_filter
from zvault.ops.retention.arrivals import NOTHING_ARRIVED, Arrivals
from zvault.ops.retention.cached_verdicts import Ages, look_at
from zvault.ops.retention.other_backups import OtherBackups
from zvault.ops.retention.protected_snapshots import SourceProtection, UnseenVault
from zvault.ops.state.cached_backups import CachedRetention, Clones, VerdictDependencies
from zvault.ops.state.older_vault import find_older_vault
from zvault.system.side_threads import compute_aside

OLDER_VAULT_REASON = "its vault is older than it was: nothing is pruned until somebody accepts that"

P = ParamSpec("P")
T = TypeVar("T")


class DatasetVerdictList(Sequence[KeepDecision]):
    """Verdicts, dataset by dataset: nearly all of them keep, and need not be looked at one by one."""

    def __init__(self, groups: Sequence[Sequence[KeepDecision]]) -> None:
        self.groups = groups

    def __len__(self) -> int:
        return sum(map(len, self.groups))

    @overload
    def __getitem__(self, at: int) -> KeepDecision: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[KeepDecision]: ...
    def __getitem__(self, at: int | slice) -> KeepDecision | Sequence[KeepDecision]:
        return tuple(self)[at]

    def __iter__(self) -> Iterator[KeepDecision]:
        return chain.from_iterable(self.groups)


@dataclass(frozen=True)
class PrunePlan:
    """The plan of what to prune on one side of ``backup``: ``judged`` by the rules, dataset by dataset, then within
    prune_limit.

    Of each dataset a ``share`` of the snapshots that are ``ours`` may go in one run, the oldest first. What ``arrived``
    in this run (GUIDs) does not count. ``replica`` tells that others send what is there: zvault holds the newest of it,
    and what is kept for long. ``known`` is what is known of the backup's retention. ``between_runs`` no run prunes:
    then a dataset over the limit loses nothing.
    """

    side: Side
    judged: Sequence[KeepDecision]
    share: float = 1.0
    ours: SnapshotFilter = lambda _: True
    backup: str = "BACKUP"
    arrived: Set[int] = frozenset()
    replica: bool = False
    known: CachedRetention | None = field(default=None, compare=False, repr=False)
    between_runs: bool = False

    @LazyProperty
    def size(self) -> int:
        return len(self.judged)

    async def compute(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Compute ``work`` on the verdicts: beside the event loop, where they are many (system/side_threads.py)."""
        return await compute_aside(self.size, self.known, work, *args, **kwargs)

    @LazyProperty
    def groups(self) -> Sequence[Sequence[KeepDecision]]:
        """The verdicts dataset by dataset."""
        if isinstance(self.judged, DatasetVerdictList):
            return self.judged.groups
        by_dataset = groupby(self.judged, key=lambda verdict: verdict.snapshot.dataset)
        return [list(group) for _, group in by_dataset]

    @LazyProperty
    def _pruned(self) -> list[tuple[Sequence[KeepDecision], PruneExcess | None]]:
        """The datasets of which the rules select any."""
        some: Iterable[Sequence[KeepDecision]]
        if all(map(isinstance, self.groups, repeat(DatasetVerdicts))):
            some = compress(self.groups, map(not_, map(attrgetter("verdicts.all_kept"), self.groups)))
        else:
            some = filterfalse(keeps_all, self.groups)
        find_excess = partial(find_prune_excess, between_runs=self.between_runs)
        return [(verdicts, find_excess(verdicts, self.share, self.ours, self.arrived)) for verdicts in some]

    @LazyProperty
    def verdicts(self) -> Sequence[KeepDecision]:
        """Every snapshot with its reason; each is made when it is asked for."""
        limited = {
            id(one): pack_verdicts(one, limit_prune(one, over, self.arrived))
            for one, over in self._pruned
            if over is not None
        }
        return DatasetVerdictList([limited.get(id(one), one) for one in self.groups])

    @property
    def over(self) -> tuple[PruneExcess, ...]:
        """The datasets of which prune_limit holds something back."""
        return tuple(over for _, over in self._pruned if over is not None)

    @property
    def selected(self) -> list[Snapshot]:
        """The snapshots selected for pruning, those of a dataset in the order in which they are to go."""
        limited = (limit_prune(verdicts, over, self.arrived) for verdicts, over in self._pruned)
        return [verdict.snapshot for verdicts in limited for verdict in order_by_prune(verdicts)]

    @property
    def unwanted(self) -> list[Snapshot]:
        """Those that no rule keeps, also where prune_limit does."""
        return [one.snapshot for verdicts, _ in self._pruned for one in verdicts if not one.keep]

    def leave_out(self, datasets: Set[str]) -> PrunePlan:
        """Return the same plan without some datasets."""
        if not datasets:
            return self
        left = [group for group in self.groups if find_verdicts_dataset(group) not in datasets]
        return replace(self, judged=DatasetVerdictList(left))


def find_verdicts_dataset(verdicts: Sequence[KeepDecision]) -> str | None:
    """Return the dataset that verdicts are about; None where there are none."""
    if isinstance(verdicts, DatasetVerdicts):
        return verdicts.dataset
    return verdicts[0].snapshot.dataset if verdicts else None


def plan_prune(
    context: Context,
    backup: Backup,
    sides: BothListings,
    *,
    over_limit: bool = False,
    arrived: Arrivals = NOTHING_ARRIVED,
    between_runs: bool = False,
) -> list[PrunePlan]:
    """Plan the pruning of both sides; of the source alone where there is no vault, or its own host prunes it.
    Protected are bases, snapshots that have clones, and those that this backup, or another of the same source, has not
    sent yet.

    Where the vault is older than it was, as its store was put back, nothing is pruned.

    Where the vault was not seen, the source's bookmarks tell what it has. What is held is not known here: see
    ``prune.drop_stuck``. ``over_limit`` selects also what prune_limit holds back;
    for it does not count what ``arrived`` in the run that prunes. ``between_runs`` no run prunes, see ``PrunePlan``.
    """
    env = context.env
    share = 1.0 if over_limit else backup.prune_limit
    min_age = env.vault(backup.vault).min_age if backup.vault is not None else 0.0
    unseen = None
    if backup.vault is not None and not sides.vault_seen:
        unseen = UnseenVault(context.records.pools.last(env.vault(backup.vault)))
    # Of a look that did not see the vault nothing is kept: the next one may.
    known = sides.known.retention if sides.known is not None and unseen is None else CachedRetention()
    protection = SourceProtection(backup, OtherBackups.of(context, backup), unseen)
    ages = Ages(min_age, env.min_age_of(backup.source))
    looked = look_at(known, env.clock.time(), env.zone, protection, ages)
    besides = VerdictDependencies(
        _by_dataset(_lent(sides.pairing)), _by_dataset(sides.source.clones() | sides.vault.clones())
    )
    both = looked.pairs(sides.pairing.pairs, besides)
    source: list[DatasetVerdicts] = list(map(attrgetter("source"), both))
    vault = [*filter(_is_there, map(attrgetter("vault"), both))]
    vault += [looked.gone(there, besides.clones) for there in sides.pairing.gone]
    ours = make_own_filter(backup)
    older = backup.vault is not None and find_older_vault(context.env, context.records, backup.vault) != ""

    def plan(side: Side, groups: Sequence[DatasetVerdicts], arrived: Set[int]) -> PrunePlan:
        replica = backup.prunes_only or side == "vault"
        judged = DatasetVerdictList([_keep_every(one) for one in groups] if older else groups)
        return PrunePlan(side, judged, share, ours, backup.name, arrived, replica, known, between_runs)

    pruned = [plan("source", source, arrived.source)]
    return [*pruned, plan("vault", vault, arrived.vault)] if backup.prunes_vault else pruned


def _keep_every(verdicts: Sequence[KeepDecision]) -> Sequence[KeepDecision]:
    """The verdicts, with nothing to be pruned: what the newer store was based on is needed if that comes back."""
    if keeps_all(verdicts):
        return verdicts
    return [one if one.keep else replace(one, keep=True, reason=OLDER_VAULT_REASON) for one in verdicts]


_is_there = partial(is_not, None)


def _lent(pairing: Pairing) -> dict[SnapshotName, DatasetName]:
    """The bases that another dataset of the source has than the one that they are the base of, with the one they are
    in.
    """
    branched = compress(pairing.pairs, map(attrgetter("ancestry"), pairing.pairs))
    bases = [
        pair.base[0]
        for pair in branched
        if pair.base is not None and pair.base[0].dataset != pair.source.name
    ]
    return {base.dataset.snapshot(base.shortname): base.dataset for base in bases}


def _by_dataset(found: Mapping[SnapshotName, DatasetName]) -> Mapping[str, Clones]:
    """The same by the dataset, and then the snapname, of the snapshots."""
    by_dataset: dict[str, dict[str, DatasetName]] = {}
    for name, of_it in found.items():
        dataset, snapname = split_snapshot(name)
        by_dataset.setdefault(dataset, {})[snapname or ""] = of_it
    return by_dataset
