"""One lock for all who write to a vault: taken by the first, released by the last, whatever happens to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from zvault.config.schema import DaemonTable
from zvault.core.errors import ToolMissing
from zvault.core.policy.sleep import InhibitEvent, InhibitMode
from zvault.ops.vaults import inhibitor
from zvault.ops.vaults.inhibitor import VaultInhibitor
from zvault.system.logind import InhibitorLock

APART: dict[InhibitEvent, InhibitMode] = {"sleep": "block", "shutdown": "block-weak"}
"""Two locks are taken, one after the other."""


class Logind:
    """Counts the locks it gave, and how many are held."""

    def __init__(self) -> None:
        self.given = self.held = 0
        self.asked: list[str] = []
        self.problem: ToolMissing | None = None

    @asynccontextmanager
    async def inhibit(self, *, why: str, what: str, mode: str) -> AsyncIterator[InhibitorLock]:
        await asyncio.sleep(0)
        self.given += 1
        self.held += 1
        self.asked.append(f"{mode} {what}")
        try:
            yield InhibitorLock(held=self.problem is None, problem=self.problem)
        finally:
            await asyncio.sleep(0)
            self.held -= 1


@pytest.fixture
def logind(monkeypatch: pytest.MonkeyPatch) -> Logind:
    it = Logind()
    monkeypatch.setattr(inhibitor, "hold_inhibitor", it.inhibit)
    return it


async def test_it_is_held_from_the_first_to_the_last(logind: Logind):
    it, said = VaultInhibitor(DaemonTable().inhibitor_modes.copy, clock=lambda: 1000.0), list[str]()
    async with it.during("one", said.append):
        assert (it.held, it.since) == (True, 1000.0)
        async with it.during("two", said.append):
            assert (logind.given, logind.held) == (1, 1)
        assert it.held
    assert (it.held, it.since, logind.held) == (False, None, 0)
    assert said == []


@pytest.mark.parametrize(
    ("configured", "asked", "refused"),
    [
        ({}, ["block sleep"], ("sleep",)),
        ({"inhibit_shutdown": "block"}, ["block sleep:shutdown"], ("sleep", "shutdown")),
        (
            {"inhibit_shutdown": "block-weak"},
            ["block sleep", "block-weak shutdown"],
            ("sleep", "shutdown"),
        ),
        ({"inhibit_sleep": "delay"}, [], ()),
    ],
)
async def test_a_shutdown_is_refused_only_where_the_configuration_says_so(
    logind: Logind, configured: dict[str, str], asked: list[str], refused: tuple[str, ...]
) -> None:
    it = VaultInhibitor(DaemonTable.model_validate(configured).inhibitor_modes.copy)
    async with it.during("a run", lambda _: None):
        assert (logind.asked, it.refused, it.held) == (asked, refused, bool(refused))
    assert (logind.held, it.refused) == (0, ())


async def test_whoever_is_cancelled_leaves_nothing_held(logind: Logind):
    it = VaultInhibitor(APART.copy)

    async def write() -> None:
        async with it.during("a run", lambda _: None):
            await asyncio.sleep(60)

    for steps in range(12):
        tasks = [asyncio.create_task(write()) for _ in range(3)]
        for _ in range(steps):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (it.held, logind.held) == (False, 0)


async def test_without_logind_work_goes_on_and_that_is_said_once(logind: Logind):
    logind.problem = ToolMissing("there is no logind", "it is not running", "start it")
    it, said = VaultInhibitor(APART.copy), list[str]()
    async with it.during("one", said.append), it.during("two", said.append):
        assert (it.held, it.since) == (False, None)
        assert it.problem is logind.problem
    assert len(said) == 1
    assert "going on without an inhibitor" in said[0]
