"""The planner: what a run has to do so that a vault follows its source, dataset by dataset, and why.

The vault's names are followed through all that is planned, so that what is renamed, set aside or branched for one
dataset is known to those planned after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import cast

from zvault.core.lazy import LazyProperty
from zvault.core.model import Dataset, Snapshot, Tree
from zvault.core.names import DatasetName
from zvault.core.replication.base_elsewhere import StrayBackup
from zvault.core.replication.dataset_plan import DatasetCase, RelatedSnapshot, plan_transfer
from zvault.core.replication.lineage import ASIDE_INFIX, DatasetPair, Pairing, is_aside
from zvault.core.replication.name_length import NameConflict
from zvault.core.replication.names_on_vault import NamesOnVault
from zvault.core.replication.plan_model import (
    InterruptedReceive,
    SnapshotFilter,
    TransferAction,
    TransferPlan,
    TransferPolicy,
    UnencryptedSource,
    UnknownDataset,
    list_sent_by,
)
from zvault.core.replication.plan_order import PlanOrder, has_parents_first, order_origins_first
from zvault.core.replication.send_record import FlagConflict
from zvault.core.replication.vault_changes import BranchDataset, RenameDataset
from zvault.core.snapshot_list import list_guids

PlanObstacle = NameConflict | StrayBackup | UnknownDataset | UnencryptedSource
"""What keeps a dataset from being planned: nothing of it is touched on the vault."""


@dataclass(frozen=True, slots=True)
class PoolAnswers:
    """The pools' answers besides their listings, by the vault dataset's name.

    ``interrupted`` are the resume tokens; ``unchanged`` are datasets with snapshots after the base, but nothing
    written since; ``held`` the names of snapshots that would have to go in a rollback and are held, ``kept`` of those
    that retention would not prune, with the reason; ``misfits`` say of datasets that cannot be followed why.
    """

    interrupted: Mapping[str, InterruptedReceive] = field(default_factory=dict)
    unchanged: Set[str] = frozenset()
    held: Set[str] = frozenset()
    kept: Mapping[str, str] = field(default_factory=dict)
    misfits: Mapping[str, FlagConflict] = field(default_factory=dict)


def plan_tree(
    pairing: Pairing,
    vault: Tree,
    *,
    wanted: SnapshotFilter,
    policy: TransferPolicy | None = None,
    answers: PoolAnswers | None = None,
    conflicts: Mapping[str, PlanObstacle] | None = None,
) -> Sequence[TransferPlan]:
    """Plan every pair, parents first and each after those it needs. ``conflicts`` are of source datasets, by name.

    A pair that simply goes on is planned by itself. Where all do there is nothing else to plan; else all are gone
    through, and those others are planned as parts of the whole.
    """
    policy, answers = policy or TransferPolicy(), answers or PoolAnswers()
    simple = [_simple_plan(pair, wanted, policy) for pair in pairing.pairs]
    others = answers.misfits or answers.interrupted or conflicts or not all(simple)
    if not others and _in_order(pairing.pairs):
        return cast(Sequence[TransferPlan], simple)
    planner = _Planner(pairing, vault, wanted, policy, answers, conflicts or {}, simple)
    for pair in order_origins_first(pairing.pairs):
        planner.plan(pair)
    return planner.plans


def _in_order(pairs: Sequence[DatasetPair]) -> bool:
    """True if parents come before children, and nothing else counts."""
    return not any(pair.ancestry for pair in pairs) and has_parents_first(
        [pair.source.name for pair in pairs]
    )


def _goes_on(pair: DatasetPair, policy: TransferPolicy) -> bool:
    """True if a pair simply goes on: neither side is a clone, nothing waits to be resumed, and the base is the newest
    that the vault has.
    """
    there = pair.vault
    return (
        pair.goes_on
        and there is not None
        and there.resume_token is None
        and pair.source.origin is None
        and there.origin is None
        and policy.on_conflict != "new-dataset"
    )


def _simple_plan(pair: DatasetPair, wanted: SnapshotFilter, policy: TransferPolicy) -> TransferPlan | None:
    """The plan of a pair that simply goes on and lies in its place, which depends on nothing but that: not on another
    dataset, a hold, or a rule of retention. None where it is no such pair, or more is to be done than send.
    """
    there = pair.vault
    if there is None or there.name != pair.target or not _goes_on(pair, policy):
        return None
    made = plan_transfer(DatasetCase(pair.source, pair.target, there, found=pair.base), wanted, policy)
    simple = (
        made.action in {TransferAction.NOTHING, TransferAction.INCREMENTAL}
        and not made.changes
        and not made.after
    )
    return made if simple else None


@dataclass
class _Planner:
    pairing: Pairing
    vault: Tree
    wanted: SnapshotFilter
    policy: TransferPolicy
    answers: PoolAnswers
    conflicts: Mapping[str, PlanObstacle]
    simple: Sequence[TransferPlan | None]
    plans: list[TransferPlan] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Nothing is planned yet."""
        self.names = NamesOnVault(self.vault)
        self.order = PlanOrder()
        self.by_dataset: dict[DatasetName, TransferPlan] = {}
        self.by_pair = dict(zip(map(id, self.pairing.pairs), self.simple, strict=True))
        self.clones = self.vault.clones()
        # Snapshots that the vault has or will have: by GUID, in which dataset (as listed, or a target), as what.
        self.held: dict[int, RelatedSnapshot] = {}
        self.ancestors: dict[int, frozenset[Snapshot]] = {}

    @LazyProperty
    def heirs(self) -> dict[DatasetName, DatasetPair]:
        """The pair that claims each dataset of the vault."""
        everyone = (*self.pairing.pairs, *self.pairing.unselected)
        return {pair.vault.name: pair for pair in everyone if pair.vault is not None}

    @LazyProperty
    def listed(self) -> dict[int, tuple[Dataset, Snapshot]]:
        """By GUID, the snapshots that the vault has of those that a source dataset may begin or branch off with.

        What goes on from its base has no use for them, and is nearly everything; so they are sought among the rest.
        """
        sought: set[int] = set()
        for pair in self.pairing.pairs:
            if not self._plain(pair):
                sought.update(list_guids(pair.source.snapshots))
                sought.update(snap.guid for snap in pair.ancestry)
        return {
            snap.guid: (dataset, snap)
            for dataset in sorted(self.vault, key=lambda one: one.name in self.heirs)
            if not sought.isdisjoint(list_guids(dataset.snapshots))
            for snap in dataset.snapshots
        }

    @LazyProperty
    def there(self) -> dict[int, Snapshot]:
        """By GUID, all snapshots that the vault has, as they were listed."""
        return {snap.guid: snap for dataset in self.vault for snap in dataset.snapshots}

    def _plain(self, pair: DatasetPair) -> bool:
        """True if a pair simply goes on, and may."""
        there = pair.vault
        return (
            there is not None
            and there.name not in self.answers.misfits
            and there.name not in self.answers.interrupted
            and _goes_on(pair, self.policy)
        )

    def _simple(self, pair: DatasetPair) -> TransferPlan | None:
        """The plan that was made of a pair by itself, if nothing planned so far moved it."""
        made, there = self.by_pair[id(pair)], pair.vault
        if made is None or there is None or not self._plain(pair):
            return None
        return made if self.names.at[there.name] == pair.target else None

    def plan(self, pair: DatasetPair) -> None:
        if (conflict := self.conflicts.get(pair.source.name)) is not None:
            # Nothing of it is touched on the vault: no name there would follow its own, or a person has to decide.
            self.plans.append(_refused(pair, conflict))
            return
        made = self._simple(pair)
        if made is None:
            made = self._planned_anew(pair)
        elif not made.steps and not self.order.rearranging:
            self.plans.append(made)
            return
        if after := self.order.needed(pair, made, self.plans):
            made = replace(made, after=after)
        self._note_arrivals(pair, made)
        self.plans.append(made)
        self.order.note(made)

    def _planned_anew(self, pair: DatasetPair) -> TransferPlan:
        renames, obstacle = self._arrange(pair)
        if obstacle:
            return self._conflict(pair, obstacle)
        made = plan_transfer(self._case(pair), self.wanted, self.policy)
        self.names.follow(made.changes)
        return replace(made, changes=(*renames, *made.changes)) if renames else made

    # Names

    def _arrange(self, pair: DatasetPair) -> tuple[tuple[RenameDataset, ...], str]:
        """The renames that bring a dataset's backup to its place, or what stands in the way."""
        there, target = pair.vault, pair.target
        here = self.names.at[there.name] if there is not None else None
        if here == target:
            return (), ""
        occupant = self.names.occupant(target)
        if here is None and occupant is None:
            return (), ""
        renames: list[RenameDataset] = []
        if occupant is not None:
            away, reason = self._way_out(occupant, target)
            if away is None:
                return (), f"{target} on the vault is something else"
            renames.append(self.names.rename(target, away, reason))
            here = self.names.at[there.name] if there is not None else None
        if here is not None and here != target:
            follows = f"it follows {pair.source.name}"
            if target.is_within(here):
                # ZFS renames nothing to a name below its own: that one has to be free first.
                away = self.names.free_name(here)
                renames.append(self.names.rename(here, away, follows))
                here = away
            renames.append(self.names.rename(here, target, follows))
        return tuple(renames), ""

    def _way_out(self, occupant: DatasetName, target: DatasetName) -> tuple[DatasetName | None, str]:
        """Where to put what lies at another's place, and why; nowhere if it is not to be moved."""
        heir = self.heirs.get(occupant)
        if heir is None:
            movable = self.vault.datasets[occupant].placeholder or self.policy.on_conflict == "new-dataset"
            aside = target.add_suffix(ASIDE_INFIX + self.policy.stamp)
            return (aside, "it follows nothing on the source") if movable else (None, "")
        taken = self.names.taken
        away = heir.target
        roomy = away not in taken and not away.is_within(target) and away.parent in taken
        return (away if roomy else self.names.free_name(target)), f"it follows {heir.source.name}"

    # Relations

    def _case(self, pair: DatasetPair) -> DatasetCase:
        there = pair.vault
        if there is None:
            return DatasetCase(pair.source, pair.target, None, pair.ancestry, kin=tuple(self._kin(pair)))
        if self._plain(pair):
            return DatasetCase(pair.source, pair.target, there, found=pair.base)
        clones = {
            snap.snapname: self.clones[snap.name] for snap in there.snapshots if snap.name in self.clones
        }
        branched = self.vault.snapshot(there.origin) if there.origin is not None else None
        if branched is not None:
            # Another may have been promoted over what it branched off from.
            kin = self.held.get(branched.guid)
            holder = kin.on_vault.dataset if kin is not None else self.names.at[branched.dataset]
            branched = replace(branched, dataset=holder)
        return DatasetCase(
            pair.source,
            pair.target,
            there,
            pair.ancestry,
            interrupted=self.answers.interrupted.get(there.name),
            unchanged=there.name in self.answers.unchanged,
            clones=clones,
            held=self.answers.held,
            kept=self.answers.kept,
            branched=branched,
            kin=tuple(self._kin(pair)),
            found=pair.base,
            misfit=self.answers.misfits.get(there.name),
        )

    def _kin(self, pair: DatasetPair) -> Iterator[RelatedSnapshot]:
        """Where else the vault has a part of a dataset's history: its own first, then that of its ancestors."""
        for snap in reversed(pair.source.snapshots):
            if snap.guid in self.listed:
                holder, there = self.listed[snap.guid]
                if holder is not pair.vault and self._may_branch(pair, holder, snap):
                    heir = self.heirs.get(holder.name)
                    owner = heir.source.name if heir is not None and self._planned(heir) is not None else None
                    yield RelatedSnapshot(snap, self.names.at[holder.name].snapshot(there.snapname), owner)
        for snap in pair.ancestry:
            if snap.guid in self.held:
                yield replace(self.held[snap.guid], base=snap)
            elif snap.guid in self.listed:
                holder, there = self.listed[snap.guid]
                yield RelatedSnapshot(snap, self.names.at[holder.name].snapshot(there.snapname))

    def _planned(self, pair: DatasetPair) -> TransferPlan | None:
        for made in self.plans[len(self.by_dataset) :]:
            self.by_dataset[made.dataset] = made
        return self.by_dataset.get(pair.source.name)

    def _may_branch(self, pair: DatasetPair, holder: Dataset, base: Snapshot) -> bool:
        """True if a dataset may take over another's history up to ``base``: its heir must be left with its own base.

        It may where the source has it so (one was promoted), or where the other follows nothing any more.
        """
        heir = self.heirs.get(holder.name)
        if heir is None:
            return not is_aside(holder.name) or holder.name.startswith(pair.target.add_suffix(ASIDE_INFIX))
        if base not in self._ancestors(heir) or heir.base is None:
            return False
        if heir.base[0].createtxg > base.createtxg:
            return True
        first = self._planned(heir)
        goes_on = first is not None and first.action in {TransferAction.INCREMENTAL, TransferAction.RESUME}
        return goes_on and self.names.at[holder.name] == heir.target

    def _ancestors(self, heir: DatasetPair) -> Set[Snapshot]:
        """A pair's ancestry as a set: it is asked for each snapshot of each dataset that shares it."""
        found = self.ancestors.get(id(heir))
        if found is None:
            found = self.ancestors[id(heir)] = frozenset(heir.ancestry)
        return found

    # What is where afterwards

    def _note_arrivals(self, pair: DatasetPair, made: TransferPlan) -> None:
        if made.action is TransferAction.CONFLICT:
            return
        for change in made.changes:
            if isinstance(change, BranchDataset):
                self._give(pair, change)
        if made.steps or made.changes:
            # What lies above is made where it is missing, to hold it.
            self.names.made.update((pair.target, *pair.target.ancestors))
        for step in made.steps:
            for snap in list_sent_by(step, pair.source.snapshots):
                self.held[snap.guid] = RelatedSnapshot(
                    snap, pair.target.snapshot(snap.snapname), pair.source.name
                )

    def _give(self, pair: DatasetPair, branch: BranchDataset) -> None:
        """A promoted dataset owns the snapshots up to its origin from now on."""
        self.names.made.add(pair.target)
        listed = self.names.occupant(branch.origin.dataset)
        for snap in self.vault.datasets[listed].snapshots if listed is not None else ():
            # One that an earlier promotion took is not there any more.
            if snap.guid in self.listed and self.listed[snap.guid][0].name == listed:
                self.held[snap.guid] = RelatedSnapshot(
                    snap, pair.target.snapshot(snap.snapname), pair.source.name
                )
                del self.listed[snap.guid]
            if snap.snapname == branch.origin.snapname:
                break
        self._give_on(pair, branch)

    def _give_on(self, pair: DatasetPair, branch: BranchDataset) -> None:
        """The same of snapshots that an earlier promotion gave to what this one branched off from."""
        there = self.there
        given = {
            guid: there[guid]
            for guid, kin in self.held.items()
            if guid in there and kin.on_vault.dataset == branch.origin.dataset
        }
        last = max(
            (snap.createtxg for snap in given.values() if snap.snapname == branch.origin.snapname), default=0
        )
        for guid, snap in given.items():
            if snap.createtxg <= last:
                self.held[guid] = RelatedSnapshot(snap, pair.target.snapshot(snap.snapname), pair.source.name)

    def _conflict(self, pair: DatasetPair, obstacle: str) -> TransferPlan:
        here = pair.vault.name if pair.vault is not None else pair.source.name
        return TransferPlan(
            pair.source.name,
            pair.target,
            TransferAction.CONFLICT,
            f"{obstacle}, and {here} belongs there",
            next=f"rename {pair.target}, and the next run puts {here} there",
        )


def _refused(pair: DatasetPair, conflict: PlanObstacle) -> TransferPlan:
    return TransferPlan(
        pair.source.name, pair.target, TransferAction.CONFLICT, conflict.problem, next=conflict.advice
    )
