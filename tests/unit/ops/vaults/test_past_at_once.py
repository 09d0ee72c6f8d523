"""Vaults as they were, opened and closed by several at once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.ops.ops_world import START
from tests.unit.ops.vaults.past_world import World, quiet, world_of_pasts  # noqa: F401 - a fixture, too
from tests.unit.patience import PATIENCE
from zvault.core.errors import Busy, Refused
from zvault.ops.vaults import past_vaults as module
from zvault.ops.vaults.past_record import PastVault
from zvault.ops.vaults.past_vaults import PastVaults

SOON = PATIENCE
"""Seconds within which something comes that waits for nothing."""


class Held:
    """A use that lasts until it is cancelled, as a restore's."""

    def __init__(self, vaults: PastVaults, user: str) -> None:
        self.began = asyncio.Event()
        self.task = asyncio.ensure_future(self._use(vaults, user))

    async def _use(self, vaults: PastVaults, user: str) -> None:
        async with vaults.use("cold", START, user, quiet):
            self.began.set()
            await asyncio.Event().wait()

    async def cancelled(self) -> None:
        self.task.cancel()
        async with asyncio.timeout(SOON):
            with pytest.raises(asyncio.CancelledError):
                await self.task


async def held(vaults: PastVaults, user: str) -> Held:
    made = Held(vaults, user)
    await asyncio.wait_for(made.began.wait(), SOON)
    return made


async def slowly_opened(world: World, vaults: PastVaults, number: int) -> asyncio.Task[PastVault]:
    """Another moment that somebody opens, and that takes its time."""
    world.moment = replace(world.moment, number=number, pool=f"cold_{number}")
    name = world.moment.name
    world.slow[name] = asyncio.Event()
    opening = asyncio.ensure_future(vaults.open("cold", START, quiet))
    async with asyncio.timeout(SOON):
        while name not in world.changing:
            await asyncio.sleep(0.01)
    return opening


async def test_while_a_sleep_is_announced_who_opens_keeps_nobody_from_leaving(world: World):
    vaults = world.vaults()
    restoring = await held(vaults, "restore")
    vaults._context.activity.awake.clear()
    opening = asyncio.ensure_future(vaults.open("cold", START, quiet))
    await asyncio.sleep(0.05)
    await restoring.cancelled()
    assert world.left == []
    assert not opening.done()
    vaults._context.activity.awake.set()
    assert (await opening).opened


async def test_while_one_is_opened_slowly_another_is_opened_left_closed_and_swept(world: World):
    vaults = world.vaults()
    restoring = await held(vaults, "restore")
    first = world.moment
    opening = await slowly_opened(world, vaults, 3)
    await restoring.cancelled()
    assert list(world.pools) == []
    world.moment = first
    async with asyncio.timeout(SOON):
        await vaults.open("cold", START, quiet)
        with pytest.raises(Busy, match="in use") as busy:
            await vaults.close("cold", None, quiet)
        assert module.BY_HAND in busy.value.why
        assert await vaults.sweep(quiet, all_of_it=False) == []
        assert list(world.pools) == [first.pool]
    world.slow["cold:1-3"].set()
    assert (await opening).pinned
    assert sorted(world.pools) == ["cold_3", first.pool]
    assert await vaults.sweep(quiet) == []
    assert world.left == []


async def test_the_same_moment_is_opened_once_for_two_who_want_it(world: World):
    vaults = world.vaults()
    opening = await slowly_opened(world, vaults, 3)
    second = asyncio.ensure_future(vaults.open("cold", START, quiet))
    await asyncio.sleep(0.05)
    world.slow["cold:1-3"].set()
    assert await opening == await second
    assert list(world.pools) == ["cold_3"]


async def test_two_moments_of_one_second_opened_at_once_have_two_names(world: World):
    vaults = world.vaults()
    opening = await slowly_opened(world, vaults, 3)
    world.moment = replace(world.moment, number=4)
    other = await asyncio.wait_for(vaults.open("cold", START, quiet), SOON)
    world.slow["cold:1-3"].set()
    assert {other.pool, (await opening).pool} == {"cold_3", "cold_3-4"}


async def test_a_daemon_that_stops_gives_up_what_is_being_opened(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("zvault.system.tasks.WATCH_EVERY", 0.01)
    vaults = world.vaults()
    restoring = await held(vaults, "restore")
    opening = await slowly_opened(world, vaults, 3)
    vaults.stop("the daemon is stopping")
    async with asyncio.timeout(SOON):
        with pytest.raises(Refused, match="is not opened as it was") as refused:
            await opening
        assert refused.value.why == "the daemon is stopping"
        with pytest.raises(Refused):
            await vaults.open("cold", START, quiet)
    assert list(world.pools) == ["cold_then"], "what is open stays for who uses it"
    await restoring.cancelled()
    assert world.left == []


async def test_what_is_being_taken_away_as_zvaultd_stops_is_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("zvault.system.tasks.WATCH_EVERY", 0.01)
    vaults, gate = world.vaults(), asyncio.Event()
    opening = await slowly_opened(world, vaults, 3)
    take_away = vaults._take_away

    async def slow(*args: Any) -> None:
        await gate.wait()
        await take_away(*args)

    vaults._take_away = slow  # type: ignore[method-assign]
    vaults.stop("the daemon is stopping")
    sweeping = asyncio.ensure_future(vaults.sweep(quiet))
    await asyncio.sleep(0.1)
    assert not sweeping.done()
    gate.set()
    assert await sweeping == []
    assert world.left == []
    with pytest.raises(Refused):
        await opening
