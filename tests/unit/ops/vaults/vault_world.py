"""One vault whose devices and pool are two flags: what zvault does to them is checked as it is done.

A zvaultd can be killed at any step. What it does after that has no effect, as if there were no process any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.ops.ops_world import context
from zvault.config.schema import Config
from zvault.core.errors import Busy, DeviceGone, ZvaultError
from zvault.core.policy.vault_life import VaultLife
from zvault.ops.vaults import inhibitor, vault, vault_sleep
from zvault.ops.vaults.vault import ManagedVault
from zvault.system import tasks
from zvault.system.logind import InhibitorLock

MOVING = {VaultLife.COMING_UP, VaultLife.COMING_BACK, VaultLife.GOING_DOWN}


class Killed(BaseException):
    """zvaultd is killed at this step."""


@dataclass
class Leases:
    """A RecordStore in memory, which outlives its zvaultd."""

    world: World
    kept: dict[str, dict[str, Any]] = field(default_factory=dict)

    def put(self, name: str, data: Mapping[str, object]) -> None:
        self.world.alive()
        self.kept[name] = {**data, "boot": self.world.boot}

    def get(self, name: str) -> dict[str, Any] | None:
        data = self.kept.get(name)
        return None if data is None else {**data, "stale": data["boot"] != self.world.boot}

    def drop(self, name: str) -> None:
        self.world.alive()
        self.kept.pop(name, None)


@dataclass
class World:
    """A host with one vault. ``inside`` counts the blocks that use it, as they themselves see it."""

    devices: bool = False
    pool: bool = False
    lost: bool = False
    """The storage does not answer."""
    refuses: bool = False
    """The pool cannot be exported: something has it open."""
    foreign: bool = False
    """Somebody else exported the pool."""
    boot: int = 1
    inside: int = 0
    moves: int = 0
    by_itself: bool = False
    """Whether what is done now is zvaultd's own idea."""
    steps: int | None = None
    """Steps until zvaultd is killed."""
    dead: bool = False
    faults: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    """What was done to the storage, in order."""

    def __post_init__(self) -> None:
        self.leases = Leases(self)
        self.start()

    def start(self, up: str = "on-demand") -> None:
        """A new zvaultd."""
        self.dead, self.steps, self.inside, self.moves = False, None, 0, 0
        self.context = context()
        pools: Any = SimpleNamespace(note=lambda *_: None, all=dict, last=lambda _: None)
        leases: Any = self.leases
        self.context = replace(self.context, records=replace(self.context.records, undo=leases, pools=pools))
        self.configure(up)
        self.vault = Played(self)

    def configure(self, up: str, on_sleep: str = "export") -> None:
        """Load a configuration."""
        cold = {"pool": "cold", "up": up, "on_sleep": on_sleep, "device": [{"nbd": "tcp:nas"}]}
        self.context.env.config = Config.model_validate({"vault": {"cold": cold}})

    def alive(self) -> None:
        """Raises Killed in a zvaultd that is dead."""
        if self.dead:
            raise Killed

    async def step(self) -> None:
        """Others run; zvaultd may be killed here."""
        self.alive()
        if self.steps is not None:
            self.steps -= 1
            self.dead = self.steps < 0
        self.alive()
        await asyncio.sleep(0)
        self.alive()

    def must(self, true: bool, what: str) -> None:
        """Note a fault, also where it is raised into something that passes over errors."""
        if not true:
            self.faults.append(what)
            raise AssertionError(what)

    @property
    def well(self) -> bool:
        """Whether all devices are up and answer."""
        return self.devices and not self.lost

    @contextmanager
    def move(self) -> Iterator[None]:
        """One move at a time."""
        self.must(self.moves == 0, "two moves at the same time")
        self.moves += 1
        try:
            yield
        finally:
            self.moves -= 1


class Played(ManagedVault):
    """A vault on this world's storage."""

    def __init__(self, world: World) -> None:
        super().__init__(world.context, "cold")
        self.world = world

    def assembly(self, *, new: bool = False, fenced: bool = False) -> Any:
        return Storage(self.world, self, new=new)


@dataclass
class Storage:
    """Stands for an Assembly, its stack and its pools."""

    world: World
    vault: ManagedVault
    new: bool = False
    create: bool = True

    @property
    def name(self) -> str:
        return "cold"

    @property
    def context(self) -> Any:
        return self.world.context

    @property
    def zpool(self) -> Any:
        return SimpleNamespace(kernel_state=self.kernel_state, sync=self.sync, export=self.export_within)

    def stack(self) -> Any:
        return SimpleNamespace(rest=self.rest)

    def profile(self) -> Any:
        return SimpleNamespace(pool={})

    async def rest(self, *, resting: bool) -> None:
        self.world.log.append("rests" if resting else "goes on")
        await self.world.step()

    async def kernel_state(self, _: str) -> str | None:
        return "ACTIVE" if self.world.pool else None

    async def sync(self, _: str, within: float) -> None:
        self.world.must(within > 0, "no time to sync")
        self.world.log.append("syncs")
        await self.world.step()

    async def up(self, say: object) -> tuple[Any, list[str]]:
        world = self.world
        world.log.append("comes up")
        world.must(
            not (world.by_itself and world.foreign and world.well and not world.pool),
            "zvault imported by itself what somebody exported",
        )
        with world.move():
            world.must(self.vault.lease.exists, "brought up before it was written down")
            await world.step()
            world.devices = True
            await world.step()
            if world.lost:
                # What does not answer cannot be let go of: some of it stays.
                world.devices = world.pool or world.refuses
                raise DeviceGone("the storage does not answer")
            world.pool, world.foreign = True, False
            await world.step()
        return SimpleNamespace(name="cold", guid=1, readonly=False, properties={}, expandable=0), [
            "/dev/nbd0"
        ]

    async def down(self, say: object) -> None:
        world = self.world
        world.must(not world.inside, "taken down while it is used")
        world.must(not self.vault.pinned, "taken down while it is pinned")
        with world.move():
            await self._export()
            await world.step()
            world.devices = world.foreign = False
            await world.step()

    async def _export(self) -> None:
        await self.world.step()
        if self.world.pool:
            if self.world.lost or self.world.refuses:
                raise Busy("the pool cannot be exported")
            self.world.pool = False
            await self.world.step()

    async def patient_stack(self, say: object) -> None:
        return None

    async def export(self, stack: None, say: object) -> None:
        self.world.must(not self.world.inside, "exported below its users")
        with self.world.move():
            await self._export()

    async def export_within(self, _: str, within: float) -> None:
        self.world.must(within > 0, "no time to export")
        with self.world.move():
            await self._export()

    async def anything_up(self) -> bool:
        await self.world.step()
        return self.world.devices or self.world.pool

    async def exported(self) -> bool:
        await self.world.step()
        return self.world.well and not self.world.pool

    async def trouble(self) -> ZvaultError | None:
        await self.world.step()
        return None if self.world.well and self.world.pool else DeviceGone("it is not up")


def played(monkeypatch: pytest.MonkeyPatch) -> World:
    """A world, in which nothing outside of the vault is real."""
    world = World()

    async def nothing(*_: object, **__: object) -> None:
        await world.step()

    async def health(*_: object) -> Any:
        return SimpleNamespace(scan=SimpleNamespace(state="none"))

    @asynccontextmanager
    async def inhibit(*, why: str, what: str, mode: str) -> AsyncIterator[InhibitorLock]:
        await world.step()
        yield InhibitorLock(held=True)

    monkeypatch.setattr(inhibitor, "hold_inhibitor", inhibit)
    monkeypatch.setattr(vault, "set_vault_parameters", nothing)
    monkeypatch.setattr(vault, "restore_parameters", nothing)
    monkeypatch.setattr(vault, "read_hostid", lambda: 1)
    monkeypatch.setattr(vault, "examine_pool", nothing)
    monkeypatch.setattr(vault_sleep, "Scrubber", lambda _: SimpleNamespace(health=health))
    monkeypatch.setattr(tasks, "WATCH_EVERY", 1e6)
    monkeypatch.setattr(
        "zvault.zfs.pool.pool.Zpool.devices", lambda *_: asyncio.sleep(0, result=["/dev/nbd0"])
    )
    return world
