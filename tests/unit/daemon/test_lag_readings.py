"""A lag that is read again and again lists nothing that events tell of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.unit.ops.no_keys import NoKeys
from tests.unit.ops.ops_world import START, context, dataset, snap, tree, with_source, with_vault
from zvault.core.model import Tree
from zvault.daemon.lag_readings import READING_PATIENCE, LagReadings


class Side(NoKeys):
    """One that lists only what changed: whoever wants sizes has all its datasets listed."""

    def __init__(self, there: Tree) -> None:
        self.there = there
        self.host = self

    async def tree(self, _: str, *, sizes: bool = True) -> Tree:
        assert not sizes
        return self.there

    tree_or_none = tree

    async def run(self, *_: Any, **__: Any) -> Any:
        """Asked for the proofs, of which there is none."""
        return SimpleNamespace(returncode=0, stdout="", stderr="")


async def test_no_sizes_are_asked_for_a_lag() -> None:
    where = context(START + 9000)
    with_source(where, Side(tree(dataset("tank", snap(1), snap(2)))))
    with_vault(where, Side(tree(dataset("cold/host/tank", snap(1, "cold/host/tank")))))

    async def state(_: str) -> Any:
        return SimpleNamespace(guid=1)

    where.clients.zpool = SimpleNamespace(state=state)  # type: ignore[assignment]
    readings = LagReadings(where)
    await readings.refresh(where.env.backup("b"), lambda: False)
    lags = readings.lags.get("b")
    assert lags is not None
    assert lags["tank"].pending == 1


class World:
    """A source and a vault that can be changed, and what is told of their lag."""

    def __init__(self) -> None:
        self.where = context(START + 9000)
        self.source = Side(tree(dataset("tank", snap(1), snap(2))))
        self.vault = Side(
            tree(dataset("cold/host/tank", snap(1, "cold/host/tank"), snap(2, "cold/host/tank")))
        )
        with_source(self.where, self.source)
        with_vault(self.where, self.vault)
        self.up = True

        async def state(_: str) -> Any:
            return SimpleNamespace(guid=1) if self.up else None

        self.where.clients.zpool = SimpleNamespace(state=state)  # type: ignore[assignment]
        self.readings = LagReadings(self.where)

    async def read(self, *, at_work: bool = False) -> None:
        await self.readings.refresh(self.where.env.backup("b"), lambda: at_work)

    def told(self) -> tuple[int | None, int | None]:
        """Which snapshot the lag is counted from, and how many lack."""
        lag = self.readings.lags["b"]["tank"]
        newest = lag.newest_on_vault
        return (newest.guid - 100 if newest is not None else None), lag.pending


async def test_from_when_something_may_have_changed_until_it_was_read_no_lag_is_told() -> None:
    world = World()
    world.readings.doubt("b")
    assert "b" not in world.readings.lags
    assert not world.readings.is_doubted("b")
    await world.read()
    assert world.told() == (2, 0)
    world.vault.there = tree(dataset("cold/host/tank", snap(1, "cold/host/tank")))
    world.readings.doubt("b")
    assert world.readings.doubted.is_set()
    assert world.told() == (None, None)
    assert world.readings.being_read("b")
    await world.read(at_work=True)
    assert world.told() == (None, None)
    await world.read()
    assert world.told() == (1, 1)
    assert not world.readings.being_read("b")


async def test_a_vault_that_went_down_unread_has_what_it_had_when_it_was_read() -> None:
    world = World()
    await world.read()
    world.readings.doubt("b")
    world.up = False
    world.source.there = tree(dataset("tank", snap(1), snap(2), snap(3)))
    await world.read()
    assert world.told() == (2, 1)


async def test_what_a_vault_had_is_known_again_when_a_dataset_comes_back_under_its_name() -> None:
    """While the vault is down the dataset is renamed away and made anew, which is read, and then put back."""
    world = World()
    await world.read()
    before = world.told()
    world.up = False
    there = world.source.there
    world.source.there = tree(dataset("tank", snap(7)))
    world.readings.doubt("b")
    await world.read()
    assert world.told() != before
    world.source.there = there
    world.readings.doubt("b")
    await world.read()
    assert world.told() == before


async def test_so_is_what_changes_while_it_is_read_for_the_first_time() -> None:
    """Nothing was known of it, so nothing was to be doubted: what had been listed before was told as of now."""
    world = World()
    listed = 0

    async def tree_or_none(_: str, *, sizes: bool = True) -> Tree:
        nonlocal listed
        listed += 1
        before = world.vault.there
        if listed == 1:
            world.vault.there = tree(dataset("cold/host/tank", snap(1, "cold/host/tank")))
            world.readings.doubt("b")
        return before

    world.vault.tree_or_none = tree_or_none  # type: ignore[method-assign]
    await world.read()
    assert listed == 2
    assert world.told() == (1, 1)


async def test_what_is_doubted_again_while_it_is_read_is_read_again() -> None:
    world = World()
    await world.read()
    world.readings.doubt("b")
    listed = 0

    async def tree_or_none(_: str, *, sizes: bool = True) -> Tree:
        nonlocal listed
        listed += 1
        if listed == 1:
            before, world.vault.there = world.vault.there, tree(dataset("cold/host/tank"))
            world.readings.doubt("b")
            return before
        return world.vault.there

    world.vault.tree_or_none = tree_or_none  # type: ignore[method-assign]
    await world.read()
    assert listed == 2
    assert world.told() == (None, 2)


async def test_a_doubt_that_nothing_ends_is_unknown_like_any_other() -> None:
    world = World()
    await world.read()
    world.readings.doubt("b")
    world.where.env.clock.at += 61  # type: ignore[attr-defined]
    assert not world.readings.being_read("b")
    assert world.told() == (None, None)


async def test_whoever_waits_for_what_is_doubted_waits_for_the_last_of_it() -> None:
    world = World()
    await world.read()
    assert world.readings.settled.is_set()
    world.readings.doubt("b")
    assert not world.readings.settled.is_set()
    await world.read()
    assert world.readings.settled.is_set()


async def test_a_lag_does_not_stay_unknown_where_datasets_come_and_go_all_the_time() -> None:
    """Each look takes longer than it takes until something changes again. After a minute the last look is told."""
    world = World()
    await world.read()
    clock: Any = world.where.env.clock
    now = clock.monotonic()
    restless = True

    async def list_it(root: str, *, sizes: bool = True) -> Tree:
        if restless:
            world.readings.doubt("b")
        return await Side.tree(world.vault, root, sizes=sizes)

    world.vault.tree_or_none = list_it  # type: ignore[method-assign]
    world.vault.there = tree(dataset("cold/host/tank", snap(1, "cold/host/tank")))
    world.readings.doubt("b")
    await world.read()
    assert world.told() == (None, None)
    clock.monotonic = lambda: now + READING_PATIENCE + 1
    await world.read()
    assert world.told() == (1, 1), "as it was a look ago"
    world.vault.there = tree(dataset("cold/host/tank", snap(2, "cold/host/tank")))
    world.readings.doubt("b")
    assert world.told() == (1, 1), "it does not become unknown with each change"
    assert world.readings.doubted.is_set()
    await world.read()
    assert world.told() == (2, 0)
    restless = False
    await world.read()
    world.readings.doubt("b")
    assert world.told() == (None, None), "it came to rest: from here on a change has to be read"
