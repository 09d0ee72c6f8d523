"""What a run that waits to try again gives way to: a new one, a time that came while it worked, a drain."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ops.ops_world import snap
from tests.unit.patience import FOR_EVER, PATIENCE
from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.core.errors import Busy, DeviceGone, Refused
from zvault.core.replication.lag import DatasetLag
from zvault.daemon.assemble import assemble_runs
from zvault.daemon.backup_runs import BackupRuns
from zvault.daemon.event_publisher import EventPublisher
from zvault.daemon.history import RunHistory
from zvault.daemon.jobs import backup_job
from zvault.daemon.jobs.backup_job import BackupJob
from zvault.ops.context import Context
from zvault.ops.run_outcome import RunOutcome
from zvault.ops.state.environment import Environment
from zvault.ops.vaults.vault import Vaults
from zvault.system.process.runner import HostRunner

CONFIG = {
    "vault": {"cold": {"pool": "cold"}},
    "backup": {"b": {"source": "tank", "vault": "cold"}},
}


class Script:
    """Stands for what a run does: the first one works, waits to try again, and says how that ended."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.work = asyncio.Event()
        self.wait = 60.0
        self.lags: dict[str, DatasetLag] = {}
        self.looked: dict[str, float] = {}


@pytest.fixture
async def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    script = Script()

    class Run:
        listed = None

        @property
        def looked(self) -> dict[str, float]:
            return script.looked

        def __init__(
            self, *arguments: Any, id: str, pause: Any, snapshot: bool, turn: None, since: float
        ) -> None:
            self.outcome: RunOutcome = arguments[-1]
            self.pause = pause

        async def execute(self) -> None:
            number = sum(line.startswith("begins") for line in script.log) + 1
            script.log.append(f"begins {number}")
            await script.work.wait()
            self.outcome.lags = script.lags
            if number == 1:
                again = await self.pause(script.wait)
                script.log.append(f"goes on: {again}")
                self.outcome.blame(DeviceGone("gone"))
                self.outcome.result = "failed"
            script.log.append(f"ends {number}")

    monkeypatch.setattr(backup_job, "BackupRun", Run)
    return script


@pytest.fixture
async def runs(tmp_path: Path, script: Script) -> AsyncIterator[BackupRuns]:
    paths = Paths(tmp_path, tmp_path, tmp_path, tmp_path)
    context = Context.of(Environment(Config.model_validate(CONFIG), paths, HostRunner(), "host"))
    history = RunHistory(tmp_path / "history.sqlite")
    yield assemble_runs(context, Vaults(context), history, EventPublisher())
    history.close()


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def done(runs: BackupRuns) -> None:
    async with asyncio.timeout(PATIENCE):
        while tasks := {run.task for run in runs.runner.current.values()}:
            await asyncio.wait(tasks)


async def test_a_wait_that_nothing_disturbs_ends_in_another_try(runs: BackupRuns, script: Script) -> None:
    script.wait = 0.05
    script.work.set()
    runs.start("b", "schedule")
    await done(runs)
    assert script.log == ["begins 1", "goes on: True", "ends 1"]


@pytest.mark.parametrize("changes", [True, False])
async def test_what_changes_while_it_waits_is_not_known_from_an_earlier_try(
    runs: BackupRuns, script: Script, changes: bool
) -> None:
    """A run reads the lag in each try that gets so far. The last one may get nowhere."""
    script.lags = {"tank": DatasetLag("tank", snap(1), 0)}
    runs.readings.keep("b", {"tank": DatasetLag("tank", None, 1)}, runs.lags.way("b"))
    script.wait = 0.05
    script.work.set()
    runs.start("b", "schedule")
    await settle()
    if changes:
        runs.findings.doubt_lag("b")
    await done(runs)
    assert script.log == ["begins 1", "goes on: True", "ends 1"]
    assert runs.readings.is_doubted("b") == changes
    assert runs.lags["b"]["tank"].newest_on_vault == (None if changes else snap(1))
    assert runs.readings.read_last("b") == script.lags, "for whoever finds the vault down"


@pytest.mark.parametrize("side", ["source", "vault"])
@pytest.mark.parametrize(("after", "doubted"), [(-1.0, False), (1.0, True)])
async def test_what_changes_after_a_runs_last_look_is_read_again(
    runs: BackupRuns, script: Script, side: str, after: float, doubted: bool
) -> None:
    """Pruning takes hours, in which a dataset may be renamed or rolled back."""
    script.lags = {"tank": DatasetLag("tank", snap(1), 0)}
    runs.start("b", "schedule")
    await settle()
    runs.findings.doubt_lag("b", source=side == "source", vault=side == "vault")
    runs.findings.doubt_lag("b")  # its own import and export
    script.looked = dict.fromkeys(("source", "vault"), runs.context.env.clock.monotonic() - after)
    script.wait = 0.01
    script.work.set()
    await done(runs)
    assert runs.readings.is_doubted("b") == doubted


@pytest.mark.parametrize("trigger", ["schedule", "hand"])
async def test_a_new_run_takes_over_from_one_that_waits(
    runs: BackupRuns, script: Script, trigger: str
) -> None:
    script.work.set()
    first = runs.start("b", "schedule")
    await settle()
    waiting = runs.runner.running("b")
    assert waiting is not None
    assert waiting.waiting is not None
    second = runs.start("b", trigger)
    assert second != first
    now = runs.runner.running("b")
    assert now is not None
    assert now.id == second
    with pytest.raises(Busy):
        runs.start("b", "hand")
    await done(runs)
    assert script.log == ["begins 1", "goes on: False", "ends 1", "begins 2", "ends 2"]
    assert [(run["id"], run["result"]) for run in runs.history.runs("b", 9)] == [
        (second, "ok"),
        (first, "failed"),
    ]


async def test_a_time_that_came_while_it_worked_is_not_lost(runs: BackupRuns, script: Script) -> None:
    runs.start("b", "schedule")
    await settle()
    with pytest.raises(Busy):
        runs.start("b", "schedule")
    script.work.set()
    await done(runs)
    assert script.log == ["begins 1", "goes on: False", "ends 1", "begins 2", "ends 2"]


async def test_who_asked_by_hand_and_was_told_no_starts_nothing_later(
    runs: BackupRuns, script: Script
) -> None:
    script.wait = 0.05
    runs.start("b", "schedule")
    await settle()
    with pytest.raises(Busy):
        runs.start("b", "hand")
    script.work.set()
    await done(runs)
    assert script.log == ["begins 1", "goes on: True", "ends 1"]


@pytest.mark.parametrize("when", ["waits", "comes to wait"])
async def test_a_drain_ends_a_wait_at_once(runs: BackupRuns, script: Script, when: str) -> None:
    if when == "waits":
        script.work.set()
    run = runs.start("b", "schedule")
    await settle()
    draining = asyncio.create_task(runs.runner.drain("the daemon is stopping", PATIENCE))
    await settle()
    script.work.set()
    await asyncio.wait_for(draining, PATIENCE)
    assert runs.history.runs("b", 1)[0]["result"] == "interrupted"
    assert script.log == ["begins 1"]
    assert run not in runs.runner.current


async def test_what_is_put_down_is_told_and_nothing_starts_until_it_is_open_again(
    runs: BackupRuns, script: Script
) -> None:
    runs.start("b", "schedule")
    await settle()
    assert await asyncio.wait_for(runs.runner.put_down("the host goes to sleep", PATIENCE), PATIENCE) == {"b"}
    (run,) = runs.history.runs("b", 9)
    assert (run["result"], run["error"]["why"]) == ("interrupted", "the host goes to sleep")
    with pytest.raises(Refused, match="the host goes to sleep"):
        runs.start("b", "schedule")
    runs.runner.reopen()
    script.work.set()
    runs.start("b", "catch-up")
    await done(runs)
    assert runs.history.runs("b", 1)[0]["result"] == "ok"


async def test_nobody_waits_longer_than_he_can_for_what_does_not_end(
    runs: BackupRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = asyncio.Event()

    async def stubborn(*_: object, **__: object) -> None:
        try:
            await asyncio.sleep(FOR_EVER)
        finally:
            await ended.wait()

    monkeypatch.setattr(BackupJob, "execute", stubborn)
    runs.start("b", "schedule")
    await settle()
    assert await asyncio.wait_for(runs.runner.put_down("the host goes to sleep", 0.05), PATIENCE) == {"b"}
    assert runs.runner.running("b") is not None
    ended.set()
    await done(runs)
