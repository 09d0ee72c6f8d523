"""Pruning and reaping beside backups: what waits for what, what is refused, and what is no backup's result."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from zvault.api.events import WarningEvent
from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.core.errors import Busy, NotFound
from zvault.daemon.assemble import assemble_runs
from zvault.daemon.backup_runs import BackupRuns
from zvault.daemon.event_publisher import EventPublisher
from zvault.daemon.history import RunHistory
from zvault.daemon.jobs import backup_job, prune_job, snapshot_job
from zvault.ops.context import Context
from zvault.ops.retention import holds
from zvault.ops.state.environment import Environment
from zvault.ops.vaults.vault import Vaults
from zvault.system.process.runner import HostRunner

CONFIG = {
    "vault": {"cold": {"pool": "cold"}},
    "backup": {"b": {"source": "tank", "vault": "cold"}},
}


class Stage:
    """Stands for the use cases: each waits until it may go on, and what happens is written down."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.go = {"prune": asyncio.Event(), "backup": asyncio.Event(), "reap": asyncio.Event()}
        self.pruned = (2, 2)
        self.held_back = 0

    async def play(self, what: str) -> None:
        self.log.append(f"{what} begins")
        await self.go[what].wait()
        self.log.append(f"{what} ends")

    async def prune(self, *given: Any, over_limit: bool) -> tuple[int, int]:
        await self.play("prune")
        if self.held_back:
            given[-1](WarningEvent(text="held back", side="vault", over_limit=self.held_back))
        self.log.append(f"over_limit={over_limit}")
        return self.pruned

    async def reap(self, *_: Any) -> list[Any]:
        await self.play("reap")
        return []


@pytest.fixture
async def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    stage = Stage()

    class Run:
        listed = None

        def __init__(self, *arguments: Any, **_: Any) -> None:
            self.outcome = arguments[-1]

        async def execute(self) -> None:
            await stage.play("backup")

    monkeypatch.setattr(prune_job, "prune_backup", stage.prune)
    monkeypatch.setattr(holds, "release_orphans", stage.reap)
    monkeypatch.setattr(backup_job, "BackupRun", Run)
    return stage


@pytest.fixture
async def runs(tmp_path: Path, stage: Stage) -> AsyncIterator[BackupRuns]:
    paths = Paths(tmp_path, tmp_path, tmp_path, tmp_path)
    context = Context.of(Environment(Config.model_validate(CONFIG), paths, HostRunner(), "host"))
    history = RunHistory(tmp_path / "history.sqlite")
    yield assemble_runs(context, Vaults(context), history, EventPublisher())
    history.close()


async def done(runs: BackupRuns) -> None:
    if tasks := {run.task for run in runs.runner.current.values()}:
        await asyncio.wait_for(asyncio.wait(tasks), 5)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_prune_is_no_backup(runs: BackupRuns, stage: Stage) -> None:
    stage.go["prune"].set()
    run = runs.prune("b", over_limit=True)
    assert runs.runner.running("b") is None
    await done(runs)
    assert stage.log == ["prune begins", "prune ends", "over_limit=True"]
    (told,) = runs.history.runs("b", 5)
    assert (told["id"], told["trigger"], told["result"], told["pruned"]) == (run, "prune", "ok", 2)
    assert runs.history.last("b") is None
    assert not runs.counters.runs


async def test_what_could_not_go_leaves_it_partial(runs: BackupRuns, stage: Stage) -> None:
    stage.go["prune"].set()
    stage.pruned = (1, 2)
    runs.prune("b", over_limit=False)
    await done(runs)
    assert runs.history.runs("b", 5)[0]["result"] == "partial"


async def test_what_prune_limit_holds_back_is_known_also_after_a_restart(
    runs: BackupRuns, stage: Stage, tmp_path: Path
) -> None:
    stage.go["prune"].set()
    stage.held_back = 3
    runs.prune("b", over_limit=False)
    await done(runs)
    anew = assemble_runs(runs.context, runs.vaults, RunHistory(tmp_path / "history.sqlite"), EventPublisher())
    assert anew.counters.over_limit == {("b", "source"): 0, ("b", "vault"): 3}
    stage.held_back = 0
    runs.prune("b", over_limit=False)
    await done(runs)
    assert runs.counters.over_limit == {("b", "source"): 0, ("b", "vault"): 0}


async def test_a_backup_that_is_due_waits_for_a_prune_and_is_not_refused(
    runs: BackupRuns, stage: Stage
) -> None:
    stage.go["backup"].set()
    runs.prune("b", over_limit=False)
    await settle()
    runs.start("b", "schedule")
    await settle()
    assert stage.log == ["prune begins"]
    stage.go["prune"].set()
    await done(runs)
    assert stage.log[-2:] == ["backup begins", "backup ends"]


async def test_a_prune_is_refused_beside_a_backup_or_another_prune(runs: BackupRuns, stage: Stage) -> None:
    with pytest.raises(NotFound):
        runs.prune("x", over_limit=False)
    runs.start("b", "hand")
    with pytest.raises(Busy):
        runs.prune("b", over_limit=False)
    stage.go["backup"].set()
    await done(runs)
    runs.prune("b", over_limit=False)
    with pytest.raises(Busy):
        runs.prune("b", over_limit=False)
    stage.go["prune"].set()
    await done(runs)


async def test_nothing_is_reaped_while_anything_runs_and_a_backup_waits_for_reaping(
    runs: BackupRuns, stage: Stage
) -> None:
    stage.go["backup"].set()
    reaping = asyncio.create_task(runs.reap(None))
    await settle()
    with pytest.raises(Busy):
        await runs.reap(None)
    runs.start("b", "schedule")
    await settle()
    assert stage.log == ["reap begins"]
    with pytest.raises(Busy, match="b is running"):
        await runs.reap(None)
    stage.go["reap"].set()
    await reaping
    await done(runs)
    assert stage.log == ["reap begins", "reap ends", "backup begins", "backup ends"]


async def test_a_run_cancelled_before_its_first_step_is_no_longer_running(runs: BackupRuns) -> None:
    run = runs.prune("b", over_limit=False)
    runs.runner.current[run].task.cancel()
    await asyncio.sleep(0.01)
    assert runs.runner.current == {}
    last = runs.history.runs("b", 1)[0]
    assert (last["id"], last["result"]) == (run, "interrupted")


async def test_what_a_snapshot_at_its_own_time_leaves_to_the_next_run_is_held_back(
    runs: BackupRuns, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody learnt of it before a run pruned: a keep that was too short by mistake emptied the source unseen."""
    held_back, prunes = [2], [True]

    class Snapshot:
        def __init__(self, *given: Any) -> None:
            self.emit, self.source_pruned = given[2], False

        async def execute(self) -> None:
            self.source_pruned = prunes[0]
            if prunes[0] and held_back[0]:
                self.emit(WarningEvent(text="held back", side="source", over_limit=held_back[0]))

    async def snapshot() -> int:
        runs.snapshot("b")
        await done(runs)
        return len(runs.history.runs("b", 10))

    monkeypatch.setattr(snapshot_job, "SnapshotRun", Snapshot)
    stage.go["prune"].set()
    stage.held_back = 3
    runs.prune("b", over_limit=False)
    await done(runs)
    assert await snapshot() == 2
    told = {("b", "source"): 2, ("b", "vault"): 3}
    assert runs.counters.over_limit == told
    anew = assemble_runs(runs.context, runs.vaults, RunHistory(tmp_path / "history.sqlite"), EventPublisher())
    assert anew.counters.over_limit == told
    assert await snapshot() == 2, "the same again is no news"
    prunes[0] = False
    assert await snapshot() == 2
    assert runs.counters.over_limit == told, "it did not prune, so it knows nothing"
    prunes[0], held_back[0] = True, 0
    assert await snapshot() == 3
    assert runs.counters.over_limit == told | {("b", "source"): 0}
