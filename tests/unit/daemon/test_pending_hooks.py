"""Hooks that a crash kept from running: those of a backup run after its vault was given up, whoever waits for that."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.patience import PATIENCE
from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.config.tables.hooks import Hook
from zvault.config.templates import resolve_templates
from zvault.core.errors import DeviceGone
from zvault.daemon.assemble import assemble_daemon
from zvault.ops.vaults.vault import ManagedVault

CONFIG: dict[str, Any] = {
    "vault": {
        "cloud": {"pool": "cloud", "hosts": ["a", "b"], "device": [{"nbd": "zvault:zv/cloud size=1G"}]},
        "cold": {"pool": "cold"},
    },
    "backup": {
        "far": {"source": "ssh://root@filer/tank", "vault": "cloud"},
        "near": {"source": "tank", "vault": "cold"},
    },
}


class World:
    """A daemon after a crash in a run of each backup; a vault that hosts share is adopted once ``adopted`` is set."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log, self.adopted = folder / "log", asyncio.Event()
        self.slow = "cloud"
        self.fails = False
        self.daemon = assemble_daemon(Config.model_validate(CONFIG), Paths(folder, folder, folder, folder))

        async def adopt(vault: ManagedVault, *_: object, **__: object) -> None:
            if vault.name == self.slow:
                await self.adopted.wait()
                if self.fails:
                    raise DeviceGone("the pool 'cloud' cannot be given up")

        async def none(*_: object) -> list[str]:
            return []

        monkeypatch.setattr(ManagedVault, "adopt", adopt)
        monkeypatch.setattr("zvault.daemon.app.reconcile_tuning", none)
        monkeypatch.setattr("zvault.daemon.app.snapshot_reader.close_left_open", none)
        monkeypatch.setattr(self.daemon.runs.past, "sweep", none)
        for backup, vault in (("far", "cloud"), ("near", "cold")):
            about = {"backup": backup, "run": "r1", "source": "tank", "vault": vault}
            command = ["/bin/sh", "-c", f"echo {backup} >>{self.log}"]
            hook = Hook.model_validate({"run": command}).model_dump()
            self.daemon.context.records.hooks.put(f"hooks/run/{backup}/r1", {"about": about, "hooks": [hook]})

    @property
    def ran(self) -> list[str]:
        return self.log.read_text().split() if self.log.exists() else []

    async def backed_up(self, backup: str, patience: float) -> list[str]:
        """A run of a backup begins: the hooks that ran before it. After ``patience`` seconds the vault is adopted."""
        before: list[list[str]] = []
        shared: Any = SimpleNamespace()

        async def turn(*_: object) -> None:
            before.append(self.ran)

        runs: Any = self.daemon.runs
        runs.turns = SimpleNamespace(of=lambda _: shared, run=turn)

        run = runs.start(backup, "schedule")
        task = runs.runner.current[run].task
        await asyncio.wait({task}, timeout=patience)
        if not before:
            self.adopted.set()
            await asyncio.wait({task})
        return before[0]


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    it = World(tmp_path, monkeypatch)
    yield it
    it.daemon.history.close()


@pytest.mark.parametrize("fails", [False, True])
async def test_those_of_a_shared_vault_wait_for_its_adoption_and_nobody_else_does(world: World, fails: bool):
    world.fails = fails
    await world.daemon.reconcile()
    assert world.ran == ["near"]
    world.adopted.set()
    await asyncio.gather(*world.daemon._tasks)
    assert world.ran == ["near", "far"]
    assert not world.daemon.runs.gate.held
    assert world.daemon.context.records.hooks.names("hooks/run/") == []


async def test_a_run_begins_after_the_hooks_of_the_one_that_was_cut_off(world: World):
    await world.daemon.reconcile()
    assert await world.backed_up("far", 0.3) == ["near", "far"]


async def test_one_without_such_hooks_waits_for_nothing(world: World):
    world.daemon.context.records.hooks.drop("hooks/run/far/r1")
    await world.daemon.reconcile()
    assert await world.backed_up("far", PATIENCE) == ["near"]
    assert not world.adopted.is_set()


async def test_a_vault_that_takes_long_keeps_neither_the_start_nor_another_vault_waiting(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import takes minutes, and a cache is written back for hours: systemd killed the start after ten minutes."""
    monkeypatch.setattr("zvault.daemon.app.PROMPT", 0.3)
    world.slow = "cold"
    async with asyncio.timeout(PATIENCE):
        await world.daemon.reconcile()
    assert world.ran == ["far"]
    # What it lies on may be needed until it is down: its hooks wait, and so does its backup.
    assert await world.backed_up("near", 0.3) == ["far", "near"]


@pytest.mark.parametrize(("name", "vaults"), [("near", 2), ("near@cold", 1)])
async def test_those_of_a_backup_that_has_another_name_now_have_its_vault_go_down_first(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str, vaults: int
) -> None:
    """The run that was cut off goes on under the new name: its vault stayed up, and the hook took away what that
    stands on.
    """
    needed: dict[str, bool] = {}

    async def adopt(vault: ManagedVault, *_: object, needed: bool, kept: dict[str, bool] = needed) -> None:
        kept[vault.name] = needed

    monkeypatch.setattr(ManagedVault, "adopt", adopt)
    daemon = world.daemon
    store, env = daemon.context.records.hooks, daemon.context.env
    lease = store.get("hooks/run/near/r1")
    assert lease is not None
    store.drop("hooks/run/near/r1")
    about = {**lease["about"], "backup": name}
    store.put(f"hooks/run/{name}/r1", {"about": about, "hooks": lease["hooks"]})
    daemon.history.begin("r1", name, "hand", 1.0, env.way(env.backup("near")))
    table = {"source": "tank", "vaults": ["cold", "cloud"]} if vaults == 2 else CONFIG["backup"]["near"]
    data = {**CONFIG, "backup": {"far": CONFIG["backup"]["far"], "near": table}}
    env.reconfigure(Config.model_validate(resolve_templates(data).data))
    now = "near@cold" if vaults == 2 else "near"
    assert await daemon.reconcile() == {now}
    await asyncio.gather(*daemon._tasks)
    assert needed == {"cloud": False, "cold": False}
    assert sorted(world.ran) == ["far", "near"]
    assert store.names("hooks/") == []
    assert not daemon.runs.gate.held
