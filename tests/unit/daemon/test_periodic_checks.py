"""Looks at lags: one backup's source that does not answer keeps no other's lag from being read."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.patience import PATIENCE
from zvault.core.errors import ToolFailed
from zvault.core.health.vault_conditions import HALF_UP, VAULT_CONDITIONS
from zvault.core.health.verdict import HealthVerdict, make_finding
from zvault.daemon import periodic_checks as module
from zvault.daemon.periodic_checks import PeriodicChecks
from zvault.daemon.seen_vaults import SeenVaults


class Runs:
    """Counts who is asked; ``slow`` answers once it is let, ``broken`` cannot be asked."""

    def __init__(self) -> None:
        self.findings = self
        self.asked: list[str] = []
        self.answer, self.given_up = asyncio.Event(), 0
        self.error: Exception = ToolFailed("cannot list it", "it is broken")

    async def refresh_lag(self, backup: Any) -> None:
        self.asked.append(backup.name)
        if backup.name == "slow":
            try:
                await self.answer.wait()
            except asyncio.CancelledError:
                self.given_up += 1
                raise
        if backup.name == "broken":
            raise self.error


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> PeriodicChecks:
    monkeypatch.setattr(module, "PROMPT", 0.02)
    backups = {name: SimpleNamespace(name=name) for name in ("slow", "quick", "broken")}
    env = SimpleNamespace(config=SimpleNamespace(backup=backups), clock=None)
    status: Any = SimpleNamespace(context=SimpleNamespace(env=env), runs=Runs(), warnings={})
    nothing: Any = None
    return PeriodicChecks(status, nothing, nothing, nothing, nothing)


async def test_who_does_not_answer_is_not_asked_again_and_the_others_are(looks: PeriodicChecks) -> None:
    runs: Any = looks.status.runs
    async with asyncio.timeout(PATIENCE):
        while min(runs.asked.count(name) for name in ("quick", "broken")) < 3:
            await looks.at_lags()
        assert runs.asked.count("slow") == 1
        assert [*looks.status.warnings] == ["lag broken"]
        runs.answer.set()
        while runs.asked.count("slow") < 2:
            await looks.at_lags()


async def test_of_a_backup_that_is_another_or_gone_nothing_old_is_waited_for_or_told(
    looks: PeriodicChecks,
) -> None:
    runs: Any = looks.status.runs
    backups: dict[str, Any] = looks.status.context.env.config.backup  # type: ignore[assignment]
    async with asyncio.timeout(PATIENCE):
        while "broken" not in runs.asked:
            await looks.at_lags()
        backups["slow"] = SimpleNamespace(name="slow", source="another")
        del backups["broken"]
        while runs.asked.count("slow") < 2:
            await looks.at_lags()
    assert (runs.given_up, [*looks.status.warnings]) == (1, [])


async def test_an_error_nobody_foresaw_is_told_of_its_backup_and_hides_no_other(
    looks: PeriodicChecks, caplog: pytest.LogCaptureFixture
) -> None:
    looks.status.runs.error = RuntimeError("nobody foresaw it")  # type: ignore[attr-defined]
    async with asyncio.timeout(PATIENCE):
        while "lag broken" not in looks.status.warnings:
            await looks.at_lags()
    assert "nobody foresaw it" in looks.status.warnings["lag broken"]
    assert "looking at the lag of broken failed" in caplog.text


async def test_what_is_still_asked_at_the_end_is_given_up(looks: PeriodicChecks) -> None:
    runs: Any = looks.status.runs
    await looks.at_lags()
    await looks.close()
    await looks.close()
    assert runs.given_up == runs.asked.count("slow") == 1


async def test_without_a_backup_there_is_nothing_to_look_at(looks: PeriodicChecks) -> None:
    looks.status.context.env.config.backup.clear()
    await looks.at_lags()
    assert looks.status.runs.asked == []  # type: ignore[attr-defined]


class Monitor:
    """Sees a vault half up; ``meanwhile`` happens as it looks."""

    def __init__(self) -> None:
        self.meanwhile: Any = lambda: None

    async def watch(self) -> list[Any]:
        self.meanwhile()
        return [{"name": "cold", "state": "partial"}]


async def test_a_vault_that_came_up_during_the_look_is_not_told_as_half_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A slow stock Debian had that in its journal after "pool cold is up", and "well again" from the next look."""
    now, vault = [100.0], SimpleNamespace(name="cold", moving=True, changed=0.0)
    verdict = HealthVerdict.of([make_finding(HALF_UP, "cold", "not all of it is up")], VAULT_CONDITIONS)
    env = SimpleNamespace(config=SimpleNamespace(backup={}), clock=SimpleNamespace(monotonic=lambda: now[0]))
    costs = SimpleNamespace(look=lambda *_: None)
    status: Any = SimpleNamespace(
        context=SimpleNamespace(env=env, records=SimpleNamespace(costs=costs)),
        runs=None,
        warnings={},
        verdicts=lambda _: {("vault", "cold"): verdict},
    )
    monitor: Any = Monitor()
    quiet: Any = SimpleNamespace(care=lambda _: None, warnings=dict)
    vaults: Any = SimpleNamespace(all=lambda: [vault])
    seen = SeenVaults(vaults)
    looks = PeriodicChecks(status, seen, monitor, quiet, quiet)

    def come_up() -> None:
        now[0] += 1
        vault.moving, vault.changed = False, now[0]

    monitor.meanwhile = come_up
    await looks.at_vaults()
    assert "half up" not in caplog.text
    # One that nobody moved since is told.
    now[0], monitor.meanwhile = now[0] + 10, lambda: None
    await looks.at_vaults()
    assert "half up" in caplog.text
