"""Which damage is healed without being asked, and why the rest waits."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.ops.ops_world import context
from zvault.core.errors import ToolFailed
from zvault.core.integrity.damage import METADATA_NAME, DamagedFile
from zvault.daemon.monitors import scrub_heal_scheduler
from zvault.daemon.monitors.scrub_heal_scheduler import DOWN_DECISION_INTERVAL, ScrubHealScheduler, VaultScrub
from zvault.ops.state.pool_health import PoolCondition

HURT = PoolCondition(0.0, errors=1, damages=(DamagedFile("cold/a", "s1", "/f"),), named=1)


class Decided(ScrubHealScheduler):
    """With a backup that runs or not."""

    running: str | None = None

    def find_busy(self, vault: str) -> str | None:
        return self.running


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    told: list[str] = []
    monkeypatch.setattr(scrub_heal_scheduler, "make_vault_logger", lambda _: told.append)
    return told


def scheduler() -> Decided:
    nothing: Any = None
    return Decided(context(), nothing, nothing, nothing)


@pytest.mark.parametrize(
    ("heal", "heals"), [(None, False), ("auto", True), ("by-hand", False), ("off", False)]
)
def test_by_itself_only_where_it_is_told_to(said: list[str], heal: Any, heals: bool) -> None:
    """Bytes for a damaged block may come from another host: nobody is taken for willing."""
    it, care = scheduler(), VaultScrub()
    vault = it.context.env.vault("cold").model_copy(update={"heal": heal} if heal else {})
    assert [it._to_heal(vault, HURT, care) for _ in range(3)] == [heals] * 3
    assert said == []


@pytest.mark.parametrize(
    ("datasets", "heals"),
    [
        (("cold/a",), True),
        ((METADATA_NAME,), False),
        ((METADATA_NAME, "cold/a"), True),
        ((None,), False),
        ((), False),
    ],
)
def test_only_what_a_heal_can_put_right(
    said: list[str], datasets: tuple[str | None, ...], heals: bool
) -> None:
    """It would end as failed, and bring the vault up, whenever an outage left errors in the pool's own metadata."""
    it = scheduler()
    vault = it.context.env.vault("cold").model_copy(update={"heal": "auto"})
    hurt = replace(HURT, damages=tuple(DamagedFile(one, None, "<0x34>") for one in datasets))
    assert it._to_heal(vault, hurt, VaultScrub()) is heals


def test_it_says_that_it_waits_for_a_backup(said: list[str]) -> None:
    it, care = scheduler(), VaultScrub()
    vault = it.context.env.vault("cold").model_copy(update={"heal": "auto"})
    it.running = "backup b runs"
    assert not it._to_heal(vault, HURT, care)
    assert "backup b runs" in said[0]
    it.running = None
    assert it._to_heal(vault, HURT, care)


def test_a_backup_that_is_scheduled_and_nobody_knows_when_may_be_due_at_once() -> None:
    it, asked = scheduler(), {"b"}
    it.runs = SimpleNamespace(runner=SimpleNamespace(running=lambda _: None))  # type: ignore[assignment]
    it.scheduler = SimpleNamespace(next_run=lambda _: None, asks=asked.__contains__)  # type: ignore[assignment]
    before = it.context.env.clock.time()
    assert before <= (it._next("b") or 0) <= it.context.env.clock.time()
    asked.clear()
    assert it._next("b") is None


class Looked(Decided):
    """Its healings end as ``left`` says; it looks when it is told to, which is not when the pool is sound."""

    healed: int = 0

    def heal(self, name: str) -> str:
        self.healed += 1
        return "run"

    def _work(self, name: str) -> None:
        return None


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> Looked:
    runs: Any = SimpleNamespace(runner=SimpleNamespace(closed=None))
    vaults: Any = {"cold": SimpleNamespace(withheld=False, is_away=lambda: False)}
    nothing: Any = None
    it = Looked(context(), vaults, runs, nothing)
    monkeypatch.setattr(it, "obstacle", lambda _: None)
    return it


def see(it: Looked, care: VaultScrub, condition: PoolCondition) -> int:
    """Have it decide on a vault in that condition; how often it was healed by then."""
    it.context.records.conditions.put("cold", condition)
    vault = it.context.env.vault("cold").model_copy(update={"heal": "auto"})
    asyncio.run(it._decide(vault, care, up=True))
    return it.healed


def end(it: Looked, care: VaultScrub, left: PoolCondition) -> None:
    """A healing ends, and that is left."""
    it.context.records.conditions.put("cold", left)
    it._healed("cold", care)


SOUND = PoolCondition(0.0)
OTHER = replace(HURT, damages=(DamagedFile("cold/a", "s2", "/g"),))


def test_what_a_healing_left_is_not_tried_again(looked: Looked) -> None:
    care = VaultScrub(due=math.inf)
    assert see(looked, care, HURT) == 1
    assert see(looked, care, HURT) == 1, "it is under way"
    end(looked, care, HURT)
    assert see(looked, care, HURT) == 1, "the same damage is tried once"
    assert see(looked, care, replace(HURT, errors=2, named=2)) == 2, "there is more of it"


@pytest.mark.parametrize("again", [HURT, OTHER])
def test_damage_that_comes_after_a_healing_is_healed_though_nobody_saw_the_pool_sound(
    looked: Looked, again: PoolCondition
) -> None:
    care = VaultScrub(due=math.inf)
    assert see(looked, care, HURT) == 1
    end(looked, care, SOUND)
    assert see(looked, care, again) == 2


def test_as_many_other_damages_as_a_healing_left_are_tried(looked: Looked) -> None:
    care = VaultScrub(due=math.inf)
    assert see(looked, care, HURT) == 1
    end(looked, care, HURT)
    assert see(looked, care, OTHER) == 2


def test_nothing_is_begun_or_paused_while_a_scrub_is_tried_out(looked: Looked) -> None:
    """It would end the trial halfway, and the figure of half a scrub would be kept."""
    looked.context.activity.measured.add("cold")
    assert see(looked, VaultScrub(), HURT) == 0
    looked.context.activity.measured.clear()
    assert see(looked, VaultScrub(due=math.inf), HURT) == 1


async def test_a_vault_that_is_down_is_decided_about_again_when_something_may_be_due(
    looked: Looked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrub_heal_scheduler, "find_scrub_reason", lambda *_: None)
    decided = 0
    decide = looked._decide

    async def counted(*args: Any, **rest: Any) -> None:
        nonlocal decided
        decided += 1
        await decide(*args, **rest)

    looked._decide = counted  # type: ignore[method-assign]
    clock: Any = looked.context.env.clock

    async def cares(state: str = "down") -> int:
        before = decided
        for _ in range(3):
            down: Any = {"name": "cold", "state": state, "health": None, "readonly": False}
            looked.care([down])
            await asyncio.sleep(0)
        return decided - before

    never = PoolCondition(clock.at)
    looked.context.records.conditions.put("cold", never)
    assert [await cares(), await cares()] == [1, 0]
    clock.at += DOWN_DECISION_INTERVAL
    assert [await cares(), await cares()] == [1, 0]
    looked.context.records.conditions.put("cold", replace(never, named=1))
    assert [await cares(), await cares()] == [1, 0]
    looked.context.env.reconfigure(context().env.config)
    assert [await cares(), await cares()] == [1, 0]
    looked.context.records.conditions.put("cold", HURT)
    assert await cares() == 3, "damage may be healed at any time"
    looked.context.records.conditions.put("cold", never)
    assert await cares("up") == 3


def test_damage_on_a_disk_in_the_cupboard_waits_until_it_is_plugged_in(looked: Looked) -> None:
    care = VaultScrub(due=math.inf)
    looked.vaults["cold"].is_away = lambda: True  # type: ignore[method-assign]
    assert see(looked, care, HURT) == 0
    looked.vaults["cold"].is_away = lambda: False  # type: ignore[method-assign]
    assert see(looked, care, HURT) == 1


async def test_errors_that_cannot_be_read_again_are_not_tried_before_the_pause_is_over(
    looked: Looked, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[float] = []
    clock: Any = looked.context.env.clock
    monkeypatch.setattr(clock, "monotonic", lambda: clock.at)

    async def recheck(*_: object) -> bool:
        tried.append(clock.at)
        raise ToolFailed("cannot recheck the errors of 'cold'", "the device does not answer")

    async def named(*_: object) -> bool:
        return False

    monkeypatch.setattr(scrub_heal_scheduler, "recheck_excused", recheck)
    monkeypatch.setattr(scrub_heal_scheduler, "name_new_damage", named)
    care, began = VaultScrub(), clock.at
    for _ in range(121):
        with suppress(ToolFailed):
            await looked._seen("cold", PoolCondition(0.0, errors=1, excused=1), care)
        clock.at += 5.0
    assert [at - began for at in tried] == [0.0, 300.0, 600.0]
