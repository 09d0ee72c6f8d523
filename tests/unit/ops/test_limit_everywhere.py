"""Whatever prunes by the rules keeps to prune_limit: a share for each run in all its tries, nothing between runs."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.ops.no_keys import NoKeys
from tests.unit.ops.ops_world import HOUR, dataset, snap, tree, with_vault
from tests.unit.ops.test_snapshot_run import NOW, Away, Refusing, make, marked, run, world
from zvault.core.errors import DeviceGone
from zvault.core.model import Tree
from zvault.ops.context import Context
from zvault.ops.hooks import RunHooks
from zvault.ops.replication.listing import list_both_sides
from zvault.ops.retention import make_room
from zvault.ops.retention.prune import prune_backup
from zvault.ops.run import BackupRun
from zvault.zfs.changes import LzcFailure

ROOT = Path(__file__).parents[3] / "zvault"
COUNT = 40
SHARE = COUNT // 2


class Full(NoKeys, Refusing):
    """A source that has no room for a snapshot until so many others are gone."""

    until = 1

    async def tree(self, root: str, *, sizes: bool = True) -> Tree:
        """What is left of it."""
        left = [
            dataset(one.name, *(s for s in one.snapshots if s.name not in self.gone), *one.bookmarks)
            for one in await super().tree(root, sizes=sizes)
        ]
        return tree(*left)

    async def tree_or_none(self, root: str, *, sizes: bool = True) -> Tree:
        return await self.tree(root, sizes=sizes)

    async def snapshot(self, names: Sequence[str], properties: object) -> None:
        if len(self.gone) < self.until:
            raise LzcFailure("snapshot", "", [(name, "NoSpace", 28) for name in names])
        await super().snapshot(names, properties)


class Vault:
    """A vault that is up, of which the client is a side like any other."""

    def __init__(self, zfs: Any) -> None:
        self.zfs = zfs

    def __getitem__(self, _: str) -> Vault:
        return self

    @contextlib.asynccontextmanager
    async def use(self, *_: object, **__: object) -> AsyncIterator[Any]:
        yield SimpleNamespace(zfs=self.zfs)


@pytest.fixture(autouse=True)
def no_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    async def freed(*_: object) -> None: ...

    monkeypatch.setattr(RunHooks, "around", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(make_room, "_wait_freed", freed)


Prune = Callable[[Context, Full, Full], Awaitable[None]]


async def in_a_run(where: Context, source: Full, vault: Full) -> None:
    """What all tries of one run prune: each lists anew, as the run does."""
    it = BackupRun(where, Vault(vault), "b", lambda _: None)  # type: ignore[arg-type]
    opened: Any = SimpleNamespace(source=source, vault=SimpleNamespace(zfs=vault))
    for _ in range(4):
        sides = await list_both_sides(where, it.backup, vault)  # type: ignore[arg-type]
        it._first = it._first or sides
        await it._prune(opened, sides)


async def in_a_run_of_snapshots_only(where: Context, source: Full, vault: Full) -> None:
    it = BackupRun(where, Vault(vault), "b", lambda _: None)  # type: ignore[arg-type]
    for _ in range(4):
        await it._only_snapshot()


async def in_a_run_without_its_vault(where: Context, source: Full, vault: Full) -> None:
    await run(where, Away(DeviceGone("nbd0 is gone")))


async def in_a_run_without_room(where: Context, source: Full, vault: Full) -> None:
    source.until = len(source.gone) + 1
    await run(where, Away(DeviceGone("nbd0 is gone")))


async def at_its_own_time(where: Context, source: Full, vault: Full) -> None:
    await make(where)


async def at_its_own_time_without_room(where: Context, source: Full, vault: Full) -> None:
    source.until = len(source.gone) + 1
    await make(where)


async def by_hand(where: Context, source: Full, vault: Full) -> None:
    await prune_backup(where, Vault(vault), where.env.backup("b"), lambda _: None)  # type: ignore[arg-type]


PATHS: dict[Prune, tuple[set[str], int]] = {
    in_a_run: ({"ops/run.py: _prune"}, SHARE),
    in_a_run_of_snapshots_only: ({"ops/run.py: _only_snapshot"}, SHARE),
    in_a_run_without_its_vault: (
        {"ops/run.py: _snapshot_without_vault", "ops/retention/prune_source.py: prune_source"},
        SHARE,
    ),
    in_a_run_without_room: (
        {"ops/run_snapshot.py: make_room", "ops/retention/make_room.py: prune_full_source"},
        SHARE,
    ),
    at_its_own_time: ({"ops/snapshot_run.py: _make"}, 0),
    at_its_own_time_without_room: (set(), SHARE),
    by_hand: ({"ops/retention/prune.py: prune_backup", "daemon/jobs/prune_job.py: execute"}, SHARE),
}
"""What prunes, with the functions that it goes through, and how many of COUNT it may take at once where nearly all are
to go."""

PRUNING = {"apply_prune", "prune_source", "prune_full_source", "prune_backup"}


def test_the_table_has_all_that_prunes() -> None:
    found = set()
    for file in ROOT.rglob("*.py"):
        text = file.read_text()
        if not any(name in text for name in PRUNING):
            continue
        for function in ast.walk(ast.parse(text)):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                inner = {
                    call
                    for one in ast.walk(function)
                    if one is not function and isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
                    for call in ast.walk(one)
                }
                calls = [one for one in ast.walk(function) if isinstance(one, ast.Call) and one not in inner]
                if any(isinstance(one.func, ast.Name) and one.func.id in PRUNING for one in calls):
                    found.add(f"{file.relative_to(ROOT)}: {function.name}")
    assert found == {path for paths, _ in PATHS.values() for path in paths}


def full_world(tmp_path: Path, path: Prune, limit: str = "50%") -> tuple[Context, Full, Full]:
    only = {"snapshots_only": True} if path is in_a_run_of_snapshots_only else {}
    rules = {"source": {"last": 1}} if only else {"source": {"last": 1}, "vault": {"last": 1}}
    many = [snap(number) for number in range(1, COUNT + 1)]
    where, _ = world(tmp_path, keep=rules, prune_limit=limit, **only)
    where.env.clock.at = NOW + COUNT * HOUR  # type: ignore[attr-defined]
    source = Full(tree(dataset("tank", *many, marked("tank", COUNT))))
    source.until = 0
    target = "cold/host/tank"
    vault = Full(tree(dataset(target, *(snap(number, target) for number in range(1, COUNT + 1)))))
    where.clients._sources[None] = source  # type: ignore[assignment]
    return with_vault(where, vault), source, vault


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__)
async def test_no_path_takes_more_than_the_limit_allows(tmp_path: Path, path: Prune) -> None:
    where, source, vault = full_world(tmp_path, path)
    allowed = PATHS[path][1]
    await path(where, source, vault)
    assert len(source.gone) == allowed
    assert len(vault.gone) in {0, allowed}
    before = len(source.gone)
    await path(where, source, vault)
    assert before + allowed // 2 <= len(source.gone) <= before + (COUNT - before + 2) // 2


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__)
async def test_each_takes_all_where_there_is_no_limit(tmp_path: Path, path: Prune) -> None:
    where, source, vault = full_world(tmp_path, path, "100%")
    await path(where, source, vault)
    assert len(source.gone) == COUNT - 1


async def test_between_runs_what_expires_one_by_one_goes(tmp_path: Path) -> None:
    where, source, vault = full_world(tmp_path, at_its_own_time)
    source.there = tree(dataset("tank", *(snap(n) for n in range(1, 5)), marked("tank", 4)))
    await at_its_own_time(where, source, vault)
    assert len(source.gone) == 3
