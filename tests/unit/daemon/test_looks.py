"""Looks at lags: one backup's source that does not answer keeps no other's lag from being read."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from zvault.core.errors import ToolFailed
from zvault.daemon import looks as module
from zvault.daemon.looks import Looks


class Runs:
    """Counts who is asked; ``slow`` answers once it is let, ``broken`` cannot be asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer = asyncio.Event()

    async def refresh_lag(self, backup: Any) -> None:
        self.asked.append(backup.name)
        if backup.name == "slow":
            await self.answer.wait()
        if backup.name == "broken":
            raise ToolFailed("cannot list it", "it is broken")


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    monkeypatch.setattr(module, "PROMPT", 0.02)
    backups = {name: SimpleNamespace(name=name) for name in ("slow", "quick", "broken")}
    env = SimpleNamespace(config=SimpleNamespace(backup=backups), clock=None)
    status: Any = SimpleNamespace(context=SimpleNamespace(env=env), runs=Runs(), warnings={})
    nothing: Any = None
    return Looks(status, nothing, nothing, nothing, nothing, nothing)


async def test_who_does_not_answer_is_not_asked_again_and_the_others_are(looks: Looks) -> None:
    runs: Any = looks.status.runs
    async with asyncio.timeout(60):
        while min(runs.asked.count(name) for name in ("quick", "broken")) < 3:
            await looks.at_lags()
        assert runs.asked.count("slow") == 1
        assert [*looks.status.warnings] == ["lag broken"]
        runs.answer.set()
        while runs.asked.count("slow") < 2:
            await looks.at_lags()


async def test_without_a_backup_there_is_nothing_to_look_at(looks: Looks) -> None:
    looks.status.context.env.config.backup.clear()
    await looks.at_lags()
    assert looks.status.runs.asked == []  # type: ignore[attr-defined]
