"""The planner: what a run has to do so that a vault follows its source, dataset by dataset, and why.

The vault's names are followed through all that is planned, so that what is renamed, set aside or branched for one
dataset is known to those planned after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property

from zvault.core.model import Dataset, Snapshot, Tree
from zvault.core.names import DatasetName
from zvault.core.replication.dataset_plan import DatasetCase, Relative, plan_transfer
from zvault.core.replication.lineage import ASIDE, DatasetPair, Pairing, is_aside
from zvault.core.replication.name_length import NameConflict
from zvault.core.replication.plan_model import Action, Interrupted, Ours, Policy, TransferPlan, sent_by
from zvault.core.replication.send_record import FlagConflict
from zvault.core.replication.vault_changes import Branch, Change, Rename
from zvault.core.snapshot_list import guids_of

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
    known: KnownPlans | None = None,
) -> list[TransferPlan]:
    """Plan every pair, parents first and each after those it needs. ``conflicts`` are of source datasets, by name.

    ``known`` has the plans of an earlier look, made with the same ``wanted`` and ``policy`` (but for its stamp), and
    has those of this one afterwards. Where a pair is the same object as then, and nothing that is asked or planned for
    another touches it, its plan is looked up.
    """
    known = {} if known is None else known
    planner = _Planner(
        pairing, vault, wanted, policy or Policy(), answers or PoolAnswers(), conflicts or {}, known
    )
    for pair in _origins_first(pairing.pairs):
        planner.plan(pair)
    known.clear()
    known.update(planner.kept)
    return planner.plans


KnownPlans = dict[str, tuple[DatasetPair, TransferPlan]]
"""By the source's name, plans that depend on nothing but their pair, what is wanted, and the policy.

That is so of an incremental or of nothing to do, without a change on the vault, where neither side is a clone, nothing
waits to be resumed, and the base is the newest that the vault has: for that no other dataset, hold or rule of retention
is looked at.
"""


def _origins_first(pairs: tuple[DatasetPair, ...]) -> Iterator[DatasetPair]:
    """Parents before children; and where that allows it, what others branched off from before those."""
    if not any(pair.ancestry for pair in pairs) and _parents_first(pairs):
        yield from pairs
        return
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


def _parents_first(pairs: tuple[DatasetPair, ...]) -> bool:
    """Whether they come so already."""
    names = {pair.source.name for pair in pairs}
    seen: set[DatasetName] = set()
    above: set[DatasetName] = set()
    for pair in pairs:
        parent = pair.source.name.parent
        if parent is not None and parent not in above:
            if any(name in names and name not in seen for name in pair.source.name.ancestors):
                return False
            above.add(parent)
        seen.add(pair.source.name)
    return True


@dataclass
class _Planner:
    pairing: Pairing
    vault: Tree
    wanted: Ours
    policy: Policy
    answers: PoolAnswers
    conflicts: Mapping[str, NameConflict]
    known: KnownPlans
    plans: list[TransferPlan] = field(default_factory=list)
    kept: KnownPlans = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Where each dataset of the vault lies, by the name it was listed with."""
        self.at = {dataset.name: dataset.name for dataset in self.vault}
        self.made: set[DatasetName] = set()
        self.by_dataset: dict[DatasetName, TransferPlan] = {}
        self.clones = self.vault.clones()
        # The datasets whose plans others may have to come after; by name on the vault, which of them touch it, which
        # touch what lies below it, and which are yet to be received there.
        self.rearranging: list[DatasetName] = []
        self.touched: dict[DatasetName, list[int]] = {}
        self.touched_below: dict[DatasetName, list[int]] = {}
        self.unborn: dict[DatasetName, list[int]] = {}
        # Clones that will be received, each with the dataset on the vault that its origin lies in.
        self.cloning: list[tuple[TransferPlan, DatasetName]] = []
        # Snapshots that the vault has or will have: by GUID, in which dataset (as listed, or a target), as what.
        self.held: dict[int, Relative] = {}

    @cached_property
    def heirs(self) -> dict[DatasetName, DatasetPair]:
        """Who claims each dataset of the vault."""
        everyone = (*self.pairing.pairs, *self.pairing.unselected)
        return {pair.vault.name: pair for pair in everyone if pair.vault is not None}

    @cached_property
    def listed(self) -> dict[int, tuple[Dataset, Snapshot]]:
        """By GUID, the snapshots that the vault has of those that a source dataset may begin or branch off with.

        What goes on from its base has no use for them, and is nearly everything; so they are sought among the rest.
        """
        sought: set[int] = set()
        for pair in self.pairing.pairs:
            if not self._plain(pair):
                sought.update(guids_of(pair.source.snapshots))
                sought.update(snap.guid for snap in pair.ancestry)
        return {
            snap.guid: (dataset, snap)
            for dataset in sorted(self.vault, key=lambda one: one.name in self.heirs)
            if not sought.isdisjoint(guids_of(dataset.snapshots))
            for snap in dataset.snapshots
        }

    def _plain(self, pair: DatasetPair) -> bool:
        """Whether a pair simply goes on: see KnownPlans."""
        there = pair.vault
        return (
            pair.goes_on
            and there is not None
            and there.resume_token is None
            and pair.source.origin is None
            and there.origin is None
            and there.name not in self.answers.misfits
            and there.name not in self.answers.interrupted
            and self.policy.on_conflict != "new-dataset"
        )

    def _look_up(self, pair: DatasetPair) -> tuple[DatasetPair, TransferPlan] | None:
        """The plan of a pair that was planned before, if it still is as it was."""
        before, there = self.known.get(pair.source.name), pair.vault
        if before is None or before[0] is not pair or there is None:
            return None
        asked = there.name in self.answers.misfits or there.name in self.answers.interrupted
        return None if asked or self.at[there.name] != pair.target else before

    def _keep(self, pair: DatasetPair, made: TransferPlan) -> None:
        """Note a plan that depends on nothing but its pair."""
        simple = made.action in {Action.NOTHING, Action.INCREMENTAL} and not made.changes and not made.after
        if simple and pair.vault is not None and pair.vault.name == pair.target and self._plain(pair):
            self.kept[pair.source.name] = pair, made

    def plan(self, pair: DatasetPair) -> None:
        if (conflict := self.conflicts.get(pair.source.name)) is not None:
            # Nothing of it is touched on the vault: no name there would follow its own.
            self.plans.append(_unnameable(pair, conflict))
            return
        if (known := self._look_up(pair)) is not None:
            self.kept[pair.source.name] = known
            made = known[1]
            if not made.steps and not self.rearranging:
                self.plans.append(made)
                return
        else:
            made = self._planned_anew(pair)
            self._keep(pair, made)
        if after := self._after(pair, made):
            made = replace(made, after=after)
        self._note_arrivals(pair, made)
        self.plans.append(made)
        if (origin := _origin(made)) is not None:
            self.cloning.append((made, origin))
        touched = _touched(made)
        unborn = made.begins or (made.action is Action.RESUME and made.base is None)
        if touched or unborn:
            place = len(self.rearranging)
            self.rearranging.append(made.dataset)
            for name in touched:
                self.touched.setdefault(name, []).append(place)
                for above in name.ancestors:
                    self.touched_below.setdefault(above, []).append(place)
            if unborn:
                self.unborn.setdefault(made.target, []).append(place)

    def _planned_anew(self, pair: DatasetPair) -> TransferPlan:
        renames, obstacle = self._arrange(pair)
        if obstacle:
            return self._conflict(pair, obstacle)
        made = plan_transfer(self._case(pair), self.wanted, self.policy)
        self._follow(made.changes)
        return replace(made, changes=(*renames, *made.changes)) if renames else made

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
        if self._plain(pair):
            return DatasetCase(pair.source, pair.target, there, found=pair.base)
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
            found=pair.base,
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
        for made in self.plans[len(self.by_dataset) :]:
            self.by_dataset[made.dataset] = made
        return self.by_dataset.get(pair.source.name)

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
        if not self.rearranging and not moved and _origin(made) is None:
            return made.after
        paths = [pair.target, *([pair.vault.name] if pair.vault is not None else []), *moved]
        if (origin := _origin(made)) is not None:
            # It is named as it will be once what was planned so far is carried out.
            paths.append(origin)
        needed = dict.fromkeys(made.after)
        # What a rename brings below a dataset that is yet to be received would find, or make, another in its place.
        found = _at_or_above((pair.target, *moved), self.unborn) | _at_or_above(paths, self.touched)
        needed.update(dict.fromkeys(self.rearranging[place] for place in sorted(found)))
        if moved:
            # Changes below what is renamed name it as it was before, so they come first.
            renamed = (change.old for change in made.changes if isinstance(change, Rename))
            below = {place for old in renamed for place in self.touched_below.get(old, ())}
            needed.update(dict.fromkeys(self.rearranging[place] for place in sorted(below)))
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


def _at_or_above(paths: Iterable[DatasetName], places: Mapping[DatasetName, list[int]]) -> set[int]:
    """What there is at any of these names, or at what one of them lies in."""
    found: set[int] = set()
    if places:
        for path in paths:
            for name in (path, *path.ancestors):
                found.update(places.get(name, ()))
    return found


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
