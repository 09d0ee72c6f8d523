"""What is known of a backup's age, where a clock was wrong while some of it was made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.daemon.lag_world import World, install
from tests.unit.ops.ops_world import HOUR
from zvault.core.health.backup import BackupFacts, judge_backup
from zvault.daemon.health.facts import backup_facts

DAY = 24 * HOUR
YEAR = 365 * DAY


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[World]:
    install(monkeypatch)
    world = World(tmp_path, ("b",))
    yield world
    world.history.close()


def facts(world: World) -> BackupFacts:
    it = world.context.env.backup("b")
    return backup_facts(
        world.context, world.runs, world.history, it, started=world.clock.at, next_run=None, not_read=""
    )


@pytest.mark.parametrize(("limit", "key"), [("1h", "very-late"), ("4d", "late"), (None, "overdue")])
async def test_a_snapshot_dated_ahead_hides_no_other_dataset_that_is_late(
    world: World, limit: str | None, key: str
) -> None:
    world.config["b"] |= {"every": "1d"} if limit is None else {"max_lag": limit}
    await world.restart()
    await world.run("b")
    world.clock.at += 10 * YEAR
    world.breaks.add("tank/x1")
    await world.run("b")
    world.clock.at -= 10 * YEAR - 5 * DAY
    await world.restart()
    await world.refresh()
    found = facts(world)
    assert (found.lag, found.at_least, set(found.ahead)) == (None, 5 * DAY, {"tank", "tank/x2"})
    verdict = judge_backup(found)
    assert key in verdict.keys
    assert "lag-unknown" in verdict.keys
    if limit is not None:
        assert "the lag is at least 5d" in verdict.findings[0].why
