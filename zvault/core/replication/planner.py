"""The planner: what a run has to do so that a vault follows its source, dataset by dataset, and why.

The vault's names are followed through all that is planned, so that what is renamed, set aside or branched for one
dataset is known to those planned after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace

from zvault.core.model import Dataset, Snapshot, Tree
from zvault.core.names import DatasetName
from zvault.core.replication.dataset_plan import DatasetCase, Relative, plan_transfer
from zvault.core.replication.lineage import ASIDE, DatasetPair, Pairing, is_aside
from zvault.core.replication.name_length import NameConflict
from zvault.core.replication.plan_model import Action, Interrupted, Ours, Policy, TransferPlan, sent_by
from zvault.core.replication.send_record import FlagConflict
from zvault.core.replication.vault_changes import Branch, Change, Rename

MOVING = "_zvault-moving"
"""Ends the name of a dataset of the vault that is on its way to another name."""


@dataclass(frozen=True, slots=True)
class PoolAnswers:
    """What was asked of the pools besides their listings, by the vault dataset's name.

    ``interrupted`` are the resume tokens; ``unchanged`` are datasets with snapshots after the base, but nothing
    written since; ``held`` the names of snapshots that would have to go in a rollback and are held, ``kept`` of those
    that retention would not prune, with the reason; ``misfits`` say of datasets that cannot be followed why.
    """

    interrupted: Mapping[str, Interrupted] = field(default_factory=dict)
    unchanged: Set[str] = frozenset()
    held: Set[str] = frozenset()
    kept: Mapping[str, str] = field(default_factory=dict)
    misfits: Mapping[str, FlagConflict] = field(default_factory=dict)


def plan_tree(
    pairing: Pairing,
    vault: Tree,
    *,
    wanted: Ours,
    policy: Policy | None = None,
    answers: PoolAnswers | None = None,
    conflicts: Mapping[str, NameConflict] | None = None,
) -> list[TransferPlan]:
    """Plan every pair, parents first and each after those it needs. ``conflicts`` are of source datasets, by name."""
    planner = _Planner(pairing, vault, wanted, policy or Policy(), answers or PoolAnswers(), conflicts or {})
    for pair in _origins_first(pairing.pairs):
        planner.plan(pair)
    return planner.plans


def _origins_first(pairs: tuple[DatasetPair, ...]) -> Iterator[DatasetPair]:
    """Parents before children; and where that allows it, what others branched off from before those."""
    by_name = {pair.source.name: pair for pair in pairs}
    done: set[DatasetName] = set()

    def visit(name: DatasetName, waiting: tuple[DatasetName, ...]) -> Iterator[DatasetPair]:
        waiting = (*waiting, name)
        origins = dict.fromkeys(snap.dataset for snap in by_name[name].ancestry)
        for other in (*name.ancestors, *origins):
            # What lies below one that waits for this cannot come before it.
            if other in by_name and other not in done and not any(other.is_within(one) for one in waiting):
                yield from visit(other, waiting)
        if name not in done:
            done.add(name)
            yield by_name[name]

    for name in by_name:
        if name not in done:
            yield from visit(name, ())


@dataclass
class _Planner:
    pairing: Pairing
    vault: Tree
    wanted: Ours
    policy: Policy
    answers: PoolAnswers
    conflicts: Mapping[str, NameConflict]
    plans: list[TransferPlan] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Where each dataset of the vault lies, by the name it was listed with, and who claims it."""
        self.at = {dataset.name: dataset.name for dataset in self.vault}
        self.made: set[DatasetName] = set()
        everyone = (*self.pairing.pairs, *self.pairing.unselected)
        self.heirs = {pair.vault.name: pair for pair in everyone if pair.vault is not None}
        self.clones = self.vault.clones()
        # The plans that others may have to come after, with the names on the vault that each touches.
        self.rearranging: list[tuple[TransferPlan, tuple[DatasetName, ...]]] = []
        # Clones that will be received, each with the dataset on the vault that its origin lies in.
        self.cloning: list[tuple[TransferPlan, DatasetName]] = []
        # Snapshots that the vault has or will have: by GUID, in which dataset (as listed, or a target), as what.
        self.held: dict[int, Relative] = {}
        self.listed: dict[int, tuple[Dataset, Snapshot]] = {
            snap.guid: (dataset, snap)
            for dataset in sorted(self.vault, key=lambda one: one.name in self.heirs)
            for snap in dataset.snapshots
        }

    def plan(self, pair: DatasetPair) -> None:
        if (conflict := self.conflicts.get(pair.source.name)) is not None:
            # Nothing of it is touched on the vault: no name there would follow its own.
            self.plans.append(_unnameable(pair, conflict))
            return
        renames, obstacle = self._arrange(pair)
        if obstacle:
            made = self._conflict(pair, obstacle)
        else:
            made = plan_transfer(self._case(pair), self.wanted, self.policy)
            made = replace(made, changes=(*renames, *made.changes))
            self._follow(made.changes[len(renames) :])
        made = replace(made, after=self._after(pair, made))
        self._note_arrivals(pair, made)
        self.plans.append(made)
        if (origin := _origin(made)) is not None:
            self.cloning.append((made, origin))
        touched = _touched(made)
        if touched or made.begins or made.action is Action.RESUME:
            self.rearranging.append((made, touched))

    # Names

    def _occupant(self, name: DatasetName) -> DatasetName | None:
        """The dataset, by the name it was listed with, that has this name by now."""
        return next((listed for listed, now in self.at.items() if now == name), None)

    def _rename(self, old: DatasetName, new: DatasetName, reason: str) -> Rename:
        for listed, now in self.at.items():
            if now.is_within(old):
                self.at[listed] = now.moved(old, new)
        self.made = {name.moved(old, new) if name.is_within(old) else name for name in self.made}
        return Rename(old, new, reason)

    def _follow(self, changes: tuple[Change, ...]) -> None:
        for change in changes:
            if isinstance(change, Rename):
                self._rename(change.old, change.new, change.reason)

    def _free_name(self, name: DatasetName) -> DatasetName:
        taken = {*self.at.values(), *self.made}
        number = 1
        free = name.suffixed(MOVING)
        while free in taken:
            number += 1
            free = name.suffixed(f"{MOVING}{number}")
        return free

    def _arrange(self, pair: DatasetPair) -> tuple[tuple[Rename, ...], str]:
        """The renames that bring a dataset's backup to its place, or what stands in the way."""
        there, target = pair.vault, pair.target
        here = self.at[there.name] if there is not None else None
        if here == target:
            return (), ""
        occupant = self._occupant(target)
        if here is None and occupant is None:
            return (), ""
        renames: list[Rename] = []
        if occupant is not None:
            away, reason = self._way_out(occupant, target)
            if away is None:
                return (), f"{target} on the vault is something else"
            renames.append(self._rename(target, away, reason))
            here = self.at[there.name] if there is not None else None
        if here is not None and here != target:
            follows = f"it follows {pair.source.name}"
            if target.is_within(here):
                # ZFS renames nothing to a name below its own: that one has to be free first.
                away = self._free_name(here)
                renames.append(self._rename(here, away, follows))
                here = away
            renames.append(self._rename(here, target, follows))
        return tuple(renames), ""

    def _way_out(self, occupant: DatasetName, target: DatasetName) -> tuple[DatasetName | None, str]:
        """Where to put what lies at another's place, and why; nowhere if it is not to be moved."""
        heir = self.heirs.get(occupant)
        if heir is None:
            movable = self.vault.datasets[occupant].placeholder or self.policy.on_conflict == "new-dataset"
            aside = target.suffixed(ASIDE + self.policy.stamp)
            return (aside, "it follows nothing on the source") if movable else (None, "")
        taken = {*self.at.values(), *self.made}
        away = heir.target
        roomy = away not in taken and not away.is_within(target) and away.parent in taken
        return (away if roomy else self._free_name(target)), f"it follows {heir.source.name}"

    # Relations

    def _case(self, pair: DatasetPair) -> DatasetCase:
        there = pair.vault
        if there is None:
            return DatasetCase(pair.source, pair.target, None, pair.ancestry, kin=tuple(self._kin(pair)))
        clones = {
            snap.snapname: self.clones[snap.name] for snap in there.snapshots if snap.name in self.clones
        }
        branched = self.vault.snapshot(there.origin) if there.origin is not None else None
        if branched is not None:
            # Another may have been promoted over what it branched off from.
            kin = self.held.get(branched.guid)
            holder = kin.on_vault.dataset if kin is not None else self.at[branched.dataset]
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
            misfit=self.answers.misfits.get(there.name),
        )

    def _kin(self, pair: DatasetPair) -> Iterator[Relative]:
        """Where else the vault has a part of a dataset's history: its own first, then that of its ancestors."""
        for snap in reversed(pair.source.snapshots):
            if snap.guid in self.listed:
                holder, there = self.listed[snap.guid]
                if holder is not pair.vault and self._may_branch(pair, holder, snap):
                    heir = self.heirs.get(holder.name)
                    owner = heir.source.name if heir is not None and self._planned(heir) is not None else None
                    yield Relative(snap, self.at[holder.name].snapshot(there.snapname), owner)
        for snap in pair.ancestry:
            if snap.guid in self.held:
                yield replace(self.held[snap.guid], base=snap)
            elif snap.guid in self.listed:
                holder, there = self.listed[snap.guid]
                yield Relative(snap, self.at[holder.name].snapshot(there.snapname))

    def _planned(self, pair: DatasetPair) -> TransferPlan | None:
        return next((plan for plan in self.plans if plan.dataset == pair.source.name), None)

    def _may_branch(self, pair: DatasetPair, holder: Dataset, base: Snapshot) -> bool:
        """Whether a dataset may take over another's history up to ``base``: its heir must be left with its own base.

        It may where the source has it so (one was promoted), or where the other follows nothing any more.
        """
        heir = self.heirs.get(holder.name)
        if heir is None:
            return not is_aside(holder.name) or holder.name.startswith(pair.target.suffixed(ASIDE))
        if base not in heir.ancestry or heir.base is None:
            return False
        if heir.base[0].createtxg > base.createtxg:
            return True
        first = self._planned(heir)
        goes_on = first is not None and first.action in {Action.INCREMENTAL, Action.RESUME}
        return goes_on and self.at[holder.name] == heir.target

    # Order

    def _after(self, pair: DatasetPair, made: TransferPlan) -> tuple[DatasetName, ...]:
        """Which of the plans so far this one needs."""
        moved = _touched(made)
        paths = [pair.target, *([pair.vault.name] if pair.vault is not None else []), *moved]
        if (origin := _origin(made)) is not None:
            # It is named as it will be once what was planned so far is carried out.
            paths.append(origin)
        needed = dict.fromkeys(made.after)
        for plan, touched in self.rearranging:
            unborn = plan.begins or (plan.action is Action.RESUME and plan.base is None)
            # What a rename brings below a dataset that is yet to be received would find, or make, another in its place.
            if (unborn and any(path.is_within(plan.target) for path in (pair.target, *moved))) or any(
                path.is_within(top) for top in touched for path in paths
            ):
                needed[plan.dataset] = None
        if moved:
            within = (plan for plan in self.plans if any(plan.target.is_within(path) for path in moved))
            needed.update(dict.fromkeys(plan.dataset for plan in within))
            cloning = (plan for plan, origin in self.cloning if any(origin.is_within(path) for path in moved))
            needed.update(dict.fromkeys(plan.dataset for plan in cloning))
        return tuple(needed)

    def _note_arrivals(self, pair: DatasetPair, made: TransferPlan) -> None:
        if made.action is Action.CONFLICT:
            return
        for change in made.changes:
            if isinstance(change, Branch):
                self._give(pair, change)
        if made.steps or made.changes:
            # What lies above is made where it is missing, to hold it.
            self.made.update((pair.target, *pair.target.ancestors))
        for step in made.steps:
            for snap in sent_by(step, pair.source.snapshots):
                self.held[snap.guid] = Relative(snap, pair.target.snapshot(snap.snapname), pair.source.name)

    def _give(self, pair: DatasetPair, branch: Branch) -> None:
        """A promoted dataset owns the snapshots up to its origin from now on."""
        self.made.add(pair.target)
        listed = self._occupant(branch.origin.dataset)
        for snap in self.vault.datasets[listed].snapshots if listed is not None else ():
            # One that an earlier promotion took is not there any more.
            if snap.guid in self.listed and self.listed[snap.guid][0].name == listed:
                self.held[snap.guid] = Relative(snap, pair.target.snapshot(snap.snapname), pair.source.name)
                del self.listed[snap.guid]
            if snap.snapname == branch.origin.snapname:
                break
        self._give_on(pair, branch)

    def _give_on(self, pair: DatasetPair, branch: Branch) -> None:
        """The same of snapshots that an earlier promotion gave to what this one branched off from."""
        listed = {snap.guid: snap for dataset in self.vault for snap in dataset.snapshots}
        given = {
            guid: listed[guid]
            for guid, kin in self.held.items()
            if guid in listed and kin.on_vault.dataset == branch.origin.dataset
        }
        last = max(
            (snap.createtxg for snap in given.values() if snap.snapname == branch.origin.snapname), default=0
        )
        for guid, snap in given.items():
            if snap.createtxg <= last:
                self.held[guid] = Relative(snap, pair.target.snapshot(snap.snapname), pair.source.name)

    def _conflict(self, pair: DatasetPair, obstacle: str) -> TransferPlan:
        here = pair.vault.name if pair.vault is not None else pair.source.name
        return TransferPlan(
            pair.source.name,
            pair.target,
            Action.CONFLICT,
            f"{obstacle}, and {here} belongs there",
            next=f"rename {pair.target}, and the next run puts {here} there",
        )


def _unnameable(pair: DatasetPair, conflict: NameConflict) -> TransferPlan:
    return TransferPlan(
        pair.source.name, pair.target, Action.CONFLICT, conflict.problem, next=conflict.advice
    )


def _origin(plan: TransferPlan) -> DatasetName | None:
    """The dataset on the vault of which a snapshot has to be there when a plan's first stream is received."""
    origin = plan.steps[0].origin if plan.steps else None
    return origin.dataset if origin is not None else None


def _touched(plan: TransferPlan) -> tuple[DatasetName, ...]:
    """The names on the vault that a plan moves, or takes snapshots from."""
    names: list[DatasetName] = []
    for change in plan.changes:
        if isinstance(change, Rename):
            names += [change.old, change.new]
        elif isinstance(change, Branch):
            names += [change.origin.dataset, change.new]
    return tuple(names)
