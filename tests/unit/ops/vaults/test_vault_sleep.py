"""In which order a vault comes to rest before a sleep, and gets up after it."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.unit.ops.vaults.vault_world import World, played
from zvault.core.policy.vault_life import VaultLife
from zvault.ops.vaults.vault_sleep import PausedScrub, prepare_for_sleep, resume_after_sleep


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A vault that is up, and somebody wants it so."""
    it = played(monkeypatch)
    await it.vault.adopt(it.said.append, needed=False)
    await it.vault.up(it.said.append)
    it.said.clear()
    it.log.clear()
    return it


async def lies_down(world: World, seconds: float = 5) -> str:
    world.context.activity.awake.clear()
    assert (
        await prepare_for_sleep(world.vault, time.monotonic() + seconds, world.said.append) == PausedScrub()
    )
    return "\n".join(world.said)


async def gets_up(world: World) -> None:
    world.context.activity.awake.set()
    await resume_after_sleep(world.vault, PausedScrub(), world.said.append, needed=False)


async def test_the_cache_rests_before_the_pool_is_synced(world: World):
    world.configure("on-demand", on_sleep="sync")
    assert await lies_down(world) == "pool cold has written out what it had, in 0.0 s"
    assert world.log == ["rests", "syncs"]


@pytest.mark.parametrize(("seconds", "exported"), [(5, True), (1.5, False)])
async def test_it_is_exported_where_there_is_time_and_comes_back(
    world: World, seconds: float, exported: bool
):
    told = await lies_down(world, seconds)
    assert world.pool is not exported
    assert (world.vault.life is VaultLife.EXPORTED) is exported is ("exported pool cold" in told)
    world.log.clear()
    await gets_up(world)
    assert world.log == ["goes on", *(["comes up"] if exported else [])]
    assert world.pool
    assert world.vault.life is VaultLife.UP


async def test_one_that_is_being_taken_down_has_its_cache_rest_at_least(world: World):
    async with world.vault.before_sleep():
        assert "has not come to rest in time" in await lies_down(world, 0.05)
        await gets_up(world)
    assert world.log == ["rests", "goes on"]


async def test_a_look_right_after_the_sleep_does_not_take_it_for_exported_by_hand(world: World):
    await lies_down(world)
    world.context.activity.awake.set()
    await asyncio.gather(world.vault.repair(world.said.append), gets_up(world))
    assert world.vault.life is VaultLife.UP
    assert world.pool
    assert not any("somebody exported it" in text for text in world.said)


async def test_a_pool_that_somebody_else_imported_is_not_exported_for_the_sleep(world: World):
    await world.vault.down(world.said.append)
    world.devices = world.pool = True
    assert "zvault has not imported it" in await lies_down(world)
    assert world.pool
