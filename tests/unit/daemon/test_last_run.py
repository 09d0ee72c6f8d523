"""When a backup last ran is told by its own record and by its vault, not by what others do with its source."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.unit.daemon.lag_world import World, install
from tests.unit.ops.ops_world import HOUR, START
from zvault.core.errors import NotFound
from zvault.core.health.backup import judge_backup
from zvault.daemon.health.facts import make_backup_facts

YEAR = 365 * 24 * HOUR


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[World]:
    install(monkeypatch)
    world = World(tmp_path, ("b", "c"))
    yield world
    world.history.close()


async def last(world: World, backup: str) -> float | None:
    when = await world.runs.findings.last_run(world.context.env.backup(backup))
    return None if when is None else when.timestamp() - START


async def test_a_seldom_backup_is_not_put_off_by_a_frequent_one_of_the_same_source(world: World) -> None:
    assert await last(world, "c") is None
    await world.run("c")
    for _ in range(3):
        world.clock.at += HOUR
        await world.run("b")
    assert (await last(world, "b"), await last(world, "c")) == (3 * HOUR, 0)
    await world.restart()
    assert (await last(world, "b"), await last(world, "c")) == (3 * HOUR, 0)


async def test_a_second_backup_of_a_source_never_ran(world: World) -> None:
    await world.run("b")
    assert await last(world, "c") is None


async def test_without_its_record_the_vault_tells_it_up_or_down(world: World) -> None:
    await world.run("b")
    world.clock.at += HOUR
    await world.run("c")
    world.history.close()
    (world.folder / "history.sqlite").unlink()
    world.start()
    assert (await last(world, "b"), await last(world, "c")) == (0, HOUR)
    world.up |= {"cold", "usb"}
    assert (await last(world, "b"), await last(world, "c")) == (0, HOUR)


async def test_a_backup_that_was_given_another_vault_has_not_run(world: World) -> None:
    await world.run("b")
    world.reload("b", vault="usb")
    assert await last(world, "b") is None


async def test_a_run_that_failed_with_its_snapshot_made_has_run_and_one_that_came_not_so_far_has_not(
    world: World,
) -> None:
    way = world.runs.lags.way("b")
    figures = {"bytes": 0, "datasets": 0, "sent": 0, "pruned": 0}
    for run, datasets in (("r1", 3), ("r2", 0)):
        world.clock.at += HOUR
        world.history.begin(run, "b", "schedule", world.clock.at, way)
        world.history.end(run, world.clock.at, "failed", {**figures, "datasets": datasets}, None)
    assert await last(world, "b") == HOUR


async def test_a_run_that_begins_and_ends_while_it_is_looked_when_it_last_ran_has_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source of thousands of datasets is listed for a minute."""

    async def listed(_: object) -> None:
        world.clock.at += HOUR
        world.history.begin("r1", "b", "hand", world.clock.at, world.runs.lags.way("b"))
        figures = {"bytes": 0, "datasets": 3, "sent": 0, "pruned": 0}
        world.history.end("r1", world.clock.at, "failed", figures, None)

    monkeypatch.setattr(world.runs.findings, "refresh_lag", listed)
    assert await last(world, "b") == HOUR


async def test_a_run_under_way_has_begun(world: World) -> None:
    world.clock.at += HOUR
    world.runs.start("b", "hand")
    assert await last(world, "b") == HOUR
    for one in world.runs.runner.current.values():
        await one.task
        break


async def test_a_run_under_way_has_begun_also_where_the_clock_is_set_back_under_it(world: World) -> None:
    world.clock.at += 2 * HOUR
    world.runs.start("b", "hand")
    world.clock.at -= HOUR
    assert await last(world, "b") == HOUR, "it began an unknown time ago, and is not due"
    for one in list(world.runs.runner.current.values()):
        await one.task


async def test_a_time_to_come_counts_for_nothing_so_that_the_backup_is_due(world: World) -> None:
    world.clock.at += 10 * YEAR
    await world.run("b")
    world.clock.at -= 10 * YEAR
    assert await last(world, "b") is None
    await world.restart()
    assert await last(world, "b") is None, "however often the host is switched on"
    world.clock.at += HOUR
    await world.run("b")
    assert await last(world, "b") == HOUR


async def test_what_a_run_saw_unchanged_counts_also_where_the_snapshot_is_dated_ahead(world: World) -> None:
    world.clock.at += 10 * YEAR
    await world.run("b")
    world.clock.at -= 10 * YEAR - 2 * HOUR
    seen = {name: replace(lag, unchanged=START + HOUR) for name, lag in world.runs.lags["b"].items()}
    world.runs.lags["b"] = seen

    async def as_read(_: object) -> None:
        pass

    world.runs.findings.refresh_lag = as_read  # type: ignore[method-assign]
    assert await last(world, "b") == HOUR


async def test_clocks_that_differ_by_little_are_no_time_to_come(world: World) -> None:
    await world.run("b")
    world.clock.at -= 60
    assert await last(world, "b") == -60


async def test_of_what_was_backed_up_while_the_clock_was_ahead_the_lag_is_not_known(world: World) -> None:
    world.clock.at += 10 * YEAR
    await world.run("b")
    world.clock.at -= 10 * YEAR
    await world.restart()
    await last(world, "b")
    facts = make_backup_facts(
        world.context,
        world.runs,
        world.history,
        world.context.env.backup("b"),
        started=world.clock.at,
        next_run=None,
        not_read="",
    )
    assert (facts.lag, facts.success_age) == (None, None)
    assert facts.ahead
    told = {one.condition.key: one.why for one in judge_backup(facts).findings}
    assert "is dated later than now" in told["lag-unknown"]


async def test_a_source_that_cannot_be_listed_leaves_the_record(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.run("b")

    async def gone(_: object) -> None:
        raise NotFound("there is no dataset 'tank'")

    monkeypatch.setattr(world.runs.findings, "refresh_lag", gone)
    assert await last(world, "b") == 0
    assert await world.runs.findings.last_run(world.context.env.backup("c")) is None
    assert datetime.fromtimestamp(START, UTC) == await world.runs.findings.last_run(
        world.context.env.backup("b")
    )
