"""Two pools as ``zfs`` would have them: what it refuses, and what becomes of the rest. It knows nothing of the planner.

Written from zfs-send(8), zfs-receive(8), zfs-promote(8), zfs-rename(8) and what 2.3.9 did in the lab. Snapshots and
bookmarks move with ``promote``; a receive finds its base only among the target's own snapshots.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.unit.core.replication.pool_model import Clock, Data, Illegal, Partial, Point, Pool
from zvault.core.model import Base, Bookmark, Dataset, Snapshot
from zvault.core.names import DatasetName
from zvault.core.replication.plan_model import (
    InterruptedReceive,
    TransferAction,
    TransferPlan,
    TransferStep,
    list_sent_by,
)
from zvault.core.replication.vault_changes import (
    AbortReceive,
    BranchDataset,
    RenameDataset,
    RollbackDataset,
    VaultChange,
)


class Stop(Exception):
    """The power fails."""


@dataclass
class Pools:
    """A source and a vault, and what carrying out a plan does to them; ``fuel`` is how much of it before the end.

    ``given_up`` are the GUIDs of the snapshots that rollbacks took, ``sent`` those of the source datasets that the
    vault has been given.
    """

    source: Pool
    vault: Pool
    fuel: int | None = None
    given_up: set[int] = field(default_factory=set)
    sent: set[int] = field(default_factory=set)

    def copy(self) -> Pools:
        clock = Clock(self.source.clock.now)
        pools = (
            Pool(clock, {n: d.copy() for n, d in pool.data.items()}) for pool in (self.source, self.vault)
        )
        return Pools(*pools, self.fuel, set(self.given_up), set(self.sent))

    def burn(self) -> bool:
        """Whether the power fails now."""
        if self.fuel is None:
            return False
        self.fuel -= 1
        return self.fuel < 0

    def carry_out(self, plans: list[TransferPlan]) -> dict[str, TransferAction]:
        """As the executor does it; the datasets that did not go through, with the action of their plan."""
        failed: dict[str, TransferAction] = {}
        done: set[str] = set()
        for plan in plans:
            assert set(plan.after) <= done | set(failed), "what comes before is planned before"
            done.add(plan.dataset)
            if failed.keys() & set(plan.after):
                failed[plan.dataset] = plan.action
                continue
            for change in plan.changes:
                self.change(change)
            if plan.action is TransferAction.CONFLICT:
                failed[plan.dataset] = plan.action
                continue
            if plan.begins:
                self.make_parents(plan.target)
            for step in plan.steps:
                self.stream(step, plan)
                self.sent.add(self.source.data[plan.dataset].guid)
        return failed

    def make_parents(self, name: str) -> None:
        parts = name.split("/")[:-1]
        for depth in range(2, len(parts) + 1):
            parent = "/".join(parts[:depth])
            if parent not in self.vault.data:
                self.vault.create(parent, placeholder=True)

    def change(self, change: VaultChange) -> None:
        match change:
            case RenameDataset(old, new):
                self.stop_if_due()
                self.make_parents(new)
                self.vault.rename(old, new)
            case AbortReceive(dataset):
                self.stop_if_due()
                data = self.vault.get(dataset)
                if data.partial is None:
                    raise Illegal("nothing to abort")
                if data.partial.newborn:
                    del self.vault.data[dataset]
                data.partial = None
            case RollbackDataset(dataset, snapname, lost, written):
                self.stop_if_due()
                self.rollback(dataset, snapname, lost, written)
            case BranchDataset(origin, new):
                holder, _, snapname = origin.partition("@")
                if new not in self.vault.data:
                    self.stop_if_due()
                    self.make_parents(new)
                    self.vault.clone(holder, snapname, new)
                self.stop_if_due()
                self.vault.promote(new)

    def stop_if_due(self) -> None:
        if self.burn():
            raise Stop

    def rollback(self, dataset: str, snapname: str, lost: tuple[str, ...], written: int) -> None:
        data = self.vault.get(dataset)
        place = data.snaps.index(data.named(snapname))
        going = data.snaps[place + 1 :]
        assert (tuple(snap.snapname for snap in going), data.written) == (lost, written), (
            "all that is lost is told"
        )
        if any(snap.held or self.vault.cloned(snap) for snap in going):
            raise Illegal("held or cloned")
        self.given_up |= {snap.guid for snap in going}
        del data.snaps[place + 1 :]
        data.written = 0

    def stream(self, step: TransferStep, plan: TransferPlan) -> None:
        source = self.source.get(plan.dataset)
        to = source.named(step.to.snapname)
        base: Base | None = step.base
        if plan.borrowed is not None and step is plan.steps[0]:
            base = self.borrow(plan.dataset, plan.borrowed)
        if step.token is not None:
            self.resume(plan.target, to, over=step.over)
            return
        guid, is_clone = 0, False
        if base is not None:
            found = self.base(plan.dataset, base, to)
            guid, is_clone = found.guid, isinstance(base, Snapshot) and base.dataset != plan.dataset
        first = [
            source.named(snap.snapname) for snap in list_sent_by(step, self.tree_of(plan.dataset).snapshots)
        ]
        if step.intermediates and (is_clone or isinstance(base, Bookmark)):
            raise Illegal("-I only from a snapshot of its own")
        self.admit(plan.target, guid, is_clone, step, source)
        for snap in first:
            if self.burn():
                self.vault.get(plan.target).partial = Partial(snap.guid, guid, self.newborn(plan.target))
                raise Stop
            self.arrive(plan.target, snap)
            guid = snap.guid

    def tree_of(self, name: str) -> Dataset:
        return self.source.tree(name).datasets[name]

    def newborn(self, target: str) -> bool:
        data = self.vault.get(target)
        return not data.snaps and not data.placeholder

    def base(self, dataset: str, base: Base, to: Point) -> Point:
        """What the name of a base means to ``zfs send``."""
        if isinstance(base, Bookmark):
            if base.dataset != dataset:
                raise Illegal("a bookmark of another dataset")
            points = [mark for mark in self.source.get(dataset).marks if mark.snapname == base.markname]
        else:
            points = [
                snap
                for where, snap in self.source.lineage(dataset)
                if (where, snap.snapname) == (base.dataset, base.snapname)
            ]
        if not points or points[0].txg >= to.txg:
            raise Illegal("not an earlier snapshot of the same history")
        return points[0]

    def borrow(self, dataset: str, base: Snapshot) -> Bookmark:
        points = [snap for where, snap in self.source.lineage(dataset) if where == base.dataset]
        point = next((snap for snap in points if snap.snapname == base.snapname), None)
        if point is None:
            raise Illegal("a bookmark is made of what is in the dataset's own history")
        markname = f"zvault_{point.guid}"
        self.source.get(dataset).marks.append(Point(point.guid, markname, point.txg))
        return Bookmark(DatasetName(dataset), markname, point.guid, point.txg, point.txg)

    def admit(self, target: str, base: int, is_clone: bool, step: TransferStep, source: Data) -> None:
        """Whether ``zfs receive`` takes a stream; makes the dataset of one that begins."""
        there = self.vault.data.get(target)
        if is_clone or base == 0:
            if there is not None:
                empty = not there.snaps and there.partial is None and base == 0 and not step.origin
                if not (step.over and empty) or source.encrypted:
                    raise Illegal("the target exists")
                assert there.placeholder, "only over what zvault made to hold others"
                return
            self.vault.free(target)
            self.vault.data[target] = Data(self.vault.clock.tick(), source.encrypted)
            if is_clone:
                holder, _, snapname = (step.origin or "@").partition("@")
                snap = self.vault.get(holder).named(snapname)
                if snap.guid != base:
                    raise Illegal("the origin is another snapshot")
                self.vault.data[target].origin = snap
            return
        if step.origin or step.over:
            raise Illegal("neither -o origin nor -F goes on")
        if there is None or there.partial is not None:
            raise Illegal("the target does not exist, or is being received into")
        self.unchanged(there, base, source)

    def unchanged(self, there: Data, base: int, source: Data) -> None:
        place = next((i for i, snap in enumerate(there.snaps) if snap.guid == base), None)
        if place is None:
            raise Illegal("the target does not own the incremental source")
        newer = there.snaps[place + 1 :]
        if there.written or not all(snap.quiet for snap in newer) or (newer and source.encrypted):
            raise Illegal("the target has been modified")

    def resume(self, target: str, to: Point, *, over: bool) -> None:
        there = self.vault.get(target)
        waits = there.partial
        if waits is None or waits.to != to.guid:
            raise Illegal("another token")
        if waits.base and not waits.newborn and (there.written or there.snaps[-1].guid != waits.base):
            raise Illegal("the target has been modified")
        if there.placeholder and not over:
            raise Illegal("must specify -F")
        if self.burn():
            raise Stop
        there.partial = None
        self.arrive(target, to)

    def arrive(self, target: str, snap: Point) -> None:
        there = self.vault.get(target)
        if snap.snapname in {other.snapname for other in there.snaps}:
            raise Illegal("a snapshot of that name exists")
        there.snaps.append(Point(snap.guid, snap.snapname, self.vault.clock.tick()))
        there.placeholder, there.sent = False, "1:Lce"

    def interrupted(self) -> dict[str, InterruptedReceive]:
        """What the source says of each token on the vault."""
        points = {point.guid for data in self.source.data.values() for point in (*data.snaps, *data.marks)}
        found = {}
        for name, data in self.vault.data.items():
            if data.partial is not None:
                known = data.partial.to in points and data.partial.base in {0, *points}
                found[name] = InterruptedReceive(
                    "token", data.partial.to, "" if known else "a snapshot it needs is gone"
                )
        return found
