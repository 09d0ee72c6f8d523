"""What is known of a backup's age, where a clock was wrong while some of it was made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.daemon.lag_world import World, install
from tests.unit.ops.ops_world import HOUR, START
from zvault.core.health.backup import BackupFacts, judge_backup
from zvault.core.integrity.verification import LevelProof
from zvault.daemon.health.facts import make_backup_facts

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
    return make_backup_facts(
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


async def test_nor_does_one_of_a_backup_that_makes_snapshots_only(world: World) -> None:
    world.config["b"] = {"source": "tank", "snapshots_only": True, "every": "1d"}
    await world.restart()
    now = int(world.clock.at)
    for old, keys in ((DAY, ("snapshots-unknown",)), (5 * DAY, ("overdue", "snapshots-unknown"))):
        world.runs.made["b"] = {"tank": int(now + 10 * YEAR), "tank/x1": now - old, "tank/x2": now}
        found = facts(world)
        assert (found.snapshot_age, found.at_least, found.ahead) == (None, old, ("tank",))
        assert judge_backup(found).keys == keys


NOW = START + 400 * DAY
LONG_AGO, AHEAD = NOW - 300 * DAY, NOW + 10 * YEAR


def proof(proven: float | None = None, since: float | None = None) -> LevelProof:
    def date(at: float | None) -> int | None:
        return None if at is None else int(at)

    return LevelProof(date(proven), date(proven), "ok", since=date(since))


@pytest.mark.parametrize(
    ("sample", "guids", "keys"),
    [
        (proof(NOW + 100, LONG_AGO), proof(NOW, LONG_AGO), ()),
        (proof(NOW + 600, LONG_AGO), proof(NOW, LONG_AGO), ("proof-unknown",)),
        (proof(AHEAD, AHEAD), proof(NOW, AHEAD), ("proof-unknown",)),
        (proof(), proof(NOW, AHEAD), ("proof-unknown",)),
        (proof(LONG_AGO), proof(NOW, AHEAD), ("proof-overdue",)),
        (proof(NOW - DAY), proof(NOW, AHEAD), ()),
        (proof(), proof(NOW, LONG_AGO), ("never-proven",)),
    ],
)
async def test_a_proof_dated_ahead_is_neither_one_that_never_was_nor_a_new_one(
    world: World, sample: LevelProof, guids: LevelProof, keys: tuple[str, ...]
) -> None:
    world.config["b"] |= {"verify": {"sample": "1%", "every": "1w"}}
    await world.restart()
    await world.run("b")
    world.clock.at = NOW
    world.runs.proofs["b"] = {"guids": guids, "sample": sample}
    found = [one for one in judge_backup(facts(world)).findings if one.condition.word == "unproven"]
    assert tuple(one.condition.key for one in found) == keys
    assert keys != ("proof-unknown",) or "is dated later than now" in found[0].why
