"""Whether a vault is new: told by what is noted on this host, and by what its sources carry."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ops.ops_world import context, dataset, snap, tree, with_source
from zvault.config.schema import Config, Vault
from zvault.core.errors import HostUnreachable, NotFound, Refused
from zvault.core.model import Bookmark, Tree
from zvault.core.names import DatasetName
from zvault.core.replication.base_names import make_hold_tag, make_mark_name
from zvault.ops.context import Context
from zvault.ops.state.pool_book import SeenPool
from zvault.ops.state.pool_health import PoolCondition
from zvault.ops.vaults.assembly import VaultAssembly
from zvault.ops.vaults.earlier_pools import PoolHistory, forget_pools, read_pool_history
from zvault.ops.vaults.new_pool import describe_absence, refuse_unless_new
from zvault.zfs.whole_listing import PartialListing

COLD, USB = 0xC01D, 0x05B


@dataclass
class Source:
    """What is asked of a source."""

    listed: Tree = field(default_factory=lambda: tree(dataset("tank", snap(1))))
    held: dict[str, set[str]] = field(default_factory=dict)
    fails: Exception | None = None
    asked: int = 0

    async def tree(self, _: str, *, sizes: bool = True) -> Tree:
        self.asked += 1
        if self.fails is not None:
            raise self.fails
        return self.listed

    async def held_below(self, _: str) -> list[str]:
        return sorted(self.held)

    async def holds(self, _: list[str]) -> dict[str, set[str]]:
        return self.held


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def world(tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch) -> Context:
    where = with_source(context(folder=tmp_path), source)
    where.env.config = Config.model_validate(
        {
            "vault": {
                "cold": {"pool": "cold", "create": True, "device": [{"nbd": "tcp:nas"}]},
                "usb": {"pool": "usb"},
            },
            "backup": {"b": {"source": "tank", "vault": "cold"}},
        }
    )

    async def state(_: object, pool: str) -> Any:
        return None

    monkeypatch.setattr("zvault.zfs.pool.pool.Zpool.state", state)
    return where


def cold(world: Context) -> Vault:
    return world.env.vault("cold")


def marked(guid: int) -> Tree:
    mark = Bookmark(DatasetName("tank"), make_mark_name(guid, 101), 101, 1, 0)
    return tree(dataset("tank", snap(1), mark))


async def guids(world: Context) -> list[int | None]:
    history = await read_pool_history(world, cold(world))
    assert history.doubt is None
    assert history.new is (not history.pools)
    return [one.guid for one in history.pools]


async def test_a_vault_of_which_nothing_is_known_is_new(world: Context):
    assert await guids(world) == []


async def test_a_pool_that_was_noted_and_nobody_is_asked(world: Context, source: Source):
    world.records.pools.note(COLD, SeenPool("cold", "cold"))
    assert await guids(world) == [COLD]
    assert source.asked == 0


async def test_a_vault_that_has_another_name_by_now(world: Context):
    world.records.pools.note(COLD, SeenPool("attic", "cold"))
    assert await guids(world) == [COLD]


async def test_another_vaults_pool_is_not_this_ones(world: Context, source: Source):
    world.records.pools.note(USB, SeenPool("usb", "usb"))
    world.records.pools.note(COLD, SeenPool("gone", "gone"))
    source.listed, source.held = marked(USB), {snap(1).name: {make_hold_tag(COLD)}}
    assert await guids(world) == []


async def test_a_scrub_that_was_noted(world: Context):
    world.records.conditions.put("cold", PoolCondition(1.0))
    assert await guids(world) == [None]


@pytest.mark.parametrize("hold", [False, True])
async def test_without_notes_the_sources_tell(world: Context, source: Source, hold: bool):
    if hold:
        source.held = {snap(1).name: {"mine", make_hold_tag(COLD)}}
    else:
        source.listed = marked(COLD)
    assert await guids(world) == [COLD]


async def test_another_vaults_pool_that_is_imported(
    world: Context, source: Source, monkeypatch: pytest.MonkeyPatch
):
    async def state(_: object, pool: str) -> Any:
        return type("State", (), {"guid": USB}) if pool == "usb" else None

    monkeypatch.setattr("zvault.zfs.pool.pool.Zpool.state", state)
    source.listed = marked(USB)
    assert await guids(world) == []


async def test_a_source_that_does_not_exist_tells_nothing(world: Context, source: Source):
    source.fails = NotFound("there is no dataset 'tank'")
    assert await guids(world) == []


async def test_a_source_that_cannot_be_asked_leaves_a_doubt(world: Context, source: Source):
    source.fails = HostUnreachable("filer does not answer", "no route", "see to its network")
    history = await read_pool_history(world, cold(world))
    assert not history.new
    missing = describe_absence(cold(world), history, reading=False).error("it is missing")
    assert missing.retryable
    assert "filer does not answer" in missing.why
    assert "zvaultctl vault create cold" in missing.next


async def test_beside_what_cannot_be_listed_the_pools_that_others_tell_of_are_found(
    world: Context, source: Source
):
    class Damaged(Source):
        async def tree(self, root: str, *, sizes: bool = True) -> Tree:
            raise PartialListing(f"'{root}' cannot be listed whole")

        async def tree_around_damage(self, _: str, why: PartialListing) -> Tree:
            return replace(marked(COLD), unlisted={DatasetName("tank/bad"): "I/O error"})

        async def held_below(self, root: str) -> list[str]:
            raise AssertionError(f"{root} cannot be listed whole")

        async def held_in(self, names: list[str]) -> list[str]:
            assert names == ["tank"]
            return []

    with_source(world, Damaged())
    document = (await read_pool_history(world, cold(world))).document(cold(world))
    assert [one["guid"] for one in document["pools"]] == [f"{COLD:x}"]
    (unknown,) = document["unknown"]
    assert "tank/bad cannot be listed (I/O error)" in unknown
    forget_pools(world, cold(world), await read_pool_history(world, cold(world)))
    history = await read_pool_history(world, cold(world))
    assert (history.pools, history.new) == ((), False), "another may have been in what cannot be listed"


async def test_begun_anew_it_is_new_and_the_old_pool_stays_known(world: Context, source: Source):
    world.records.pools.note(COLD, SeenPool("cold", "cold"))
    world.records.conditions.put("cold", PoolCondition(1.0))
    source.listed = marked(COLD)
    forget_pools(world, cold(world), await read_pool_history(world, cold(world)))
    assert await guids(world) == []
    assert world.records.pools.all() == {COLD: SeenPool("cold", "cold", given_up=True)}
    assert world.records.conditions.get("cold") is None
    # The old pool is found again, and used.
    world.records.pools.note(COLD, SeenPool("cold", "cold"))
    assert await guids(world) == [COLD]


async def test_what_only_the_source_told_of_is_forgotten_too(world: Context, source: Source):
    source.listed = marked(COLD)
    forget_pools(world, cold(world), await read_pool_history(world, cold(world)))
    assert await guids(world) == []


async def test_what_is_told_of_a_vault_that_is_not_new(world: Context):
    world.records.pools.note(COLD, SeenPool("cold", "cold"))
    history = await read_pool_history(world, cold(world))
    for reading in (False, True):
        missing = describe_absence(cold(world), history, reading=reading).error("there is no file", "nowhere")
        assert not missing.retryable
        assert missing.why.startswith("nowhere; the vault is not new: it had a pool with GUID c01d")
        assert "zvaultctl vault begin-anew cold" in missing.next
    with pytest.raises(Refused, match="it had a pool with GUID c01d"):
        refuse_unless_new(cold(world), history)
    refuse_unless_new(cold(world), PoolHistory())


async def test_who_may_have_a_pool_made_and_when(world: Context, source: Source):
    async def allowed(**what: bool) -> bool:
        return (await VaultAssembly(world, "cold", cold(world), **what)._making()).allowed

    assert not await allowed(), "who reads, restores or heals makes nothing"
    assert await allowed(create=True)
    assert await allowed(new=True)
    source.fails = HostUnreachable("filer does not answer")
    assert not await allowed(create=True)
    assert await allowed(new=True), "somebody says that it is new"
    world.records.pools.note(COLD, SeenPool("cold", "cold"))
    assert not await allowed(create=True)
    assert not await allowed(new=True)
    assert not await allowed()
