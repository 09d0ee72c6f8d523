"""What the daemon's judge remembers: since when something is unknown, and what was seen of a vault that is down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.ops.ops_world import HOUR, START, StoppedClock, context
from zvault.api.vaults import VaultDocument
from zvault.core.health.backup import BackupFacts
from zvault.daemon.health.health_judge import HealthJudge
from zvault.ops.state.pool_health import PoolCondition

UP: VaultDocument = {
    "name": "cold",
    "pool": "cold",
    "state": "up",
    "health": "ONLINE",
    "readonly": False,
    "multihost": False,
    "failmode": "continue",
    "foreign": [],
    "away": False,
    "size": 100,
    "allocated": 50,
    "free": 50,
    "devices": [],
    "error": None,
    "users": [],
    "pinned": False,
    "inhibitor": False,
    "inhibitor_since": None,
    "past": [],
    "scrub": None,
}
DOWN: VaultDocument = {**UP, "state": "down", "health": None, "size": None, "allocated": None, "free": None}


def judge(folder: Path) -> tuple[HealthJudge, Any]:
    where = context(START, folder=folder)
    return HealthJudge(where), where.env.clock


def test_what_is_unknown_is_a_warning_after_a_day_without_a_break(tmp_path: Path):
    it, clock = judge(tmp_path)
    unknown, known = BackupFacts("b", "ok"), BackupFacts("b", "ok", lag=60.0)
    levels = []
    for facts, hours in ((unknown, 0), (unknown, 23), (known, 1), (unknown, 1), (unknown, 23), (unknown, 1)):
        clock.at += hours * HOUR
        levels.append(it.backup(facts, "tank to cold").level)
    assert levels == ["unknown", "unknown", "ok", "unknown", "unknown", "warning"]
    assert it.backup(unknown, "tank to ice").level == "unknown", "of another vault it is unknown since now"


class SetClock(StoppedClock):
    """One that is ``ahead`` by so many seconds, as far as it is told."""

    ahead = 0.0

    def time(self) -> float:
        return self.at + self.ahead


def test_for_how_long_something_is_unknown_or_full_is_no_matter_of_how_the_clock_is_set(tmp_path: Path):
    it, _ = judge(tmp_path)
    it.context.env.clock = clock = SetClock(START)
    unknown = BackupFacts("b", "ok")
    levels, backlogs = [], []
    for hours, ahead in ((0, 0), (1, 10_000), (22, -10_000), (0.9, 0), (0.1, -10_000), (1, 0)):
        clock.at += hours * HOUR
        clock.ahead = ahead * HOUR
        levels.append(it.backup(unknown, "tank to cold").level)
        backlogs.append("backlog" in it.vault(full_journal(95), {}).keys)
    assert levels == ["unknown", "unknown", "unknown", "unknown", "warning", "warning"]
    assert backlogs == [False, True, True, True, True, True]


def test_the_pace_at_which_a_vault_fills_is_no_matter_of_how_the_clock_is_set(tmp_path: Path):
    it, _ = judge(tmp_path)
    it.context.env.clock = clock = SetClock(START)
    for hour, free in enumerate(range(200, 150, -1)):
        clock.ahead = (0, 10_000, -10_000)[hour % 3] * HOUR
        it.vault({**UP, "size": 1000, "free": free}, {})
        clock.at += HOUR
    left = it.full_in("cold")
    assert left is not None
    assert 149 * HOUR < left < 151 * HOUR


def test_a_vault_that_is_down_is_as_it_was_seen_last(tmp_path: Path):
    it, _ = judge(tmp_path)
    assert it.vault(DOWN, {}).keys == ("never-seen",)
    it.context.records.conditions.put("cold", PoolCondition(START))
    seen: VaultDocument = {**DOWN, "scrub": PoolCondition(START).document()}
    assert it.vault(seen, {}).keys == ()
    assert it.vault({**UP, "health": "DEGRADED", "free": 1}, {}).keys == ("almost-full", "degraded")
    assert it.vault(seen, {}).keys == ("almost-full", "was-degraded")
    assert it.vault({**UP, "health": "SUSPENDED"}, {}).keys == ("pool-unwell",)
    assert it.vault(seen, {}).keys == (), "a pool that is not imported is not suspended"


def test_a_vault_that_fills_is_told_after_a_day(tmp_path: Path):
    it, clock = judge(tmp_path)
    keys = []
    for free in range(290, 240, -1):
        found = it.vault({**UP, "size": 1000, "free": free}, {}).keys
        keys.append((it.knows_pace("cold"), found))
        clock.at += HOUR
    assert keys[:24] == [(False, ())] * 24
    assert keys[24:] == [(True, ())] * 26, "an hour takes one: that lasts for ten days"
    for free in range(240, 200, -2):
        keys.append((it.knows_pace("cold"), it.vault({**UP, "size": 1000, "free": free}, {}).keys))
        clock.at += HOUR
    assert keys[-1] == (True, ("full-soon",))


def test_stalls_and_drifts_are_their_vaults(tmp_path: Path):
    it, _ = judge(tmp_path)
    it.context.activity.writes.drifts["cold"] = "small writes"
    assert it.vault(UP, {"cold": ("it hangs",), "ice": ("so does this",)}).keys == ("stalled", "drift")


def test_a_scrub_that_never_comes_is_told_by_the_age_of_the_last(tmp_path: Path):
    it, clock = judge(tmp_path)
    it.context.records.conditions.put("cold", PoolCondition(START, born=START))
    keys = []
    for days in (35, 4):
        clock.at += days * 24 * HOUR
        keys.append(it.vault(UP, {}).keys)
    assert keys == [(), ("scrub-overdue",)]


def test_a_disk_in_the_cupboard_is_scrubbed_once_it_is_plugged_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    it, clock = judge(tmp_path)
    it.context.records.conditions.put("cold", PoolCondition(START, born=START))
    clock.at += 99 * 24 * HOUR
    seen: VaultDocument = {**DOWN, "scrub": PoolCondition(START).document()}
    assert it.vault({**seen, "away": True}, {}).keys == ()
    assert it.vault(seen, {}).keys == ("scrub-overdue",)
    monkeypatch.setattr("zvault.ops.removable_disk.has_label_link", lambda _: True)
    env = it.context.env
    usb = env.vault("cold").model_copy(update={"removable": True})
    env.reconfigure(env.config.model_copy(update={"vault": {"cold": usb}}))
    it.context.activity.appeared["cold"] = clock.monotonic()
    for hours, keys in ((0.9, ()), (0.2, ("scrub-overdue",))):
        clock.at += hours * HOUR
        assert it.vault(seen, {}).keys == keys, "what came due meanwhile has an hour to begin"


def full_journal(used: int) -> VaultDocument:
    store: Any = {"trouble": None, "journal_used": used, "journal_capacity": 100}
    device: Any = {"name": "cold-0", "state": "up", "detail": "", "store": store}
    return {**UP, "devices": [device]}


def test_a_journal_that_stays_full_is_told_after_a_while(tmp_path: Path):
    it, clock = judge(tmp_path)
    keys = []
    for seconds in (0, 600, 1):
        clock.at += seconds
        keys.append(it.vault(full_journal(95), {}).keys)
    assert keys == [(), (), ("backlog",)]
    assert it.vault(full_journal(50), {}).keys == ()
