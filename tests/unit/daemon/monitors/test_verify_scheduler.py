"""What is due is started, one a vault, the longest overdue first; and a backup that runs is waited for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.patience import FOR_EVER, PATIENCE
from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.core.errors import Busy, DeviceGone, NotFound, Refused
from zvault.core.integrity.verification import LevelProof
from zvault.daemon.jobs import verify_job
from zvault.daemon.jobs.verify_job import VerifyJob
from zvault.daemon.monitors.verify_scheduler import UNPROVEN_PAUSE, VerifyScheduler
from zvault.ops.context import Context
from zvault.ops.state.environment import Environment, WallClock
from zvault.system.process.runner import HostRunner

DAY = 86400.0
NOW = 1_795_000_000.0


class SetClock(WallClock):
    now_ = NOW
    slept = 0.0

    def time(self) -> float:
        return self.now_

    def monotonic(self) -> float:
        return self.boottime() - self.slept

    def boottime(self) -> float:
        return self.now_ - NOW


class FakeRuns:
    def __init__(self) -> None:
        self.current: dict[str, Any] = {}
        self.proofs: dict[str, dict[str, LevelProof]] = {}
        self.launched: list[str] = []
        self.closed = ""
        self.runner = self

    def start(self, job: VerifyJob) -> str:
        if self.closed:
            raise Refused("no run can start", self.closed, "later")
        self.launched.append(job.subject)
        run = f"r{len(self.launched)}"
        self.current[run] = SimpleNamespace(id=run, backup=job.subject, trigger=job.trigger, waiting=None)
        return run

    def find_run(self, subject: str, trigger: str) -> Any:
        found = (run for run in self.current.values() if (run.backup, run.trigger) == (subject, trigger))
        return next(found, None)


@pytest.fixture
def verify_scheduler(tmp_path: Path) -> VerifyScheduler:
    backup = {"source": "tank", "vault": "cold"}
    config = Config.model_validate(
        {
            "vault": {"cold": {"pool": "cold"}, "usb": {"pool": "usb"}},
            "backup": {
                "a": backup,
                "b": backup | {"verify": {"full": "2d"}},
                "c": backup | {"vault": "usb", "verify": {"every": "off"}},
            },
        }
    )
    context = Context.of(Environment(config, Paths(run=tmp_path), HostRunner(), "lab", SetClock()))
    vaults = {name: SimpleNamespace(error=None, is_away=lambda: False) for name in config.vault}
    return VerifyScheduler(context, vaults, FakeRuns())  # type: ignore[arg-type]


def begun(days_ago: float) -> dict[str, LevelProof]:
    return {"guids": LevelProof(since=int(NOW - days_ago * DAY))}


async def test_what_is_due_the_longest_is_started_and_one_a_vault(verify_scheduler: VerifyScheduler) -> None:
    runs: Any = verify_scheduler.runs
    await verify_scheduler.look()
    assert runs.launched == [], "of which nothing is known yet, that waits for a run"
    runs.proofs = {"a": begun(6), "b": begun(1), "c": begun(99)}
    await verify_scheduler.look()
    assert runs.launched == [], "a week from when the backup began; c by hand only"
    runs.proofs = {"a": begun(8), "b": begun(9), "c": begun(99)}
    await verify_scheduler.look()
    assert runs.launched == ["b"], "its full comparison is overdue by 7 days"
    await verify_scheduler.look()
    assert runs.launched == ["b"], "one at a time"
    runs.current.clear()
    await verify_scheduler.look()
    assert runs.launched == ["b", "b"], "now its sample, 2 days overdue"
    runs.current.clear()
    await verify_scheduler.look()
    assert runs.launched == ["b", "b", "a"]
    runs.current.clear()
    await verify_scheduler.look()
    assert len(runs.launched) == 3, "none is tried again at once, though it left no proof"
    verify_scheduler.context.env.clock.now_ += UNPROVEN_PAUSE  # type: ignore[attr-defined]
    await verify_scheduler.look()
    assert len(runs.launched) == 4


async def test_one_verification_of_a_backup_at_a_time(verify_scheduler: VerifyScheduler) -> None:
    verify_scheduler.verify("a", "sample")
    with pytest.raises(Busy, match="is being verified"):
        verify_scheduler.verify("a", "full")
    with pytest.raises(Refused, match="no level 'half'"):
        verify_scheduler.verify("b", "half")
    with pytest.raises(NotFound):
        verify_scheduler.verify("z", "full")


async def test_it_gives_way_to_backups_into_its_vault_and_to_nothing_else(
    verify_scheduler: VerifyScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify_job, "GIVE_WAY_EVERY", FOR_EVER)

    def run(backup: str, trigger: str, waiting: float | None = None) -> Any:
        task = asyncio.create_task(asyncio.sleep(3600))
        return SimpleNamespace(backup=backup, aside=trigger == "verify", waiting=waiting, task=task)

    others = [run("a", "verify"), run("c", "schedule"), run("b", "schedule", NOW), run("gone", "hand")]
    runs: Any = verify_scheduler.runs
    runs.current = dict(enumerate(others))
    job = VerifyJob(verify_scheduler.context, verify_scheduler.vaults, runs, runs.proofs, "a", "sample")
    await asyncio.wait_for(job.give_way(), PATIENCE)
    busy = run("b", "schedule")
    runs.current["busy"] = busy
    waiting = asyncio.create_task(job.give_way())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    del runs.current["busy"]
    busy.task.cancel()
    await asyncio.wait_for(waiting, PATIENCE)
    for one in others:
        one.task.cancel()


async def hours(verify_scheduler: VerifyScheduler, count: int) -> list[str]:
    """What is begun in so many hours, of which each begins and leaves no proof."""
    runs: Any = verify_scheduler.runs
    before = len(runs.launched)
    for _ in range(count):
        verify_scheduler.context.env.clock.now_ += 3600  # type: ignore[attr-defined]
        await verify_scheduler.look()
        runs.current.clear()
    return runs.launched[before:]


async def test_a_vault_that_cannot_come_up_is_tried_once_a_day_until_a_run_got_it_up(
    verify_scheduler: VerifyScheduler,
) -> None:
    runs: Any = verify_scheduler.runs
    vault: Any = verify_scheduler.vaults["cold"]
    runs.proofs = {"a": begun(8), "b": begun(9)}
    vault.error = DeviceGone("the vault is away")
    assert await hours(verify_scheduler, 24) == [], "the runs of its backups try it"
    assert len(await hours(verify_scheduler, 5 * 24)) == 5, "whichever of the three that are due"
    vault.error = None
    assert len(await hours(verify_scheduler, 3)) == 3, "a run got it up"


async def test_what_leaves_no_proof_is_tried_more_and_more_rarely(verify_scheduler: VerifyScheduler) -> None:
    runs: Any = verify_scheduler.runs
    runs.proofs = {"a": begun(8)}
    assert len(await hours(verify_scheduler, 31)) == 5, "in hours 1, 2, 4, 8, 16, and again in 32"
    assert len(await hours(verify_scheduler, 24 * 3)) == 3, "once a day in the end"
    now = verify_scheduler.context.env.clock.time()
    runs.proofs = {"a": {**begun(8), "sample": LevelProof(proven=int(now), tried=int(now), result="ok")}}
    assert await hours(verify_scheduler, 24) == []
    runs.proofs = {"a": begun(8)}
    assert len(await hours(verify_scheduler, 3)) == 2, "what was proven in between begins anew"


async def test_the_time_that_the_host_sleeps_counts(verify_scheduler: VerifyScheduler) -> None:
    runs: Any = verify_scheduler.runs
    clock: Any = verify_scheduler.context.env.clock
    runs.proofs = {"a": begun(8)}
    tries = []
    for _ in range(8):
        tries.append(len(await hours(verify_scheduler, 2)))
        clock.now_ += 22 * 3600
        clock.slept += 22 * 3600
    assert tries == [2, 1, 1, 1, 1, 1, 1, 1], "awake for two hours a day"


async def test_so_it_does_for_a_vault_that_cannot_come_up(verify_scheduler: VerifyScheduler) -> None:
    runs: Any = verify_scheduler.runs
    clock: Any = verify_scheduler.context.env.clock
    vault: Any = verify_scheduler.vaults["cold"]
    runs.proofs = {"a": begun(8)}
    vault.error = DeviceGone("the vault is away")
    assert await hours(verify_scheduler, 2) == []
    clock.now_ += 23 * 3600
    clock.slept += 23 * 3600
    assert len(await hours(verify_scheduler, 1)) == 1


async def test_what_could_not_start_did_not_use_up_a_pause(verify_scheduler: VerifyScheduler) -> None:
    runs: Any = verify_scheduler.runs
    vault: Any = verify_scheduler.vaults["cold"]
    runs.proofs = {"a": begun(8)}
    runs.closed = "zvaultd is being stopped"
    assert await hours(verify_scheduler, 9) == []
    runs.closed = ""
    await verify_scheduler.look()
    assert runs.launched == ["a"], "at the next look"
    runs.current.clear()
    assert len(await hours(verify_scheduler, 1)) == 1, "and the first pause is the shortest"
    vault.error = DeviceGone("the vault is away")
    assert await hours(verify_scheduler, 24) == []
    runs.closed = "zvaultd is being stopped"
    assert await hours(verify_scheduler, 9) == []
    runs.closed = ""
    assert len(await hours(verify_scheduler, 1)) == 1, "nor a try of the vault"


async def test_a_disk_in_the_cupboard_is_verified_once_it_is_plugged_in(
    verify_scheduler: VerifyScheduler,
) -> None:
    runs: Any = verify_scheduler.runs
    runs.proofs = {"a": begun(8), "b": begun(1), "c": begun(1)}
    verify_scheduler.vaults["cold"].is_away = lambda: True  # type: ignore[method-assign]
    await verify_scheduler.look()
    assert runs.launched == []
    verify_scheduler.vaults["cold"].is_away = lambda: False  # type: ignore[method-assign]
    await verify_scheduler.look()
    assert runs.launched == ["a"]
