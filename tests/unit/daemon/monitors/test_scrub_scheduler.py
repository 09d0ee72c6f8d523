"""Which damage is healed without being asked, and why the rest waits."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.ops.ops_world import context
from zvault.core.integrity.damage import Damage
from zvault.daemon.monitors import scrub_scheduler
from zvault.daemon.monitors.scrub_scheduler import ScrubScheduler, VaultScrub
from zvault.ops.state.pool_health import Condition

HURT = Condition(0.0, errors=1, damages=(Damage("cold/a", "s1", "/f"),), named=1)


class Decided(ScrubScheduler):
    """With a backup that runs or not."""

    running: str | None = None

    def _busy(self, name: str) -> str | None:
        return self.running


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    told: list[str] = []
    monkeypatch.setattr(scrub_scheduler, "about", lambda _: told.append)
    return told


def scheduler() -> Decided:
    nothing: Any = None
    return Decided(context(), nothing, nothing, nothing)


@pytest.mark.parametrize(
    ("heal", "used", "heals"),
    [
        (None, "", True),
        (None, "cold/a is mounted at /mnt", False),
        ("auto", "cold/a is mounted at /mnt", True),
        ("by-hand", "", False),
        ("off", "", False),
    ],
)
def test_by_itself_only_where_the_pool_is_zvaults_alone_or_it_is_told_to(
    monkeypatch: pytest.MonkeyPatch, said: list[str], heal: Any, used: str, heals: bool
) -> None:
    it, care = scheduler(), VaultScrub()
    vault = it.context.env.vault("cold").model_copy(update={"heal": heal})
    monkeypatch.setattr(scrub_scheduler, "others_use", lambda *_: used)
    assert [it._to_heal(vault, HURT, care) for _ in range(3)] == [heals] * 3
    assert bool(said) == (heal is None and bool(used))
    assert len(said) <= 1, "once is enough"
    if said:
        assert used in said[0]
        assert "zvaultctl heal cold" in said[0]


def test_it_says_that_it_waits_for_a_backup(monkeypatch: pytest.MonkeyPatch, said: list[str]) -> None:
    it, care = scheduler(), VaultScrub()
    vault = it.context.env.vault("cold")
    monkeypatch.setattr(scrub_scheduler, "others_use", lambda *_: "")
    it.running = "backup b runs"
    assert not it._to_heal(vault, HURT, care)
    assert "backup b runs" in said[0]
    it.running = None
    assert it._to_heal(vault, HURT, care)
    care.healed_at = HURT.errors
    assert not it._to_heal(vault, HURT, care), "the same damage is tried once"
