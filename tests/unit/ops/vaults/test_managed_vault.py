"""A vault that several use, and one that a person does something to behind zvault's back."""

from __future__ import annotations

import pytest

from tests.unit.ops.vaults.vault_world import World, played
from zvault.core.errors import Busy, Refused
from zvault.core.policy.vault_life import VaultLife
from zvault.ops.vaults import vault


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> World:
    it = played(monkeypatch)
    await it.vault.adopt(it.said.append, needed=False)
    assert it.vault.life is VaultLife.DOWN
    return it


async def restart(world: World, up: str) -> None:
    world.start(up)
    await world.vault.adopt(world.said.append, needed=False)


async def test_the_last_user_takes_it_down_unless_it_is_pinned(world: World):
    vault, say = world.vault, world.said.append
    async with vault.use("one", say), vault.use("two", say):
        assert vault.users == {"one": 1, "two": 1}
        with pytest.raises(Busy, match="in use"):
            await vault.down(say)
    assert (vault.life, world.pool, world.devices) == (VaultLife.DOWN, False, False)
    await vault.up(say)
    async with vault.use("one", say):
        pass
    assert (vault.life, world.pool) == (VaultLife.UP, True)


async def test_what_somebody_exported_stays_so_over_a_restart_until_it_is_asked_for(world: World):
    await world.vault.up(world.said.append)
    world.pool, world.foreign = False, True
    for _ in range(2):
        await world.vault.repair(world.said.append)
        assert world.vault.life is VaultLife.EXPORTED_BY_HAND
        assert world.vault.withheld
    assert len([text for text in world.said if "somebody exported it" in text]) == 1
    await restart(world, "on-demand")
    assert (world.vault.life, world.pool) == (VaultLife.EXPORTED_BY_HAND, False)
    await world.vault.up(world.said.append)
    assert (world.vault.life, world.pool, world.vault.error) == (VaultLife.UP, True, None)


async def test_what_somebody_took_down_stays_so_until_a_restart(world: World):
    await restart(world, "always")
    assert (world.vault.life, world.pool) == (VaultLife.UP, True)
    await world.vault.down(world.said.append)
    await world.vault.repair(world.said.append)
    assert (world.vault.life, world.vault.withheld, world.pool) == (VaultLife.HELD_DOWN, True, False)
    await restart(world, "always")
    assert (world.vault.life, world.pool) == (VaultLife.UP, True)


async def test_one_that_nobody_needs_after_a_restart_is_not_held_down(world: World):
    await world.vault.up(world.said.append)
    world.leases.put("vault/cold", {"pool": "cold", "pinned": False, "exported": False, "paths": []})
    await restart(world, "on-demand")
    assert (world.vault.life, world.devices) == (VaultLife.DOWN, False)


async def test_what_could_not_be_taken_down_goes_once_it_can(world: World):
    world.refuses = True
    warned: list[str] = []
    async with world.vault.use("run", world.said.append, warn=warned.append):
        pass
    assert len([text for text in warned if "could not be taken down" in text]) == 1
    assert world.vault.life is VaultLife.HALF_DOWN
    assert isinstance(world.vault.error, Busy)
    world.refuses = False
    await world.vault.repair(world.said.append)
    assert (world.vault.life, world.devices, world.vault.error) == (VaultLife.DOWN, False, None)


async def test_one_that_is_up_is_neither_made_nor_taken_over(world: World):
    async def never(*_: object) -> None:
        raise AssertionError

    await world.vault.up(world.said.append)
    with pytest.raises(Busy, match="is up"):
        await world.vault.create(world.said.append, never, never)
    with pytest.raises(Refused, match="is up on this host"):
        await world.vault.take_over(never, world.said.append)


async def test_what_was_up_between_two_looks_is_looked_at_before_it_goes(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """Somebody's 'zpool add' of a local disk was never seen: all was well until the import without it failed."""

    async def look(*_: object) -> None:
        world.must(world.pool, "looked at once it was gone")
        world.log.append("is looked at")

    async def recheck(*_: object) -> None:
        return None

    monkeypatch.setattr(vault, "examine_pool", look)
    monkeypatch.setattr(vault, "recheck_excused", recheck)
    for going_down, looks in ((False, 1), (True, 0)):
        await world.vault.up(world.said.append)
        world.context.activity.going_down = going_down
        world.log.clear()
        await world.vault.down(world.said.append)
        assert (world.vault.life, world.log.count("is looked at")) == (VaultLife.HELD_DOWN, looks)
