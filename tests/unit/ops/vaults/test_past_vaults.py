"""A vault as it was is opened and closed, and wherever that ends nothing is left."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.unit.ops.ops_world import START
from tests.unit.ops.vaults.past_world import Killed, World, quiet, world_of_pasts  # noqa: F401 - a fixture, too
from zvault.core.errors import Busy, DeviceGone, NotFound, Refused, ToolFailed
from zvault.ops.vaults import past_vaults as module
from zvault.ops.vaults.past_context import find_past_loss
from zvault.ops.vaults.past_vaults import PastVaults


async def open_and_close(vaults: PastVaults) -> None:
    await vaults.open("cold", START, quiet)
    await vaults.close("cold", None, quiet)


async def test_it_is_opened_once_and_closed(world: World):
    vaults = world.vaults()
    first = await vaults.open("cold", START, quiet)
    assert (first.guid, first.opened, first.pinned) == (77, True, True)
    done = world.steps
    assert await vaults.open("cold", START + 5, quiet) == first
    assert world.steps == done, "it is joined"
    assert [one.pool for one in await vaults.close("cold", None, quiet)] == ["cold_then"]
    assert world.left == []
    with pytest.raises(NotFound):
        await vaults.close("cold", None, quiet)


async def test_wherever_it_fails_nothing_is_left(world: World):
    vaults = world.vaults()
    await vaults.open("cold", START, quiet)
    await vaults.close("cold", None, quiet)
    for number in range(1, world.steps + 1):
        world.steps, world.fails, world.error = 0, number, ToolFailed("it failed", "for a test")
        with contextlib.suppress(ToolFailed):
            await open_and_close(vaults)
        world.fails = -1
        assert await vaults.sweep(quiet) == []
        assert world.left == [], number


async def test_wherever_zvaultd_is_killed_the_next_one_takes_all_of_it_away(world: World):
    vaults = world.vaults()
    await vaults.open("cold", START, quiet)
    await vaults.close("cold", None, quiet)
    many = world.steps
    assert many > 10
    for number in range(1, many + 1):
        vaults = world.vaults()
        world.steps, world.fails, world.error = 0, number, Killed()
        with pytest.raises(Killed):
            await open_and_close(vaults)
        vaults, world.fails = world.vaults(), -1
        assert await vaults.sweep(quiet) == []
        assert world.left == [], number
        assert (await vaults.open("cold", START, quiet)).opened
        await vaults.close("cold", None, quiet)


async def test_of_another_boot_only_the_lease_is_there(world: World):
    vaults = world.vaults()
    await vaults.open("cold", START, quiet)
    world.devices.clear()
    world.pools = {"cold_then": 5}
    vaults._leases._boot_id = "next"
    assert await vaults.sweep(quiet) == []
    assert world.left == ["cold_then"], "a pool that somebody imported since"


async def test_a_pool_of_that_name_that_zvault_did_not_import_is_left_alone(world: World):
    vaults = world.vaults()
    world.pools["cold_then"] = 5
    with pytest.raises(Refused, match="is not opened as it was"):
        await vaults.open("cold", START, quiet)
    assert world.left == ["cold_then"]


async def test_a_pool_that_was_imported_where_none_was_yet_is_not_exported(world: World):
    """Killed before its pool had a GUID of its own, zvaultd had imported none."""
    vaults = world.vaults()
    vaults._note(world.moment)
    world.pools["cold_then"] = 5
    assert await vaults.sweep(quiet) == []
    assert world.left == ["cold_then"]


async def test_a_second_moment_of_the_same_second_has_another_name(world: World):
    vaults = world.vaults()
    await vaults.open("cold", START, quiet)
    world.moment = replace(world.moment, number=3)
    world.devices.clear()
    assert (await vaults.open("cold", START, quiet)).pool == "cold_then-3"


async def test_users_have_it_open_and_the_last_one_closes_it(world: World):
    vaults = world.vaults()
    async with vaults.seen("cold", START, "one", quiet) as (there, _):
        assert there.env.vault("cold").pool == "cold_then"
        assert there.env.target_of(there.env.backup("b"), "tank").pool == "cold_then"
        assert vaults._context.env.vault("cold").pool == "cold", "the vault itself is as it was"
        async with vaults.use("cold", START, "two", quiet):
            with pytest.raises(Busy, match="in use"):
                await vaults.close("cold", None, quiet)
            assert await vaults.sweep(quiet) == []
        assert world.pools == {"cold_then": 77}
    assert world.left == []
    async with vaults.seen("cold", None, "one", quiet) as (there, _):
        assert there is vaults._context


async def test_what_somebody_opened_stays_after_its_users(world: World):
    vaults = world.vaults()
    await vaults.open("cold", START, quiet)
    async with vaults.use("cold", START, "one", quiet):
        pass
    assert world.pools == {"cold_then": 77}
    assert await vaults.sweep(quiet, all_of_it=False) == []
    assert world.pools == {"cold_then": 77}


async def test_one_whose_server_died_is_opened_anew(world: World):
    vaults = world.vaults()
    await vaults.open("cold", START, quiet)
    world.lost.add("cold:1-2")
    async with vaults.use("cold", START, "one", quiet) as there:
        assert world.steps > 12, "it was taken away, and made again"
        with pytest.raises(DeviceGone, match="cannot be read any more"):
            await vaults.open("cold", START, quiet)
        assert "its server died" in str(await find_past_loss(there.vault.past, world.stack(there.vault.past)))
    assert world.left == [], "nobody opened this one until it is closed"


async def test_what_is_busy_is_told_and_taken_away_later(world: World):
    vaults, said = world.vaults(), list[str]()
    world.busy = True
    async with vaults.use("cold", START, "one", said.append):
        pass
    assert "could not be closed" in said[-1]
    assert world.pools == {"cold_then": 77}
    (left,) = await vaults.sweep(quiet, all_of_it=False)
    assert "is left open" in left
    world.busy = False
    assert await vaults.sweep(quiet, all_of_it=False) == []
    assert world.left == []


async def test_what_the_host_says_no_to_is_told_and_keeps_nothing_else_open(world: World):
    vaults, said = world.vaults(), list[str]()
    await vaults.open("cold", START, quiet)
    world.moment = replace(world.moment, vault="attic", pool="attic_then")
    other = world.moment.as_lease()
    vaults._leases.put(world.moment.lease, other)
    drop = vaults._leases.drop

    def read_only(name: str) -> None:
        if "cold" not in name:
            raise OSError(30, "Read-only file system")
        drop(name)

    vaults._leases.drop = read_only  # type: ignore[method-assign]
    (left,) = await vaults.sweep(quiet)
    assert "vault attic as it was" in left
    assert "Read-only file system" in left
    assert world.pools == {}
    vaults._leases.drop = drop  # type: ignore[method-assign]
    assert await vaults.sweep(quiet) == []
    assert world.left == []
    world.moment = replace(world.moment, vault="cold", pool="cold_then")
    async with vaults.use("cold", START, "one", quiet, warn=said.append):
        vaults._leases.drop = lambda _: (_ for _ in ()).throw(OSError(5, "Input/output error"))  # type: ignore[method-assign]
    assert "Input/output error" in said[-1]


async def test_without_room_for_what_is_written_nothing_is_opened(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    vaults = world.vaults()
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20))
    with pytest.raises(Refused, match="no vault can be opened as it was") as refused:
        await vaults.open("cold", START, quiet)
    assert "1M free" in refused.value.why
    assert world.left == []
