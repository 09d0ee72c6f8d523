"""A source and the pools of some vaults as plain values, with a daemon's real runs, status and lag on top of them.

``oracle`` reads the GUIDs of both sides by itself, with nothing of zvault's own functions.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.unit.ops.no_keys import NoKeys
from tests.unit.ops.ops_world import START, Crash, StoppedClock
from tests.unit.ops.replication.base_guard_world import carry_out_plan
from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.core.errors import Conflict, ZvaultError
from zvault.core.model import Bookmark, Dataset, Snapshot, Tree
from zvault.core.names import DatasetName, make_snapname
from zvault.core.replication.plan_model import TransferAction, TransferPlan, TransferStep
from zvault.core.replication.progress import RunMeter
from zvault.core.replication.vault_changes import RenameDataset
from zvault.daemon import lag_readings
from zvault.daemon.assemble import assemble_runs
from zvault.daemon.event_publisher import EventPublisher
from zvault.daemon.history import RunHistory
from zvault.daemon.jobs import backup_job
from zvault.daemon.status import DaemonStatus
from zvault.ops.context import Context
from zvault.ops.replication import listing as sides_module
from zvault.ops.replication import transfer
from zvault.ops.replication.lag import measure_lags
from zvault.ops.replication.listing import list_both_sides
from zvault.ops.replication.plan_all import plan_all
from zvault.ops.replication.run_bases import RunBases
from zvault.ops.replication.run_plan import Estimates, OpenBackup, RunPlan
from zvault.ops.replication.transfer import Transfers
from zvault.ops.run_outcome import RunOutcome
from zvault.ops.state.environment import Environment
from zvault.ops.state.pool_book import SeenPool
from zvault.ops.stream.run_stream import StreamResult
from zvault.ops.vaults.vault import Vaults
from zvault.system.process.runner import HostRunner

BACKUPS: dict[str, dict[str, Any]] = {
    "b": {"source": "tank", "vault": "cold"},
    "c": {"source": "tank", "vault": "usb", "exclude": ["tank/x1"]},
    "d": {"source": "tank", "vault": "cold", "into": "second/{dataset}"},
}


@dataclass(frozen=True)
class Point:
    """A snapshot or what was made of it: who it is, when it came, and when it was made."""

    snapname: str
    guid: int
    txg: int
    creation: int


@dataclass
class Own:
    """A dataset of the source, or of a pool: its snapshots, oldest first, their holds, its bookmarks by name."""

    guid: int
    points: list[Point] = field(default_factory=list)
    holds: dict[int, set[str]] = field(default_factory=dict)
    marks: dict[str, Point] = field(default_factory=dict)

    def listed(self, name: str) -> Dataset:
        at = DatasetName(name)
        marks = sorted(self.marks.items(), key=lambda one: one[1].txg)
        return Dataset(
            at,
            self.guid,
            "filesystem",
            snapshots=tuple(Snapshot(at, p.snapname, p.guid, p.txg, p.creation) for p in self.points),
            bookmarks=tuple(Bookmark(at, mark, p.guid, p.txg, p.creation) for mark, p in marks),
            placeholder=not self.points,
        )


@dataclass
class Pool:
    """A pool that a vault has: its datasets by name."""

    guid: int
    datasets: dict[str, Own] = field(default_factory=dict)


def listing(datasets: Mapping[str, Own], root: str) -> Tree:
    found = {DatasetName(name): one for name, one in datasets.items() if DatasetName(name).is_within(root)}
    return Tree({name: found[name].listed(name) for name in sorted(found, key=lambda one: one.parts)})


@dataclass
class World:
    """The pools, and what is powered: the daemon, and which vaults are up. ``changes`` counts those of any pool."""

    folder: Path
    backups: tuple[str, ...]
    source: dict[str, Own] = field(default_factory=dict)
    pools: dict[str, Pool] = field(default_factory=dict)
    up: set[str] = field(default_factory=set)
    breaks: set[str] = field(default_factory=set)
    tampered: set[str] = field(default_factory=set)
    clock: StoppedClock = field(default_factory=lambda: StoppedClock(START))
    changes: int = 0
    crash_at: int | None = None
    counter: int = 1

    def __post_init__(self) -> None:
        for name in ("tank", "tank/x1", "tank/x2"):
            self.source[name] = Own(self.new())
        for name in ("cold", "usb"):
            self.pools[name] = Pool(self.new())
        self.config = {name: dict(BACKUPS[name]) for name in self.backups}
        self.start()

    def new(self) -> int:
        """A GUID, or a transaction group, that nothing had yet."""
        self.counter += 1
        return self.counter

    def change(self) -> None:
        self.changes += 1
        if self.crash_at is not None and self.changes >= self.crash_at:
            raise Crash

    # The daemon

    def start(self) -> None:
        """Begin with what is on disk, and nothing in memory."""
        paths = Paths(self.folder, self.folder, self.folder, self.folder)
        env = Environment(self.parsed(), paths, HostRunner(), "host", self.clock)
        self.context = Context.of(env)
        self.context.clients._sources[None] = Source(self)  # type: ignore[assignment]
        for name in self.pools:
            self.context.clients._vaults[name, None, ""] = VaultSide(self, name)  # type: ignore[assignment]
        self.context.clients.pool_is_up = self.pool_is_up  # type: ignore[method-assign]
        self.context.clients.zpool = SimpleNamespace(state=self.pool_state)  # type: ignore[assignment]
        self.history = RunHistory(self.folder / "history.sqlite")
        self.runs = assemble_runs(self.context, Vaults(self.context), self.history, EventPublisher())
        scheduler: Any = SimpleNamespace(next_run=lambda _: None, behind=lambda: 0.0)
        monitor: Any = SimpleNamespace()
        self.status = DaemonStatus(self.context, monitor, self.runs, self.history, scheduler, self.clock.at)

    def parsed(self) -> Config:
        vaults = {name: {"pool": name} for name in ("cold", "usb")}
        return Config.model_validate({"daemon": {"timezone": "UTC"}, "vault": vaults, "backup": self.config})

    async def pool_is_up(self, vault: Any) -> bool:
        return vault.name in self.up

    async def pool_state(self, pool: str) -> Any:
        return SimpleNamespace(guid=self.pools[pool].guid)

    async def restart(self) -> None:
        self.history.close()
        self.start()

    async def refresh(self) -> None:
        """What the daemon does every few seconds."""
        for backup in self.context.env.config.backup.values():
            await self.runs.findings.refresh_lag(backup)

    def reload(self, backup: str, **changes: str) -> None:
        """Have a backup configured in another way from now on."""
        self.config[backup] |= changes
        self.context.env.reconfigure(self.parsed())
        self.context.env.host = "host"

    def bring_up(self, vault: str) -> None:
        self.up.add(vault)
        self.note(vault)

    def note(self, vault: str) -> None:
        """What zvault does when a vault comes up."""
        self.context.records.pools.note(self.pools[vault].guid, SeenPool.of(self.context.env.vault(vault)))

    async def run(self, backup: str, crash_at: int | None = None) -> None:
        """A run to its end, or until the power is cut at its so manyth change of a pool; then the daemon is back."""
        self.changes, self.crash_at = 0, crash_at
        vault = self.config[backup]["vault"]
        try:
            if crash_at is None:
                self.runs.start(backup, "hand")
                while tasks := {run.task for run in self.runs.runner.current.values()}:
                    await asyncio.wait(tasks)
            else:
                await Body(self, backup, RunOutcome()).execute()
        except Crash:
            await self.restart()
        finally:
            self.crash_at = None
            self.breaks.clear()
        # Here nobody reads the lags of the vault's other backups while it is up for this one's run, as zvaultd does:
        # of them is told what was on the vault when it was read last.
        if crash_at is None and all(
            table["vault"] != vault for name, table in self.config.items() if name != backup
        ):
            self.tampered.discard(vault)


class Source:
    """The source as the client of ZFS tells of it, and as libzfs_core changes it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lzc = self
        self.host = SimpleNamespace(address=None)

    def at(self, name: str) -> Own:
        return self.world.source[DatasetName(name.replace("#", "@").partition("@")[0])]

    def point(self, name: str) -> Point:
        own = self.at(name)
        if "#" in name:
            return own.marks[name.partition("#")[2]]
        return next(point for point in own.points if point.snapname == name.partition("@")[2])

    def forget(self, _: str) -> None:
        """Nothing is kept here."""

    async def estimate(self, *_: object) -> int:
        return 0

    async def tree(self, root: str, *, sizes: bool = True) -> Tree:
        return listing(self.world.source, root)

    async def held(self, asked: Iterable[tuple[Dataset, Sequence[Snapshot]]]) -> dict[str, set[str]]:
        return {
            snap.name: set(self.at(snap.name).holds.get(snap.guid, ()))
            for _, snaps in asked
            for snap in snaps
        }

    async def hold(self, names: Sequence[str], tag: str) -> None:
        self.world.change()
        for name in names:
            self.at(name).holds.setdefault(self.point(name).guid, set()).add(tag)

    async def release(self, names: Sequence[str], tag: str) -> None:
        self.world.change()
        for name in names:
            self.at(name).holds.get(self.point(name).guid, set()).discard(tag)

    async def bookmark(self, marks: Mapping[str, str]) -> None:
        self.world.change()
        for mark, of in marks.items():
            self.at(mark).marks.setdefault(mark.partition("#")[2], self.point(of))

    async def destroy_bookmarks(self, names: Sequence[str]) -> None:
        self.world.change()
        for name in names:
            self.at(name).marks.pop(name.partition("#")[2], None)


class VaultSide(NoKeys):
    """The pool that a vault has now, as the client of ZFS tells of it."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.host = SimpleNamespace(address=None)

    @property
    def datasets(self) -> dict[str, Own]:
        return self.world.pools[self.name].datasets

    async def tree_or_none(self, root: str, *, sizes: bool = True) -> Tree:
        return listing(self.datasets, root)

    async def tree(self, root: str) -> Tree:
        return listing(self.datasets, root)

    async def names(self, _: str) -> list[DatasetName]:
        return [DatasetName(name) for name in self.datasets]

    async def describe_content(self, name: str) -> str:
        return "it has snapshots" if name in self.datasets and self.datasets[name].points else ""

    async def make_parents(self, name: str, known: set[str] | None = None) -> None:
        for above in DatasetName(name).ancestors:
            self.datasets.setdefault(above, Own(self.world.new()))

    async def get(self, name: str, *properties: str) -> dict[str, str]:
        return dict.fromkeys(properties, "0")

    async def holds(self, _: Sequence[str]) -> dict[str, set[str]]:
        return {}


class ModelTransfers(Transfers):
    """The real order of a transfer; only what the streams and the renames do is done to the model."""

    world: World
    pool: Pool

    async def _carry(self, step: TransferStep, plan: TransferPlan, dataset: Dataset, *_: Any) -> StreamResult:
        there = self.pool.datasets.setdefault(plan.target, Own(self.world.new()))
        start = step.base.createtxg if step.base is not None else 0
        for point in self.world.source[dataset.name].points:
            between = step.intermediates and start < point.txg < step.to.createtxg
            if between or point.guid == step.to.guid:
                if dataset.name in self.world.breaks:
                    raise ZvaultError("the stream broke")
                self.world.change()
                there.points.append(Point(point.snapname, point.guid, self.world.new(), point.creation))
        return StreamResult(0, 0.0)


class Body:
    """Stands for ops/run.py: snapshot, look, plan, transfer, look again, lag."""

    world: World
    listed = None

    def __init__(self, world: World, name: str, outcome: RunOutcome) -> None:
        self.world, self.name, self.outcome = world, name, outcome
        self.looked: dict[str, float] = {}

    async def execute(self) -> None:
        world, context = self.world, self.world.context
        backup = context.env.backup(self.name)
        world.note(backup.vault)
        world.change()
        made = make_snapname(backup.snapshot.prefix, context.env.clock.now())
        for name, own in world.source.items():
            if name not in backup.exclude and all(point.snapname != made for point in own.points):
                own.points.append(Point(made, world.new(), world.new(), int(world.clock.at)))
        zfs: Any = context.clients.vault_of(backup)
        sides = await list_both_sides(context, backup, zfs, elsewhere=True, made=made)
        pool = world.pools[backup.vault]
        vault: Any = SimpleNamespace(guid=pool.guid, zfs=zfs, name=backup.vault)
        opened = OpenBackup(context, backup, vault, lambda _: None)
        plans = await plan_all(context, backup, sides)
        bases = RunBases(opened.source, pool.guid)
        await bases.learn([sides.source.datasets[plan.dataset] for plan in plans])
        transfers = ModelTransfers(
            opened, RunPlan(sides, plans, bases, Estimates(opened), {}, {}), RunMeter()
        )
        transfers.world, transfers.pool = world, pool
        await transfers.cover()
        for plan in plans:
            try:
                await carry_out_plan(transfers, plan)
            except ZvaultError as error:
                self.outcome.fall_short(error)
        for error in (await bases.wait_advanced()).values():
            self.outcome.fall_short(error)
        self.outcome.lags = measure_lags(context, backup, await list_both_sides(context, backup, zfs))
        self.looked = dict.fromkeys(("source", "vault"), context.env.clock.monotonic())


def install(monkeypatch: Any) -> None:
    """Have the daemon's runs, and the plans' changes of names, work on the model."""

    def run(context: Context, _: Vaults, name: str, __: object, outcome: RunOutcome, **___: object) -> Body:
        world: Any = context.clients.source_at(None)
        return Body(world.world, name, outcome)

    async def beside(*_: object) -> list[DatasetName]:
        return []

    async def arrange(vault: Any, plan: TransferPlan, *_: object, **__: object) -> None:
        for change in plan.changes:
            if not isinstance(change, RenameDataset):
                raise Conflict(f"not in this model: {change}")
            vault.world.change()
            for name in [one for one in vault.datasets if DatasetName(one).is_within(change.old)]:
                vault.datasets[DatasetName(name).moved(change.old, change.new)] = vault.datasets.pop(name)
        if plan.action is TransferAction.CONFLICT:
            raise Conflict(plan.reason)

    monkeypatch.setattr(backup_job, "BackupRun", run)
    monkeypatch.setattr(lag_readings, "DOWN_SOURCE_INTERVAL", 0.0)
    monkeypatch.setattr(lag_readings, "read_proofs", lambda *_: asyncio.sleep(0, {}))
    monkeypatch.setattr(sides_module.rename_clone_rollback, "list_datasets_beside", beside)
    monkeypatch.setattr(transfer, "apply_changes", arrange)


def forget_state(world: World) -> None:
    shutil.rmtree(world.folder / "pools", ignore_errors=True)


@dataclass(frozen=True)
class Truth:
    """What is so of one dataset: seconds since the newest snapshot that is on the vault's pool, and how many lack."""

    seconds: float | None
    pending: int


def oracle(world: World, backup: str) -> dict[str, Truth]:
    """By dataset that the backup takes, read from the GUIDs of both sides: of its place on the vault, and no other."""
    table = world.config[backup]
    place = f"{table['vault']}/" + table.get("into", "{host}/{dataset}").format(host="host", dataset="tank")
    there = {
        point.guid
        for name, own in world.pools[table["vault"]].datasets.items()
        if DatasetName(name).is_within(place)
        for point in own.points
    }
    found = {}
    for name, own in world.source.items():
        if name in table.get("exclude", []):
            continue
        lacking = 0
        seconds = None
        for point in sorted(own.points, key=lambda one: one.txg, reverse=True):
            if point.guid in there:
                seconds = world.clock.at - point.creation
                break
            lacking += 1
        found[name] = Truth(seconds, lacking)
    return found
