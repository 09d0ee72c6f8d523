"""A run of this host's that failed counts no more once another host of the vault has made one since, as that says."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.ops.ops_world import HOUR, START, context
from tests.unit.ops.vaults.shared_world import Bucket, due, host
from zvault.api.runs import RunResult
from zvault.daemon.active_run import ActiveRun
from zvault.daemon.assemble import assemble_runs
from zvault.daemon.event_publisher import EventPublisher
from zvault.daemon.history import RunHistory
from zvault.daemon.host_election import find_other_hosts_run
from zvault.daemon.metrics.exporter import MetricsCollector
from zvault.daemon.status import DaemonStatus
from zvault.ops.run_outcome import RunOutcome
from zvault.ops.vaults.shared_vault import SharedVault
from zvault.ops.vaults.vault import Vaults

FIGURES = {"bytes": 0, "datasets": 1, "sent": 1, "pruned": 0}
ERROR: Any = {"reason": "transfer", "what": "the stream broke", "why": "no space", "next": "make room"}


class World:
    """A daemon's state with one backup."""

    def __init__(self, folder: Path) -> None:
        self.where = context(START + 9 * HOUR, folder=folder, max_lag="30h")
        self.history = RunHistory(folder / "history.sqlite")
        self.runs = assemble_runs(self.where, Vaults(self.where), self.history, EventPublisher())
        monitor: Any = SimpleNamespace(documents=lambda: asyncio.sleep(0, []))
        scheduler: Any = SimpleNamespace(next_run=lambda _: None, behind=lambda: 0.0)
        self.status = DaemonStatus(self.where, monitor, self.runs, self.history, scheduler, started=START)
        self.count = 0

    def ran(self, result: RunResult, made_by: str | None = None) -> None:
        """The next run of this host, an hour after the one before."""
        self.count += 1
        run, env, at = f"r{self.count}", self.where.env, START + self.count * HOUR
        self.history.begin(run, "b", "schedule", at, env.way(env.backup("b")))
        error = ERROR if result not in ("ok", "skipped") else None
        self.history.end(run, at + 60, result, FIGURES, error)
        if made_by is not None:
            self.history.skip(run, made_by)

    @property
    def findings(self) -> list[str]:
        verdict = self.status.backup_verdict(self.where.env.backup("b"))
        return [one.word for one in verdict.findings]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.history.close()


@pytest.mark.parametrize("result", ["failed", "partial", "interrupted"])
@pytest.mark.parametrize("before", [True, False])
def test_a_failure_is_over_once_another_host_made_a_run(world: World, result: RunResult, before: bool):
    if before:
        world.ran("ok")
    world.ran(result)
    world.ran("skipped")  # whoever made none, or failed too
    assert result in world.findings
    assert world.history.cut_off("b") == (result == "interrupted")
    world.ran("skipped", made_by="a")
    world.ran("skipped")
    assert not {"failed", "partial", "interrupted", "new"} & set(world.findings)
    assert not world.history.cut_off("b")
    told = world.status.backup(world.where.env.backup("b"))
    assert (told["last_error"], told["last_result"]) == (None, "ok" if before else None)
    assert told["last_run"] == (START + HOUR if before else None)
    world.ran(result)
    assert result in world.findings, "its own newest run counts again"


def test_the_alert_goes_by_what_counts(world: World):
    world.ran("ok")
    world.ran("failed")

    def last_run() -> float:
        found = {one.name: one for one in MetricsCollector(world.status)._backups()}
        return found["zvault_backup_last_run_timestamp_seconds"].samples[0].value

    assert last_run() == START + 2 * HOUR
    world.ran("skipped", made_by="a")
    assert last_run() == START + HOUR


def test_what_runs_well_here_stays_the_last_run(world: World):
    world.ran("ok")
    world.ran("skipped", made_by="a")
    told = world.status.backup(world.where.env.backup("b"))
    assert (told["last_run"], told["last_result"]) == (START + HOUR, "ok")


def test_a_file_of_an_older_version_knows_of_no_other_host(tmp_path: Path):
    file = tmp_path / "old.sqlite"
    history = RunHistory(file)
    history._do("alter table run drop column made_by")
    history.close()
    anew = RunHistory(file)
    anew.begin("r1", "b", "hand", 1.0)
    anew.end("r1", 2.0, "failed", FIGURES, ERROR)
    assert anew.made_since("b") is None
    anew.close()


def test_a_run_that_waits_for_its_turn_does_not_try_again(world: World):
    task: Any = None
    run = world.runs.runner.current["r"] = ActiveRun("r", "b", "schedule", task)
    run.turn, run.waiting = "a has the vault", START + 10 * HOUR
    told = world.status.backup(world.where.env.backup("b"))
    assert (told["state"], told["retry_at"], told["retry_since"]) == ("waiting", None, None)
    assert world.status.line() == "b: waiting for its turn"
    run.turn = None
    assert world.status.backup(world.where.env.backup("b"))["retry_at"] == START + 10 * HOUR
    assert world.status.line() == "b: waiting to try again"


# What the note tells


class Two:
    """Host a makes a run at the bucket's time 1000, which b sees."""

    def __init__(self) -> None:
        self.bucket = Bucket()
        (self.vault, self.a), (_, self.b) = host(self.bucket, "a"), host(self.bucket, "b")

    async def made(self, *, good: bool = True) -> None:
        self.vault.up(1)
        run: SharedVault = self.a
        async with run.run(due(self.bucket), lambda: 5.0, lambda: good, lambda _: None):
            pass
        self.vault.down()
        self.bucket.now += 600
        await self.b.look_at_note()

    @property
    def wall(self) -> float:
        return self.vault.context.env.clock.time()  # type: ignore[no-any-return]


def own(started: float, ended: float, result: str) -> Any:
    return {"started": started, "ended": ended, "result": result}


async def test_a_run_that_another_host_ended_well_since():
    two = Two()
    before = two.wall
    assert find_other_hosts_run(two.b, "tank", None, before) is None, "nothing is known"
    await two.made()
    now = two.wall
    assert find_other_hosts_run(two.b, "tank", None, now) == "a"
    assert find_other_hosts_run(two.b, "tank", own(before - 90, before - 60, "failed"), now) == "a"
    assert find_other_hosts_run(two.b, "tank", own(now - 60, now - 30, "failed"), now) is None, (
        "that was later"
    )
    assert find_other_hosts_run(two.b, "tank", own(before - 60, now - 30, "failed"), now) is None
    # One that was cut short has the time at which that was found.
    assert find_other_hosts_run(two.b, "tank", own(before - 60, now - 30, "interrupted"), now) == "a"
    assert find_other_hosts_run(two.b, "home", None, now) is None
    await two.a.look_at_note()
    assert find_other_hosts_run(two.a, "tank", None, now) is None, "its own run is no other host's"


async def test_one_that_failed_there_too_puts_nothing_right():
    two = Two()
    await two.made(good=False)
    assert find_other_hosts_run(two.b, "tank", None, two.wall) is None


@pytest.mark.parametrize("result", ["skipped", "ok"])
async def test_a_skipped_run_keeps_who_made_it(
    world: World, monkeypatch: pytest.MonkeyPatch, result: RunResult
):
    two = Two()
    await two.made()
    two.b.last = lambda _: two.a.last("tank")  # type: ignore[method-assign]

    async def turn(shared: object, current: object, outcome: RunOutcome, *_: object) -> None:
        outcome.result = result

    monkeypatch.setattr(world.runs.turns, "of", lambda _: two.b)
    monkeypatch.setattr(world.runs.turns, "run", turn)
    world.ran("failed")
    run = world.runs.start("b", "schedule")
    await asyncio.wait({world.runs.runner.current[run].task})
    assert world.history.made_since("b") == ("a" if result == "skipped" else None)
