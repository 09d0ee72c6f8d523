"""A source whose clock was set back: the vault has a snapshot of the name that the run gives."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.events import split_event
from tests.unit.ops.no_keys import NoKeys
from tests.unit.ops.ops_world import (
    HOUR,
    START,
    StoppedClock,
    context,
    dataset,
    snap,
    tree,
    with_source,
    with_vault,
)
from zvault.core.errors import HookFailed, HostUnreachable, Refused
from zvault.core.model import Snapshot, Tree
from zvault.core.names import DatasetName
from zvault.core.replication.plan_model import TransferAction
from zvault.ops import run as run_module
from zvault.ops.hooks import RunHooks
from zvault.ops.replication import source_snapshot
from zvault.ops.replication.plan_all import plan_all
from zvault.ops.run import BackupRun
from zvault.ops.run_outcome import RunOutcome
from zvault.ops.vaults.vault import Vaults
from zvault.system.process.runner import ProcessResult
from zvault.zfs.changes import LzcFailure


class Side(NoKeys):
    """A pool as a value, whose snapshots can be made and destroyed."""

    def __init__(self, there: Tree) -> None:
        self.there = there
        self.lzc = self
        self.host: Any = SimpleNamespace(address=None, run=self.nobody)
        self.lapses: int | None = None
        self.gone: list[str] = []
        self.kept: set[str] = set()
        self.refuses = False
        self.number = 900
        self.did: list[str] = []
        self.orders: list[list[str]] = []
        self.breaks_off = False

    async def nobody(self, *_: object, **__: object) -> ProcessResult:
        return ProcessResult((), 0, "", "", 0.0)

    async def tree(self, _: str, *, sizes: bool = True) -> Tree:
        return Tree(dict(self.there.datasets))

    async def tree_or_none(self, root: str, *, sizes: bool = True) -> Tree:
        return await self.tree(root)

    async def snapshot(self, names: Sequence[str], _: object) -> None:
        self.number += 100
        txg = self.number
        for name in names:
            of, _, short = name.partition("@")
            before = self.there.datasets[DatasetName(of)]
            if any(one.snapname == short for one in before.snapshots):
                raise LzcFailure("snapshot", "", [(name, "SnapshotExists", 17)])
            self.number += 1
            new = Snapshot(before.name, short, self.number, txg, START)
            self.there.datasets[before.name] = replace(before, snapshots=(*before.snapshots, new))
        self.did.append(f"snapshot {names[0].partition('@')[2]}")

    async def destroy(self, names: Sequence[str]) -> None:
        if self.refuses:
            raise Refused("permission denied")
        self.orders.append(list(names))
        if self.breaks_off:
            await self.take_away(names[:1])
            raise HostUnreachable("cannot reach filer", "it broke off")
        await self.take_away(names)

    async def take_away(self, names: Sequence[str]) -> None:
        if held := [name for name in names if name in self.kept]:
            raise LzcFailure("destroy", "", [(name, "SnapshotIsHeld", 16) for name in held])
        self.gone += names
        self.did.append(f"destroy {names[0].partition('@')[2]}")
        for one in list(self.there):
            left = tuple(snap for snap in one.snapshots if snap.name not in names)
            self.there.datasets[one.name] = replace(one, snapshots=left)

    async def holds(self, names: Sequence[str]) -> dict[str, set[str]]:
        return {name: {"mine"} for name in names if name in self.kept}

    async def clones(self, _: Sequence[str]) -> dict[str, list[Any]]:
        return {}


class Planned(BackupRun):
    """A run as far as its plan."""

    plans: dict[str, TransferAction]

    async def _plan(self, vault: Any, sides: Any) -> Any:
        made = await plan_all(self.context, self.backup, sides)
        self.plans = {plan.dataset: plan.action for plan in made}
        return None, SimpleNamespace(idle=False, sizes={})


class World:
    """The clock stands at hour 5, of which the vault has a snapshot that the source has pruned."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **backup: Any) -> None:
        monkeypatch.setattr(run_module, "announce_plan", lambda *_: None)
        monkeypatch.setattr(RunHooks, "around", lambda *_: self.around())
        self.hooks_run = 0
        self.hooks_fail_at = 0
        self.at_hook_two: Callable[[], None] = lambda: None
        monkeypatch.setattr(source_snapshot, "asyncio", SimpleNamespace(sleep=self.sleep))
        self.clock = StoppedClock(START + 5 * HOUR)
        above, below = DatasetName("cold/host/tank"), DatasetName("cold/host/tank/a")
        self.source = Side(tree(dataset("tank", snap(9)), dataset("tank/a", snap(9, "tank/a"))))
        self.vault = Side(
            tree(dataset(above, snap(5, above), snap(9, above)), dataset(below, snap(9, below)))
        )
        self.where = context(folder=tmp_path, **backup)
        self.where.env.clock = self.clock
        with_vault(with_source(self.where, self.source), self.vault)
        self.told: list[tuple[str, dict[str, Any]]] = []

    async def sleep(self, seconds: float) -> None:
        self.clock.at += seconds

    @contextlib.asynccontextmanager
    async def around(self) -> AsyncIterator[None]:
        self.hooks_run += 1
        if self.hooks_run == self.hooks_fail_at:
            raise HookFailed("the hook 'dump' failed", "no room")
        if self.hooks_run == 2:
            self.at_hook_two()
        yield

    async def run(self, before_look: Any = None, *, wanted: bool = True) -> Planned:
        run = Planned(
            self.where,
            Vaults(self.where),
            "b",
            lambda event: self.told.append(split_event(event)),
            RunOutcome(),
        )
        run.snapshots.wanted = wanted
        opened: Any = SimpleNamespace(zfs=self.vault, name="cold")
        made, seen = await run.snapshots.make(opened)
        if before_look is not None:
            before_look()
        await run._look_and_plan(opened, made, seen)
        return run

    @property
    def warnings(self) -> list[str]:
        return [fields["text"] for event, fields in self.told if event == "warning"]

    def names(self) -> list[list[str]]:
        return [[one.snapname for one in there.snapshots] for there in self.source.there]
