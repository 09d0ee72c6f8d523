"""Jobs of no particular kind: what is told of each, what ends them, and what gives way to what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.unit.patience import FOR_EVER, PATIENCE
from zvault.api.events import Emit, MessageEvent, RunEvent, RunFinished
from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.core.errors import DeviceGone, Refused
from zvault.daemon.active_run import ActiveRun
from zvault.daemon.event_publisher import EventPublisher
from zvault.daemon.history import RunHistory
from zvault.daemon.job_runner import JobRunner
from zvault.daemon.lag_readings import LagReadings
from zvault.daemon.run_counters import RunCounters
from zvault.daemon.run_recorder import RunRecorder
from zvault.ops.context import Context
from zvault.ops.run_outcome import RunOutcome
from zvault.ops.state.environment import Environment
from zvault.system.process.runner import HostRunner


@dataclass
class Task:
    """A job that ends when it is let, or as ``error`` says."""

    subject: str = "b"
    trigger: str = "hand"
    aside: bool = False
    error: Exception | None = None
    outcome: RunOutcome = field(default_factory=RunOutcome)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    pauses: float | None = None
    went_on: bool | None = None
    runner: JobRunner | None = None

    async def execute(self, run: ActiveRun, emit: Emit, /) -> None:
        emit(MessageEvent(text=f"{run.id} of {self.subject}"))
        self.outcome.datasets = 3
        if self.pauses is not None and self.runner is not None:
            self.went_on = await self.runner.pause(run, self.pauses)
        await self.may_end.wait()
        if self.error is not None:
            raise self.error


class World:
    """A runner, and what was told of its runs."""

    def __init__(self, folder: Path) -> None:
        config = Config.model_validate(
            {"vault": {"cold": {"pool": "cold"}}, "backup": {"b": {"source": "tank", "vault": "cold"}}}
        )
        context = Context.of(Environment(config, Paths(folder, folder, folder), HostRunner(), "host"))
        self.events, self.history = EventPublisher(), RunHistory(folder / "history.sqlite")
        recorder = RunRecorder(self.history, RunCounters(), LagReadings(context))
        self.runner = JobRunner(context.env, self.events, recorder)
        self.told: list[RunEvent] = []
        self.events.subscribe(RunEvent, self.told.append)

    def kinds(self, run: str) -> list[str]:
        return [event.name for event in self.told if event.run == run]

    def result(self, run: str) -> tuple[str, str]:
        """How a run ended, as its last event and the history agree on, and why."""
        last = [event for event in self.told if event.run == run][-1]
        assert isinstance(last, RunFinished)
        kept = self.history.run(run)
        assert kept is not None
        assert (kept["result"], kept["error"]) == (last.result, last.error)
        return last.result, last.error["why"] if last.error is not None else ""

    async def end(self, *jobs: Task) -> None:
        for job in jobs:
            job.may_end.set()
        async with asyncio.timeout(PATIENCE):
            while tasks := {run.task for run in self.runner.current.values()}:
                await asyncio.wait(tasks)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    it = World(tmp_path)
    yield it
    it.history.close()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_job_is_told_from_its_beginning_to_its_end(world: World) -> None:
    job = Task()
    run = world.runner.start(job)
    assert world.runner.is_at_work("b")
    await world.end(job)
    assert world.kinds(run) == ["run-started", "message", "run-finished"]
    assert world.result(run) == ("ok", "")
    assert world.runner.current == {}


@pytest.mark.parametrize(
    ("error", "why"), [(DeviceGone("gone", "unplugged"), "unplugged"), (KeyError("x"), "KeyError: 'x'")]
)
async def test_whatever_a_job_raises_is_its_end_and_what_it_did_is_kept(
    world: World, error: Exception, why: str
) -> None:
    job = Task(error=error)
    run = world.runner.start(job)
    await world.end(job)
    assert world.result(run) == ("failed", why)
    kept = world.history.run(run)
    assert kept is not None
    assert kept["datasets"] == 3


async def test_one_that_is_stopped_before_its_first_step_is_told_too(world: World) -> None:
    run = world.runner.start(Task())
    assert await world.runner.put_down("the host goes to sleep", PATIENCE) == {"b"}
    await settle()
    assert world.kinds(run) == ["run-started", "run-finished"]
    assert world.result(run) == ("interrupted", "the host goes to sleep")


async def test_nothing_starts_until_it_is_open_again_and_who_runs_aside_is_not_made_up_for(
    world: World,
) -> None:
    jobs = [Task(), Task("b", "scrub", aside=True), Task("c", "verify", aside=True)]
    runs = [world.runner.start(job) for job in jobs]
    await settle()
    assert await world.runner.put_down("stopping", PATIENCE) == {"b"}
    assert {world.result(run) for run in runs} == {("interrupted", "stopping")}
    with pytest.raises(Refused, match="stopping"):
        world.runner.start(Task())
    world.runner.reopen()
    again = Task()
    run = world.runner.start(again)
    await world.end(again)
    assert world.result(run) == ("ok", "")


async def test_a_drain_lets_end_what_ends_in_time_and_stops_the_rest(world: World) -> None:
    quick, slow = Task("a"), Task("b")
    runs = [world.runner.start(job) for job in (quick, slow)]
    await settle()
    draining = asyncio.create_task(world.runner.drain("stopping", 0.1))
    quick.may_end.set()
    await asyncio.wait_for(draining, PATIENCE)
    assert [world.result(run)[0] for run in runs] == ["ok", "interrupted"]


async def test_one_that_waits_gives_way_and_only_the_new_one_counts_as_running(world: World) -> None:
    waiting = Task(pauses=FOR_EVER, runner=world.runner)
    first = world.runner.start(waiting)
    await settle()
    assert not world.runner.is_at_work("b"), "it waits"
    job = Task()
    second = world.runner.supersede(world.runner.current[first], job)
    running = world.runner.running("b")
    assert running is not None
    assert running.id == second
    ended = asyncio.create_task(world.runner.wait_superseded("b"))
    await settle()
    assert waiting.went_on is False
    assert not ended.done()
    waiting.may_end.set()
    await asyncio.wait_for(ended, PATIENCE)
    assert list(world.runner.current) == [second]
    await world.end(job)


async def test_what_runs_aside_is_found_by_its_trigger_and_is_no_run_of_its_subject(world: World) -> None:
    job = Task("b", "scrub", aside=True)
    run = world.runner.start(job)
    assert world.runner.running("b") is None
    assert world.runner.find_run("b", "heal") is None
    found = world.runner.find_run("b", "scrub", "heal")
    assert found is not None
    assert found.id == run
    await world.end(job)
