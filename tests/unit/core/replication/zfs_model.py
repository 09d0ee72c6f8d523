"""A tiny model of what ``zfs send`` and ``zfs receive`` accept, written from zfs-send(8) and zfs-receive(8).

It knows nothing of the planner: it carries out steps, refuses what zfs would refuse, and searches for the fewest
streams that reach a goal by trying all of them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from zvault.core.model import Base, Bookmark, Dataset, Snapshot
from zvault.core.names import DatasetName
from zvault.core.replication.plan_model import InterruptedReceive, TransferAction, TransferStep

OURS = "zvault_"


class Illegal(Exception):
    """zfs would refuse this."""


def ours(snapshot: Snapshot) -> bool:
    return snapshot.snapname.startswith(OURS)


@dataclass
class Partial:
    """An interrupted ``zfs receive -s``; ``base`` 0 is that of a full stream."""

    token: str
    to: int
    base: int


@dataclass
class World:
    """One dataset on a source pool and its counterpart (``vault`` None: there is none) on a vault's.

    ``quiet`` are the GUIDs of snapshots made on the vault while nothing had been written there.
    """

    name: DatasetName = DatasetName("tank/a")  # noqa: RUF009
    target: DatasetName = DatasetName("cold/a")  # noqa: RUF009
    txg: int = 1
    guid: int = 100
    source: list[Snapshot] = field(default_factory=list)
    marks: list[Bookmark] = field(default_factory=list)
    vault: list[Snapshot] | None = None
    written: int = 0
    partial: Partial | None = None
    quiet: set[int] = field(default_factory=set)

    def tick(self) -> int:
        self.txg += 1
        return self.txg

    # What happens to the pools.

    def snapshot(self, snapname: str) -> None:
        txg = self.tick()
        self.guid += 1
        self.source.append(Snapshot(self.name, snapname, self.guid, txg, 1000 + txg))

    def bookmark(self, snap: Snapshot) -> None:
        snapname = f"mark{self.tick()}"
        self.marks.append(Bookmark(self.name, snapname, snap.guid, snap.createtxg, snap.creation))

    def rename(self, name: str) -> None:
        """Rename the source's dataset: names of snapshots and bookmarks follow, GUIDs stay."""
        self.name = DatasetName(name)
        self.source = [_renamed(snap, self.name) for snap in self.source]
        self.marks = [Bookmark(self.name, m.markname, m.guid, m.createtxg, m.creation) for m in self.marks]

    def rename_snapshot(self, at: int, snapname: str) -> None:
        snap = self.source[at]
        self.source[at] = Snapshot(self.name, snapname, snap.guid, snap.createtxg, snap.creation)

    def arrive(self, guid: int, snapname: str, creation: int) -> None:
        assert self.vault is not None
        # A received snapshot has the vault's own createtxg; only the GUID and the creation time travel.
        self.vault.append(Snapshot(self.target, snapname, guid, 5000 + self.tick(), creation))

    # What zfs lets one do.

    def find(self, base: Base) -> Base:
        """The snapshot or bookmark that a name on the command line means."""
        known: list[Base] = [*self.marks] if isinstance(base, Bookmark) else [*self.source]
        found = [point for point in known if point.name == base.name]
        if not found:
            raise Illegal(f"cannot open {base.name}: it does not exist")
        return found[0]

    def run(self, step: TransferStep) -> None:
        """``zfs send … | zfs receive target``, with no -F."""
        if step.token is not None:
            self.resume(step)
            return
        to = self.find(step.to)
        assert isinstance(to, Snapshot)
        if step.base is None:
            self.receive(0, [to])
            return
        base = self.find(step.base)
        if base.createtxg >= to.createtxg:
            raise Illegal(f"{base.name} is not earlier than {to.name}")
        if not step.intermediates:
            self.receive(base.guid, [to])
            return
        if isinstance(base, Bookmark):
            raise Illegal("multiple snapshots cannot be sent from a bookmark")
        self.receive(base.guid, [s for s in self.source if base.createtxg < s.createtxg <= to.createtxg])

    def resume(self, step: TransferStep) -> None:
        waits = self.partial
        if waits is None or waits.token != step.token:
            raise Illegal("the token is not that of the vault's interrupted receive")
        to = next((snap for snap in self.source if snap.guid == waits.to), None)
        if to is None:
            raise Illegal("the snapshot used in the initial send no longer exists")
        if waits.base and waits.base not in {point.guid for point in (*self.source, *self.marks)}:
            raise Illegal("the incremental source no longer exists")
        if step.to.guid != to.guid:
            raise Illegal("the step brings another snapshot than the token")
        if waits.base and (self.written or not self.vault or self.vault[-1].guid != waits.base):
            raise Illegal("the target has been modified since its most recent snapshot")
        self.partial = None
        self.vault = [] if self.vault is None else self.vault
        self.arrive(to.guid, to.snapname, to.creation)

    def receive(self, base: int, sent: list[Snapshot]) -> None:
        if self.partial is not None:
            raise Illegal("the target has an interrupted receive")
        if base == 0:
            if self.vault is not None:
                raise Illegal("the target exists")
            self.vault = []
        elif base not in self.had():
            raise Illegal("the target does not have the incremental source")
        elif self.written or not self.quiet.issuperset(self.after(base)):
            raise Illegal("the target has been modified since the incremental source")
        for snap in sent:
            if snap.snapname in {there.snapname for there in self.vault}:
                raise Illegal("the target has a snapshot of that name")
            self.arrive(snap.guid, snap.snapname, snap.creation)

    def abort(self) -> None:
        """``zfs receive -A``: a target that the interrupted receive itself made goes with it."""
        if self.partial is None:
            raise Illegal("there is nothing to abort")
        if self.partial.base == 0:
            self.vault = None
        self.partial = None

    # What a listing of the two sides shows.

    def source_dataset(self) -> Dataset:
        return Dataset(self.name, 1, "filesystem", snapshots=tuple(self.source), bookmarks=tuple(self.marks))

    def vault_dataset(self) -> Dataset | None:
        if self.vault is None:
            return None
        token = self.partial.token if self.partial else None
        snapshots = tuple(self.vault)
        return Dataset(
            self.target, 2, "filesystem", written=self.written, resume_token=token, snapshots=snapshots
        )

    def interrupted(self) -> InterruptedReceive | None:
        """What ``zfs send -nvP -t`` says of the vault's token on this source."""
        waits = self.partial
        if waits is None:
            return None
        points = {point.guid for point in (*self.source, *self.marks)}
        gone = waits.to not in {snap.guid for snap in self.source} or waits.base not in {0, *points}
        return InterruptedReceive(waits.token, waits.to, "a snapshot it needs is gone" if gone else "")

    def had(self) -> list[int]:
        return [snap.guid for snap in self.vault or ()]

    def after(self, guid: int) -> list[int]:
        """What the vault has after one of its snapshots."""
        return self.had()[self.had().index(guid) + 1 :]

    def copy(self) -> World:
        return World(
            self.name,
            self.target,
            self.txg,
            self.guid,
            list(self.source),
            list(self.marks),
            None if self.vault is None else list(self.vault),
            self.written,
            None if self.partial is None else Partial(**vars(self.partial)),
            set(self.quiet),
        )


def _renamed(snap: Snapshot, dataset: DatasetName) -> Snapshot:
    return Snapshot(dataset, snap.snapname, snap.guid, snap.createtxg, snap.creation)


def fewest_streams(world: World, goal: list[int]) -> int | None:
    """How few streams bring the vault to exactly ``goal`` (GUIDs, oldest first); None: no way without rollback.

    Breadth first over every stream zfs could send, the vault's snapshots being the state.
    """
    seen = {tuple(world.had())}
    queue = deque([(world, 0)])
    while queue:
        now, count = queue.popleft()
        if now.had() == goal and now.partial is None:
            return count
        for step in every_stream(now):
            after = now.copy()
            try:
                after.run(step)
            except Illegal:
                continue
            state = tuple(after.had())
            if state not in seen and list(state) == goal[: len(state)]:
                seen.add(state)
                queue.append((after, count + 1))
    return None


def every_stream(world: World) -> list[TransferStep]:
    steps = [TransferStep(TransferAction.FULL, to) for to in world.source]
    for base in (*world.source, *world.marks):
        for to in world.source:
            steps += [
                TransferStep(TransferAction.INCREMENTAL, to, base, intermediates=many)
                for many in (False, True)
            ]
    if world.partial is not None:
        steps += [TransferStep(TransferAction.RESUME, to, token=world.partial.token) for to in world.source]
    return steps
