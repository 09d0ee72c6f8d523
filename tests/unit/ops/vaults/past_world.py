"""A host on which vaults are opened as they were: each step that is done to it can fail, or be zvaultd's last."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.ops.ops_world import START, context
from zvault.core.errors import Busy
from zvault.ops.vaults import past_vaults as module
from zvault.ops.vaults.inhibitor import VaultInhibitor
from zvault.ops.vaults.past_record import PastVault
from zvault.ops.vaults.past_vaults import PastVaults
from zvault.ops.vaults.vault import Vaults

STORE = "zvault:zv/cold size=10G credential=zvault.s3"
KEEPS = {"pool": "cold", "device": [{"nbd": f"{STORE} history=last:9"}]}


class Killed(BaseException):
    """zvaultd is killed at this step."""


@dataclass
class World:
    """A host; ``steps`` counts what is done to it, and the one of number ``fails`` is met by ``error``."""

    folder: Path
    devices: set[str] = field(default_factory=set)
    changing: set[str] = field(default_factory=set)
    pools: dict[str, int] = field(default_factory=dict)
    steps: int = 0
    fails: int = -1
    error: BaseException | None = None
    dead: bool = False
    busy: bool = False
    lost: set[str] = field(default_factory=set)
    slow: dict[str, asyncio.Event] = field(default_factory=dict)
    """By the name of a vault as it was: until when its pool waits to get another GUID."""
    moment: PastVault = field(default_factory=lambda: PastVault("cold", 1, 2, START, "cold_then"))

    def step(self) -> None:
        if self.dead:
            raise Killed
        self.steps += 1
        if self.steps == self.fails and self.error is not None:
            self.dead = isinstance(self.error, Killed)
            raise self.error

    @property
    def left(self) -> list[object]:
        files = [path for path in (self.folder / "lease/past").rglob("*") if path.is_file()]
        return [*self.devices, *self.changing, *self.pools, *files]

    # What PastVaults asks of the host

    def stack(self, past: PastVault) -> Any:
        async def up(_: Any) -> list[Any]:
            self.step()
            self.devices.add(past.name)
            self.step()
            return [SimpleNamespace(path="/dev/nbd7")]

        async def down(_: Any) -> None:
            self.step()
            assert self.pools.get(past.pool) != 77, "the pool lies on it"
            assert past.name not in self.changing
            self.devices.discard(past.name)

        async def probe() -> list[Any]:
            state = "gone" if past.name in self.lost else "up"
            return [SimpleNamespace(name=past.name, state=state, detail="its server died")]

        return SimpleNamespace(up=up, down=down, probe=probe)

    async def change_guid(self, _: Any, __: Any, device: str, pool: str, name: str) -> int:
        assert name in self.devices
        self.changing.add(name)
        self.step()
        try:
            if name in self.slow:
                await self.slow[name].wait()
        finally:
            self.changing.discard(name)
        return 77

    async def end(self, _: Any, name: str) -> None:
        self.step()
        self.changing.discard(name)

    async def import_readonly(self, _: Any, pool: str, guid: int, device: str, altroot: str) -> None:
        self.step()
        self.pools[pool] = guid
        self.step()

    async def kernel_state(self, pool: str) -> str | None:
        return "ONLINE" if pool in self.pools else None

    async def state(self, pool: str) -> Any:
        return SimpleNamespace(guid=self.pools[pool])

    async def export(self, pool: str) -> None:
        self.step()
        if self.busy:
            raise Busy(f"cannot export {pool}", "pool is busy")
        del self.pools[pool]

    def vaults(self) -> PastVaults:
        """Those of a zvaultd that starts now."""
        self.dead = False
        where = context(folder=self.folder, vault=KEEPS)
        where.clients.zpool = self  # type: ignore[assignment]
        made = PastVaults(where, Vaults(where))
        made._leases._boot_id = "this"
        put, drop = made._leases.put, made._leases.drop

        def put_step(name: str, data: Any) -> None:
            self.step()
            put(name, data)
            self.step()

        def drop_step(name: str) -> None:
            self.step()
            drop(name)

        made._leases.put, made._leases.drop = put_step, drop_step  # type: ignore[method-assign]

        async def stack(past: PastVault, _: Any) -> Any:
            return self.stack(past)

        made._stack = stack  # type: ignore[method-assign]
        return made


@pytest.fixture(name="world")
def world_of_pasts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    it = World(tmp_path)
    (tmp_path / "local.toml").write_text("[queue]\n")

    async def found(*_: Any) -> PastVault:
        return it.moment

    monkeypatch.setattr(module, "look_up_moment", found)
    for name in ("change_guid", "import_readonly"):
        monkeypatch.setattr(module.new_guid, name, getattr(it, name))
    monkeypatch.setattr(module.new_guid, "end_guid_change", it.end)

    class Awake(VaultInhibitor):
        async def _take(self, why: str, say: Any) -> None:
            return

        async def _release(self) -> None:
            return

    monkeypatch.setattr("zvault.ops.vaults.vault.VaultInhibitor", Awake)
    return it


def quiet(_: str) -> None:
    return
