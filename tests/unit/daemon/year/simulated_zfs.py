"""Pools as plain values, which zvault's clients of ZFS change: as libzfs_core and zpool would, without their time."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from tests.unit.ops.no_keys import NoKeys
from zvault.core.integrity.put_back import PoolTxgs
from zvault.core.integrity.verification import LevelProof, ProofLevel
from zvault.core.model import Bookmark, Dataset, Snapshot, Tree
from zvault.core.names import DatasetName
from zvault.ops.replication.transfer import Transfers
from zvault.ops.stream.run_stream import StreamResult
from zvault.system.process.runner import ProcessResult
from zvault.zfs.changes import LzcFailure, NamesGone
from zvault.zfs.pool.pool import PoolState


@dataclass(frozen=True)
class Point:
    """A snapshot, or what a bookmark keeps of it."""

    snapname: str
    guid: int
    txg: int
    creation: int


@dataclass
class Own:
    """A dataset: its snapshots by name, oldest first, with their holds; its bookmarks; and bytes ``written`` since."""

    guid: int
    points: dict[str, Point] = field(default_factory=dict)
    holds: dict[str, set[str]] = field(default_factory=dict)
    marks: dict[str, Point] = field(default_factory=dict)
    sent: str = ""
    written: int = 0

    def listed(self, name: str) -> Dataset:
        at = DatasetName(name)
        marks = sorted(self.marks.items(), key=lambda one: one[1].txg)
        return Dataset(
            at,
            self.guid,
            "filesystem",
            snapshots=tuple(
                Snapshot(at, p.snapname, p.guid, p.txg, p.creation) for p in self.points.values()
            ),
            bookmarks=tuple(Bookmark(at, mark, p.guid, p.txg, p.creation) for mark, p in marks),
            placeholder=not self.points,
            sent=self.sent,
            written=self.written,
        )


@dataclass
class Pool:
    """A pool: its datasets by name. While it is ``away`` it cannot be imported."""

    guid: int
    datasets: dict[str, Own] = field(default_factory=dict)
    away: bool = False
    proofs: dict[ProofLevel, LevelProof] = field(default_factory=dict)


@dataclass
class Pools:
    """All pools of the host; ``new`` gives what nothing had yet: GUIDs and transaction groups."""

    time: Any
    pools: dict[str, Pool] = field(default_factory=dict)
    counter: int = 0

    def new(self) -> int:
        self.counter += 1
        return self.counter

    def dataset(self, name: str) -> Own:
        return self.pools[DatasetName(name).pool].datasets[name]


class SimulatedZfs(NoKeys):
    """A client of ZFS, and the libzfs_core of its host."""

    def __init__(self, pools: Pools) -> None:
        self.pools = pools
        self.lzc = self
        self.host = SimpleNamespace(address=None, run=self._run)
        self.lapses: int | None = None

    async def _run(self, *_: object, **__: object) -> ProcessResult:
        return ProcessResult((), 0, "", "", 0.0)

    def _named(self, name: str) -> tuple[Own, str]:
        of, _, short = name.replace("#", "@").partition("@")
        return self.pools.dataset(of), short

    def _there(self, name: str) -> bool:
        own, short = self._named(name)
        return short in (own.marks if "#" in name else own.points)

    # What is asked

    async def tree(self, root: str, *, sizes: bool = True) -> Tree:
        at = DatasetName(root)
        datasets = self.pools.pools[at.pool].datasets
        found = sorted(
            (name for name in map(DatasetName, datasets) if name.is_within(at)), key=lambda one: one.parts
        )
        return Tree({name: datasets[name].listed(name) for name in found})

    async def tree_or_none(self, root: str, *, sizes: bool = True) -> Tree:
        return await self.tree(root)

    async def names(self, root: str) -> list[DatasetName]:
        return [one.name for one in await self.tree(root)]

    async def holds(self, names: Sequence[str]) -> dict[str, set[str]]:
        found = {name: self._named(name) for name in names}
        return {name: set(own.holds.get(short, ())) for name, (own, short) in found.items()}

    async def held(self, asked: Iterable[tuple[Dataset, Sequence[Snapshot]]]) -> dict[str, set[str]]:
        return await self.holds([snap.name for _, snaps in asked for snap in snaps])

    async def tagged(self, names: Sequence[str], tag: str) -> set[str]:
        return {name for name, tags in (await self.holds(names)).items() if tag in tags}

    async def clones(self, _: Sequence[str]) -> dict[str, list[Any]]:
        return {}

    async def get(self, _: str, *properties: str) -> dict[str, str]:
        return dict.fromkeys(properties, "0")

    async def estimate(self, *_: object) -> int:
        return 4096

    async def describe_content(self, _: str) -> str:
        return ""

    async def exists(self, name: str) -> bool:
        return name in self.pools.pools[DatasetName(name).pool].datasets

    def forget(self, _: str) -> None:
        """Nothing is kept here."""

    async def close(self) -> None:
        """It has no helper process."""

    # What is changed

    async def make_parents(self, name: str, known: set[str] | None = None) -> None:
        for above in DatasetName(name).ancestors:
            self.pools.pools[above.pool].datasets.setdefault(above, Own(self.pools.new()))

    async def snapshot(self, names: Sequence[str], _: Mapping[str, str]) -> None:
        if taken := [name for name in names if self._there(name)]:
            raise LzcFailure(
                "snapshot", "it exists", [(name, "SnapshotExists", errno.EEXIST) for name in taken]
            )
        txg = self.pools.new()
        for name in names:
            own, short = self._named(name)
            own.points[short] = Point(short, self.pools.new(), txg, int(self.pools.time()))
            own.written = 0

    async def destroy(self, names: Sequence[str]) -> None:
        busy = [name for name, tags in (await self.holds(names)).items() if tags]
        if busy:
            raise LzcFailure("destroy", "held", [(name, "SnapshotIsHeld", errno.EBUSY) for name in busy])
        for name in names:
            own, short = self._named(name)
            own.points.pop(short, None)

    def _lament(self, names: Iterable[str]) -> None:
        if gone := [name for name in names if not self._there(name)]:
            raise NamesGone("cannot do it", "gone", gone)

    async def hold(self, names: Sequence[str], tag: str) -> None:
        for name in filter(self._there, names):
            own, short = self._named(name)
            own.holds.setdefault(short, set()).add(tag)
        self._lament(names)

    async def release(self, names: Sequence[str], tag: str) -> None:
        for name in names:
            own, short = self._named(name)
            own.holds.get(short, set()).discard(tag)
            if not own.holds.get(short):
                own.holds.pop(short, None)

    async def bookmark(self, marks: Mapping[str, str]) -> None:
        for mark, of in marks.items():
            if self._there(of):
                own, short = self._named(of)
                self._named(mark)[0].marks.setdefault(
                    mark.partition("#")[2], own.marks[short] if "#" in of else own.points[short]
                )
        self._lament(marks.values())

    async def destroy_bookmarks(self, names: Sequence[str]) -> None:
        for name in names:
            own, short = self._named(name)
            own.marks.pop(short, None)


class SimulatedZpool:
    """The pools as zpool tells of them."""

    def __init__(self, pools: Pools, runner: Any) -> None:
        self.pools = pools
        self.runner = runner
        self.tried = 0

    async def state(self, pool: str) -> PoolState | None:
        there = self.pools.pools[pool]
        return None if there.away else PoolState(pool, there.guid, 1 << 40, 1 << 30, 1 << 39, "ONLINE")

    async def read_txgs(self, pool: str) -> PoolTxgs | None:
        return None if self.pools.pools[pool].away else PoolTxgs(self.pools.counter, self.pools.counter)

    async def kernel_state(self, pool: str) -> str | None:
        return None if self.pools.pools[pool].away else "ONLINE"

    async def import_(self, pool: str, *_: object, **__: object) -> bool:
        self.tried += 1
        return False

    async def sync(self, *_: object) -> None:
        """All is on disk."""

    def on_its_way_out(self, *_: object, **__: object) -> None:
        """Nothing is being exported."""


async def carry(self: Any, step: Any, plan: Any, dataset: Dataset, *_: object) -> StreamResult:
    """What a stream brings; in place of Transfers._carry."""
    source, vault = self.opened.source.pools.dataset(dataset.name), self.opened.vault.zfs.pools
    there = vault.pools[DatasetName(plan.target).pool].datasets.setdefault(plan.target, Own(vault.new()))
    start = step.base.createtxg if step.base is not None else 0
    for point in list(source.points.values()):
        between = step.intermediates and start < point.txg < step.to.createtxg
        if between or point.guid == step.to.guid:
            if point.snapname in there.points:
                raise LzcFailure("receive", f"{point.snapname} exists", [])
            there.points[point.snapname] = Point(point.snapname, point.guid, vault.new(), point.creation)
    there.sent = Transfers._record(self, step, dataset)
    return StreamResult(4096, 0.0)
