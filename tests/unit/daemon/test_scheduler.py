"""When a backup is due, and when it was missed: by the wall clock, through clock changes, sleeps and restarts."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.patience import FOR_EVER, PATIENCE, eventually
from zvault.config.paths import Paths
from zvault.config.schema import Backup, Config
from zvault.core.errors import Busy
from zvault.core.policy.cron_schedule import parse_schedule
from zvault.daemon import scheduler as module
from zvault.daemon.scheduler import BackupScheduler, CalendarTrigger
from zvault.ops.context import Context
from zvault.ops.state.environment import Environment, WallClock
from zvault.system.process.runner import HostRunner

BERLIN = ZoneInfo("Europe/Berlin")  # forward on 2026-03-29 at 02:00, back on 2026-10-25 at 03:00


def at(text: str, zone: Any = BERLIN, fold: int = 0) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=zone, fold=fold)


def cron(text: str, zone: Any = BERLIN) -> CalendarTrigger:
    return CalendarTrigger(parse_schedule(text), zone)


MOMENTS = st.integers(0, 3 * 366 * 86400).map(
    lambda s: datetime(2025, 1, 1, tzinfo=UTC) + timedelta(seconds=s)
)


@given(st.sampled_from(["hourly", "daily", "30 2 * * *"]), MOMENTS)
def test_many_missed_times_are_one(schedule: str, now: datetime) -> None:
    """APScheduler walks from fire time to fire time until now; a walk through years would be one run each."""
    trigger = cron(schedule)
    previous = now - timedelta(days=400)
    following = trigger.get_next_fire_time(previous, now).astimezone(UTC)
    assert following > now - timedelta(microseconds=1)


# The scheduler itself


class StoppedClock(WallClock):
    now_is = at("2026-11-21 09:30", UTC)
    passed = 0.0

    def time(self) -> float:
        return self.now_is.timestamp()

    def monotonic(self) -> float:
        return self.passed


class LastRuns:
    """When each backup last ran."""

    def __init__(self) -> None:
        self.known: dict[str, datetime] = {}

    async def __call__(self, backup: Backup) -> datetime | None:
        return self.known.get(backup.name)


Fired = list[tuple[str, str]]


@pytest.fixture
def fired() -> Fired:
    return []


@pytest.fixture
async def build(fired: Fired, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(module, "TICK", 0.02)
    made: list[BackupScheduler] = []

    def build(
        backups: dict[str, dict[str, Any]], due: Callable[[str, str], object] | None = None
    ) -> BackupScheduler:
        config = Config.model_validate(
            {
                "daemon": {"timezone": "UTC"},
                "vault": {"cold": {"pool": "cold"}},
                "backup": {
                    name: {"source": f"tank/{name}", "vault": "cold", **fields}
                    for name, fields in backups.items()
                },
            }
        )
        nowhere = Path("/nowhere")
        paths = Paths(nowhere, nowhere, nowhere, nowhere)
        context = Context.of(Environment(config, paths, HostRunner(), "host", StoppedClock()))
        made.append(
            BackupScheduler(context, due or (lambda name, trigger: fired.append((name, trigger))), LastRuns())
        )
        return made[-1]

    yield build
    for scheduler in made:
        scheduler.stop()


def ran_at(scheduler: BackupScheduler, name: str, when: datetime) -> None:
    scheduler.last_run.known[name] = when  # type: ignore[attr-defined]


async def test_only_what_was_missed_is_caught_up_and_once(build: Any, fired: Fired) -> None:
    hourly = {"schedule": "hourly"}
    scheduler = build({"late": hourly, "early": hourly, "new": hourly, "hand": {}})
    ran_at(scheduler, "late", at("2026-11-18 05:00", UTC))
    ran_at(scheduler, "early", at("2026-11-21 09:00", UTC))
    await scheduler.start()
    assert sorted(fired) == [("late", "catch-up"), ("new", "catch-up")]
    assert scheduler.next_run("hand") is None
    assert scheduler.next_run("nobody") is None


async def test_a_refusal_to_run_stops_nothing(build: Any) -> None:
    def busy(name: str, trigger: str) -> None:
        raise Busy(f"backup '{name}' is already running")

    scheduler = build({"a": {"schedule": "hourly"}, "b": {"schedule": "hourly"}}, busy)
    await scheduler.start()
    assert scheduler.next_run("a") is not None
    assert scheduler.next_run("b") is not None


async def test_when_its_time_comes_a_backup_is_run(
    build: Any, fired: Fired, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = build({"a": {"every": "1s"}})
    # APScheduler keeps real time, so here the clock is not stopped.
    monkeypatch.setattr(StoppedClock, "now_is", property(lambda _: datetime.now(UTC)))
    ran_at(scheduler, "a", datetime.now(UTC))
    await scheduler.start()
    await eventually(lambda: fired)
    assert fired[0] == ("a", "schedule")


async def test_a_clock_that_is_set_back_has_schedules_counted_anew(
    build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = build({"a": {"every": "1h"}})
    anew = asyncio.Event()
    await scheduler.start()

    async def reschedule() -> None:
        anew.set()

    monkeypatch.setattr(scheduler, "reschedule", reschedule)
    await asyncio.sleep(0.1)
    assert not anew.is_set()
    assert scheduler.behind() == 0
    before = StoppedClock.now_is
    monkeypatch.setattr(StoppedClock, "now_is", at("2026-11-19 09:30", UTC))
    await asyncio.wait_for(anew.wait(), PATIENCE)
    assert scheduler.behind() == (before - StoppedClock.now_is).total_seconds()
    monkeypatch.setattr(StoppedClock, "now_is", before + timedelta(seconds=5))
    assert scheduler.behind() == 0, "it is where it was"
    monkeypatch.setattr(StoppedClock, "now_is", at("2026-11-19 09:30", UTC))
    monkeypatch.setattr(StoppedClock, "passed", module.BEHIND_FOR + 1)
    assert scheduler.behind() == 0, "by now it may be right"


async def test_a_new_configuration_takes_the_place_of_the_old(build: Any, fired: Fired) -> None:
    scheduler = build({"a": {"schedule": "hourly"}, "b": {"schedule": "hourly"}})
    for name in "ab":
        ran_at(scheduler, name, at("2026-11-21 09:00", UTC))
    await scheduler.start()
    del scheduler.context.env.config.backup["b"]
    await scheduler.reschedule()
    assert scheduler.next_run("a") is not None
    assert scheduler.next_run("b") is None
    assert fired == []


async def test_a_stopped_scheduler_starts_nothing_and_can_be_stopped_again(build: Any, fired: Fired) -> None:
    scheduler = build({"a": {"every": "1s"}})
    ran_at(scheduler, "a", at("2026-11-21 09:30", UTC))
    await scheduler.start()
    scheduler.stop()
    scheduler.stop()
    await asyncio.sleep(0.05)
    assert fired == []


async def test_schedules_taken_over_at_the_same_time_lose_no_job(build: Any, fired: Fired) -> None:
    scheduler = build({name: {"schedule": "hourly"} for name in "abc"})
    await scheduler.start()
    await asyncio.gather(*(scheduler.reschedule() for _ in range(4)))
    assert all(scheduler.next_run(name) is not None for name in "abc")


class Slow:
    """A source of which it is told when it last ran only once somebody lets it."""

    def __init__(self, scheduler: BackupScheduler, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.answer: asyncio.Future[datetime | None] = asyncio.get_running_loop().create_future()
        self.asked, self.given_up = 0, 0
        told = scheduler.last_run

        async def last_run(backup: Backup) -> datetime | None:
            if backup.name != name:
                return await told(backup)
            self.asked += 1
            try:
                return await asyncio.shield(self.answer)
            except asyncio.CancelledError:
                self.given_up += 1
                raise

        monkeypatch.setattr(module, "PROMPT", 0.05)
        monkeypatch.setattr(scheduler, "last_run", last_run)


async def test_a_source_that_does_not_answer_keeps_no_other_backup_waiting_and_follows(
    build: Any, fired: Fired, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = build({name: {"schedule": "hourly"} for name in ("slow", "late", "early")})
    ran_at(scheduler, "early", at("2026-11-21 09:00", UTC))
    slow = Slow(scheduler, monkeypatch, "slow")
    await asyncio.wait_for(scheduler.start(), PATIENCE)
    assert fired == [("late", "catch-up")]
    assert scheduler.next_run("early") is not None
    assert scheduler.next_run("slow") is None, "it is not known"
    slow.answer.set_result(at("2026-11-21 08:10", UTC))
    await eventually(lambda: scheduler.next_run("slow") is not None)
    assert fired == [("late", "catch-up"), ("slow", "catch-up")]
    assert (slow.asked, slow.given_up) == (1, 0)


async def test_who_is_asked_is_not_asked_again_while_its_table_is_the_same(
    build: Any, fired: Fired, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = build({"slow": {"schedule": "hourly"}})
    slow = Slow(scheduler, monkeypatch, "slow")
    await scheduler.start()
    await scheduler.reschedule()
    assert (slow.asked, slow.given_up) == (1, 0), "a listing that takes minutes goes on"
    slow.answer.set_result(at("2026-11-21 09:10", UTC))
    await eventually(lambda: scheduler.next_run("slow") is not None)
    assert fired == []


@pytest.mark.parametrize(
    "now", [None, {}, {"schedule": "daily"}], ids=["gone", "by hand", "another schedule"]
)
@pytest.mark.parametrize("late", [True, False])
async def test_an_answer_for_a_table_that_is_not_in_force_any_more_starts_nothing(
    build: Any, fired: Fired, monkeypatch: pytest.MonkeyPatch, now: dict[str, str] | None, late: bool
) -> None:
    """Whether it comes before the new schedules are taken over, or after."""
    scheduler = build({"slow": {"schedule": "hourly"}})
    slow = Slow(scheduler, monkeypatch, "slow")
    await scheduler.start()
    backups = scheduler.context.env.config.backup
    del backups["slow"]
    if now is not None:
        backups["slow"] = build({"slow": now}).context.env.config.backup["slow"]
    if late:
        await scheduler.reschedule()
        await eventually(lambda: slow.given_up == 1)
    else:
        slow.answer.set_result(at("2026-11-18 08:10", UTC))
        await eventually(lambda: not scheduler._asked)
    assert (fired, scheduler.next_run("slow")) == ([], None)


async def test_what_is_asked_when_it_stops_is_given_up_and_starts_nothing(
    build: Any, fired: Fired, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = build({name: {"schedule": "hourly"} for name in ("slow", "late")})
    slow = Slow(scheduler, monkeypatch, "slow")
    monkeypatch.setattr(module, "PROMPT", FOR_EVER)
    starting = asyncio.create_task(scheduler.start())
    await eventually(lambda: slow.asked == 1 and fired == [("late", "catch-up")])
    fired.clear()
    scheduler.stop()
    await asyncio.wait_for(starting, PATIENCE)
    await scheduler.reschedule()
    await eventually(lambda: slow.given_up == 1)
    assert (slow.asked, fired, scheduler.next_run("late")) == (1, [], None)


async def test_what_ends_in_an_error_nobody_foresaw_is_due_and_told(
    build: Any, fired: Fired, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = build({"slow": {"schedule": "hourly"}})
    slow = Slow(scheduler, monkeypatch, "slow")
    await scheduler.start()
    slow.answer.set_exception(RuntimeError("nobody foresaw it"))
    await eventually(lambda: bool(fired))
    assert (fired, scheduler.next_run("slow") is not None) == ([("slow", "catch-up")], True)
    assert "cannot tell when slow last ran" in caplog.text


async def test_while_a_source_does_not_answer_the_old_schedule_holds(
    build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = build({"a": {"schedule": "hourly"}})
    await scheduler.start()

    async def hangs(_: object) -> None:
        await asyncio.sleep(FOR_EVER)

    monkeypatch.setattr(scheduler, "last_run", hangs)
    task = asyncio.create_task(scheduler.reschedule())
    await asyncio.sleep(0.01)
    assert scheduler.next_run("a") is not None
    task.cancel()


async def test_backups_whose_disk_appears_are_caught_up_with_and_no_others(build: Any, fired: Fired) -> None:
    hourly = {"schedule": "hourly"}
    scheduler = build({"usb": hourly, "fresh": hourly, "other": hourly, "hand": {}})
    for name in ("usb", "fresh", "other"):
        ran_at(scheduler, name, at("2026-11-21 09:00", UTC))
    await scheduler.start()
    assert fired == []
    for name in ("usb", "other"):
        ran_at(scheduler, name, at("2026-11-18 05:00", UTC))
    await scheduler.catch_up({"usb", "fresh", "hand"})
    assert fired == [("usb", "catch-up")]
    assert scheduler.next_run("usb") is not None
