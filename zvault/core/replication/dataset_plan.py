"""How one dataset of a vault follows its source: resume, full, incremental, nothing or conflict, and why.

An interrupted receive has a resume token, and goes on where that fits (resume_receive.py).

What ZFS accepts is written here as it was seen with OpenZFS 2.3.9; the lab's test_planner.py tries it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from zvault.core.lazy import LazyProperty
from zvault.core.model import Base, Bookmark, Dataset, Snapshot
from zvault.core.name_rules import MAX_DATASET_NAME
from zvault.core.names import DatasetName, SnapshotName
from zvault.core.replication.lineage import ASIDE_INFIX, find_base, format_set_aside
from zvault.core.replication.plan_model import (
    InterruptedReceive,
    SnapshotFilter,
    TransferAction,
    TransferPlan,
    TransferPolicy,
    TransferStep,
    list_sent_by,
    make_incremental_steps,
)
from zvault.core.replication.resume_receive import explain_useless_token, make_resume_step
from zvault.core.replication.send_record import FlagConflict
from zvault.core.replication.vault_changes import (
    AbortReceive,
    BranchDataset,
    RenameDataset,
    RenameSnapshot,
    RollbackDataset,
    VaultChange,
)
from zvault.core.snapshot_list import list_newer_snapshots

REPLACED_INFIX = "_zvault-replaced-"
"""Between a snapshot's name and the time at which another got that name on the vault, ``20261121T090000Z``."""

PLACEHOLDER_BYTES = 1 << 20
"""More than an empty filesystem ever takes: a placeholder with so much in it was written to by somebody."""


@dataclass(frozen=True, slots=True)
class RelatedSnapshot:
    """A snapshot of the source dataset's history that the vault has in another dataset, as ``on_vault``.

    ``base`` is the source's; ``owner`` the source dataset whose plan must come first, if any.
    """

    base: Snapshot
    on_vault: SnapshotName
    owner: DatasetName | None = None


@dataclass(frozen=True, slots=True)
class DatasetCase:
    """One dataset to plan. ``target`` is where its backup belongs, and where it lies once renames are done.

    ``unchanged`` tells that all since the base, snapshots made on the vault included, changed nothing there.
    ``clones`` gives, by snapname, the clones of the vault dataset's snapshots. ``held`` are the names of those that are
    held, ``kept`` of those that retention keeps, with the reason: neither is rolled away. ``branched`` is the vault's
    snapshot of which it is a clone. ``kin`` are the relatives it could start from, best first. ``misfit`` says why no
    stream with the flags that are wanted now may follow on what it has. ``found`` is its base, where that is known.
    """

    source: Dataset
    target: DatasetName
    vault: Dataset | None = None
    ancestry: tuple[Snapshot, ...] = ()
    interrupted: InterruptedReceive | None = None
    unchanged: bool = False
    clones: Mapping[str, DatasetName] = field(default_factory=dict)
    held: Set[str] = frozenset()
    kept: Mapping[str, str] = field(default_factory=dict)
    branched: Snapshot | None = None
    kin: tuple[RelatedSnapshot, ...] = ()
    misfit: FlagConflict | None = None
    found: tuple[Base, Snapshot] | None = None

    def base(self) -> tuple[Base, Snapshot] | None:
        """The base, as (source side, vault side)."""
        if self.found is not None or self.vault is None:
            return self.found
        return find_base(self.source, self.vault, self.ancestry)


def plan_transfer(
    case: DatasetCase, wanted: SnapshotFilter, policy: TransferPolicy | None = None
) -> TransferPlan:
    """Plan one dataset, with the reason in words. ``wanted`` tells which of its snapshots are to be sent."""
    return _Decision(case, policy or TransferPolicy(), wanted).plan()


@dataclass
class _Decision:
    case: DatasetCase
    policy: TransferPolicy
    is_wanted: SnapshotFilter
    changes: tuple[VaultChange, ...] = ()
    left_out: tuple[SnapshotName, ...] = ()

    @LazyProperty
    def wanted(self) -> list[Snapshot]:
        """The source's snapshots that are to be sent."""
        return [snap for snap in self.case.source.snapshots if self.is_wanted(snap)]

    def _wanted_after(self, point: Base) -> list[Snapshot]:
        """Those that are newer than a point of the same history."""
        return [
            snap
            for snap in list_newer_snapshots(self.case.source.snapshots, point.createtxg)
            if self.is_wanted(snap)
        ]

    def _missing_after(self, point: Base, there: Sequence[Snapshot]) -> list[Snapshot]:
        """Those of them to send to a dataset that has others, ``there``.

        A snapshot that only ``also`` names is left out where the vault has another of its name (a job that destroys and
        makes its ``@daily`` each night): what it holds comes with the next one. Where none comes, all of it is sent.
        """
        every = self._wanted_after(point)
        left = _free_of_clashes(every, there, self.policy.ours) if every else every
        if not left:
            return self._chosen(every)
        kept = {snap.guid for snap in left}
        self.left_out = tuple(snap.name for snap in every if snap.guid not in kept)
        return self._chosen(left)

    def plan(self) -> TransferPlan:
        case = self.case
        vault = case.vault
        if case.misfit is not None:
            return self._unlike(case.misfit.problem, case.misfit.advice)
        if case.interrupted is not None:
            useless = explain_useless_token(
                case.interrupted, case.source, case.target, vault, case.base(), case.branched
            )
            if not useless or not self.policy.destroys:
                return self._stuck(useless) if useless else self._resume(case.interrupted)
            self.changes = (AbortReceive(case.target, useless),)
        if vault is None or (self.changes and not vault.snapshots and not vault.placeholder):
            return self._start()
        if vault.snapshots:
            found = case.base()
            if found is not None:
                return self._follow(vault, *found)
            return self._unlike(
                f"{case.source.name} and {case.target} have no snapshot or bookmark in common",
                f"rename {case.target} to keep what it holds and let the next run send in full",
            )
        return self._empty(vault)

    # Resuming

    def _resume(self, interrupted: InterruptedReceive) -> TransferPlan:
        case, vault = self.case, self.case.vault
        first = make_resume_step(interrupted, case.source, vault)
        later = self._missing_after(first.to, vault.snapshots if vault is not None else ())
        found = case.base()
        steps = (first, *make_incremental_steps(case.source.snapshots, first.to, later))
        made = self._made(TransferAction.RESUME, first.reason, steps, found[0] if found else None)
        return made if vault is None else self._unless_taken(made, vault.snapshots)

    def _stuck(self, useless: str) -> TransferPlan:
        """A token must be given up, and may not be from here."""
        target = self.case.target
        problem = f"an interrupted receive of {target} cannot go on: {useless}; this host may not give it up"
        return self._conflict(
            problem, f"run 'zfs receive -A {target}' on the vault's host", pending=len(self.wanted)
        )

    # Beginning

    def _start(self, *, over: bool = False) -> TransferPlan:
        """The vault has nothing of this dataset itself; it may have the snapshot it branched off from."""
        source, target = self.case.source, self.case.target
        if not self.wanted:
            return self._made(TransferAction.NOTHING, "the source has no snapshot made by zvault yet")
        newest = self.wanted[-1].createtxg
        kin = next((one for one in self.case.kin if one.base.createtxg < newest), None)
        if kin is not None and not over:
            return self._begin_from(kin, self._chosen(self._wanted_after(kin.base)))
        chosen = self._chosen(self.wanted)
        full = TransferStep(
            TransferAction.FULL, chosen[0], reason="the vault has nothing of this dataset", over=over
        )
        steps = (full, *make_incremental_steps(source.snapshots, chosen[0], chosen[1:]))
        reason = f"{target} is only a placeholder so far" if over else f"the vault has no {target}"
        if source.origin is not None and not self.case.kin:
            reason += f", and not {source.origin} either, of which {source.name} is a clone"
        return self._made(TransferAction.FULL, reason, steps)

    def _begin_from(self, kin: RelatedSnapshot, missing: Sequence[Snapshot]) -> TransferPlan:
        source, target, base = self.case.source, self.case.target, kin.base
        kin = replace(kin, on_vault=self._now(kin.on_vault))
        steps = tuple(make_incremental_steps(source.snapshots, base, missing))
        if base.dataset == source.name:
            why = f"the history of {source.name} up to there is in {kin.on_vault.dataset}"
            self.changes += (BranchDataset(kin.on_vault, target, why),)
            reason = f"the vault has {base.snapname} as {kin.on_vault}"
        else:
            steps = (replace(steps[0], origin=kin.on_vault), *steps[1:])
            reason = f"{source.name} is a clone of {base.name}, which the vault has as {kin.on_vault}"
        return self._made(
            TransferAction.INCREMENTAL, reason, steps, base, needed=(kin.owner,) if kin.owner else ()
        )

    def _now(self, name: SnapshotName) -> SnapshotName:
        """What a name on the vault will be once what is in the way was set aside, with all below it."""
        dataset = name.dataset
        for change in self.changes:
            if isinstance(change, RenameDataset) and dataset.is_below(change.old):
                dataset = dataset.moved(change.old, change.new)
        return dataset.snapshot(name.snapname)

    def _empty(self, vault: Dataset) -> TransferPlan:
        """There is something of that name, without a snapshot."""
        case, target = self.case, self.case.target
        if vault.placeholder and vault.written <= PLACEHOLDER_BYTES:
            plain = not case.source.encrypted and not vault.key_root
            if not self.wanted or (case.source.type == vault.type and plain):
                return self._start(over=True)
            # zfs receive -F puts neither an encrypted dataset nor a volume over an unencrypted filesystem, and nothing
            # over an encrypted one.
            return self._set_aside(f"{target} is only a placeholder, which {case.source.name} cannot replace")
        half = case.branched
        if half is not None and not vault.written:
            mine = next((snap for snap in case.source.snapshots if snap.guid == half.guid), None)
            if mine is not None:
                self.changes += (BranchDataset(half.name, target, "that was begun before"),)
                return self._follow(replace(vault, snapshots=(half,)), mine, half)
        return self._unlike(
            f"{target} exists on the vault but holds no snapshot, so it is not a backup of {case.source.name}",
            f"rename or destroy {target}, or choose another 'into' for this backup",
        )

    # Following

    def _follow(self, vault: Dataset, base: Base, on_vault: Snapshot) -> TransferPlan:
        """The usual case: both sides share a base."""
        case, target = self.case, self.case.target
        missing = self._missing_after(base, vault.snapshots)
        newest = vault.snapshots[-1]
        tolerated = case.unchanged and not case.source.encrypted
        problem = ""
        if newest.guid != on_vault.guid and not tolerated:
            newer = f"{newest.snapname}, newer than the base {on_vault.snapname}"
            problem = f"{target} has {newer} and unknown to the source"
        elif vault.written and missing:
            problem = f"{target} was written to after {on_vault.snapname} ({vault.written} bytes)"
        if problem and (missing or self.policy.on_conflict == "stop"):
            return self._diverged(vault, base, on_vault, missing, problem)
        if not missing:
            return self._made(
                TransferAction.NOTHING, f"the vault has {on_vault.snapname}, the newest", base=base
            )
        return self._unless_taken(self._incremental(base, missing), vault.snapshots)

    def _incremental(self, base: Base, missing: Sequence[Snapshot]) -> TransferPlan:
        source = self.case.source
        kind = "bookmark" if isinstance(base, Bookmark) else "snapshot"
        reason = f"the newest {kind} both sides share is {base.shortname}"
        if base.dataset != source.name:
            reason += f", which {base.dataset} owns now"
        steps = tuple(make_incremental_steps(source.snapshots, base, missing))
        return self._made(TransferAction.INCREMENTAL, reason, steps, base)

    def _diverged(
        self, vault: Dataset, base: Base, on_vault: Snapshot, missing: Sequence[Snapshot], problem: str
    ) -> TransferPlan:
        """The vault's dataset went on by itself after the base."""
        target = self.case.target
        place = vault.snapshots.index(on_vault)
        kept, lost = vault.snapshots[: place + 1], vault.snapshots[place + 1 :]
        rollback = RollbackDataset(
            target, on_vault.snapname, tuple(snap.snapname for snap in lost), vault.written
        )
        if self.policy.on_conflict == "rollback":
            obstacle = self._obstacle(lost)
            if not obstacle:
                self.changes += (rollback,)
                return self._unless_taken(self._incremental(base, missing), kept)
            problem += f"; it is not rolled back: {obstacle}"
        elif self.policy.on_conflict == "new-dataset":
            made = self._set_aside(problem, on_vault, self._incremental(base, missing))
            return made if made.action is TransferAction.CONFLICT else self._unless_taken(made, kept)
        advice = (
            f"'{format_set_aside(target)}' keeps all of it, and the next run sends in full; or, without sending "
            "again, "
            f"'zfs rollback -r {target}@{on_vault.snapname}', which destroys {rollback.loss} for good"
        )
        if any(snap.name in self.case.kept for snap in lost):
            advice = (
                f"find out why {self.case.source.name} lacks what the vault has: if it lost that, restore it; if "
                "another machine, a clone of this one, sends there too, give each its own 'into' or host name; or "
                f"{advice}"
            )
        return self._conflict(
            problem,
            advice,
            base,
            len(missing),
        )

    def _obstacle(self, lost: Sequence[Snapshot]) -> str:
        """What forbids giving snapshots up, or nothing."""
        for snap in lost:
            if snap.name in self.case.held:
                return f"@{snap.snapname} is held"
            if snap.name in self.case.kept:
                return (
                    f"retention keeps @{snap.snapname}, which the source has not: {self.case.kept[snap.name]}"
                )
            if snap.snapname in self.case.clones:
                return f"{self.case.clones[snap.snapname]} is a clone of @{snap.snapname}"
        return ""

    def _unlike(self, problem: str, advice: str) -> TransferPlan:
        """What is there is not a backup of this dataset, as far as can be told."""
        if self.policy.on_conflict == "new-dataset" and self.wanted:
            return self._set_aside(problem)
        return self._conflict(problem, advice, pending=len(self.wanted))

    def _set_aside(
        self, problem: str, upto: Snapshot | None = None, following: TransferPlan | None = None
    ) -> TransferPlan:
        """Rename what is there and begin anew; from ``upto`` on, if that much of it was good."""
        target = self.case.target
        aside = target.add_suffix(ASIDE_INFIX + self.policy.stamp)
        if len(aside) > MAX_DATASET_NAME:
            return self._conflict(problem, f"rename {target}: there is no room to lengthen its name")
        self.changes += (RenameDataset(target, aside, problem),)
        if upto is None or following is None:
            return self._start()
        branch = BranchDataset(
            aside.snapshot(upto.snapname), target, f"both sides share all up to {upto.snapname}"
        )
        return replace(following, changes=(*self.changes, branch))

    # Outcomes

    def _chosen(self, missing: Iterable[Snapshot]) -> list[Snapshot]:
        """All of the backlog, or the newest only."""
        every = list(missing)
        return every[-1:] if self.policy.newest_only else every

    def _made(
        self,
        action: TransferAction,
        reason: str,
        steps: tuple[TransferStep, ...] = (),
        base: Base | None = None,
        needed: tuple[DatasetName, ...] = (),
    ) -> TransferPlan:
        source = self.case.source
        pending = sum(len(list_sent_by(step, source.snapshots)) for step in steps)
        return TransferPlan(
            source.name,
            self.case.target,
            action,
            reason,
            steps,
            base,
            pending,
            changes=self.changes,
            after=needed,
            left_out=self.left_out,
        )

    def _conflict(
        self, problem: str, advice: str, base: Base | None = None, pending: int = 0
    ) -> TransferPlan:
        source, target = self.case.source.name, self.case.target
        return TransferPlan(
            source, target, TransferAction.CONFLICT, problem, base=base, pending=pending, next=advice
        )

    def _unless_taken(self, made: TransferPlan, there: Sequence[Snapshot]) -> TransferPlan:
        """The plan, unless the vault has another snapshot of a name that is to be sent."""
        taken = _taken(made.steps, self.case.source, there)
        if not taken:
            return made
        target = self.case.target
        first = taken[0].snapname
        problem = f"{target} has another snapshot that is named {first}, as one to be sent"
        aside = [self._replaced(target, snap) for snap in taken]
        foreign = not any(map(self.policy.ours, taken))
        roomy = all(len(change.new) <= MAX_DATASET_NAME for change in aside)
        # A snapshot is renamed, and no dataset set aside: there is a base, so nothing is ever sent in full for a name.
        if roomy and (foreign or self.policy.on_conflict == "new-dataset"):
            return replace(made, changes=(*made.changes, *aside))
        advice = f"'zfs rename {target}@{first} {target}@{first}-other' makes room for it"
        return self._conflict(problem, advice, made.base, made.pending)

    def _replaced(self, target: DatasetName, snap: Snapshot) -> RenameSnapshot:
        """What makes room on the vault for a snapshot's name."""
        why = f"{snap.name} is another by now, and gets that name"
        return RenameSnapshot(
            target.snapshot(snap.snapname), snap.snapname + REPLACED_INFIX + self.policy.stamp, why
        )


def _free_of_clashes(
    snapshots: Sequence[Snapshot], there: Sequence[Snapshot], ours: SnapshotFilter
) -> Sequence[Snapshot]:
    """Without those that are not ours and whose name another one has there."""
    foreign = [snap for snap in snapshots if not ours(snap)]
    if not foreign:
        return snapshots
    names = {snap.snapname: snap.guid for snap in there}
    clashing = {snap.guid for snap in foreign if names.get(snap.snapname, snap.guid) != snap.guid}
    return [snap for snap in snapshots if snap.guid not in clashing]


def _taken(steps: Sequence[TransferStep], source: Dataset, there: Sequence[Snapshot]) -> list[Snapshot]:
    """The snapshots to be sent whose name another has on the vault."""
    snapnames = {snap.snapname: snap.guid for snap in there}
    sent = [snap for step in steps for snap in list_sent_by(step, source.snapshots)]
    return [snap for snap in sent if snapnames.get(snap.snapname, snap.guid) != snap.guid]
