"""Several roots of a pool are listed together, and what was away meanwhile is told as it is."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from tests.unit.zfs.event_looks import Looks, asked, bare, tree
from tests.unit.zfs.event_pool import FakePool
from tests.unit.zfs.event_world import FakeTools
from zvault.core.errors import NotFound
from zvault.core.model import Dataset
from zvault.zfs.client import Zfs


@pytest.fixture
def several() -> Looks:
    """Sources side by side of which nothing is known: tank/a, tank/a/b, tank/c, some of them with points."""
    found = Looks()
    for place in (1, 2, 3):
        found.pool.snapshot(place, 0)
        found.pool.bookmark(place, 0)
    return found


ROOTS = ("tank/a", "tank/c", "tank/a/b")


async def test_who_asks_for_several_roots_of_a_pool_has_them_listed_together(several: Looks) -> None:
    client, fresh = several.clients[0], Zfs(FakeTools(several.pool), key_root="tank")
    found = await asyncio.gather(*(client.tree(root, sizes=False) for root in ROOTS))
    kinds = [argv[argv.index("-t") + 1] for argv in several.tools[0].started if "name,creation" not in argv]
    assert kinds == ["filesystem,volume", "snapshot,bookmark", "filesystem,volume"]
    assert found == [await fresh.tree(root) for root in ROOTS]
    several.tools[0].started.clear()
    several.pool.write(1, 1)
    await asyncio.gather(*(client.tree(root, sizes=False) for root in ROOTS))
    assert several.tools[0].started == []


async def test_of_several_roots_one_that_is_not_there_is_told_and_the_others_are_listed(
    several: Looks,
) -> None:
    client, fresh = several.clients[0], Zfs(FakeTools(several.pool), key_root="tank")
    asked = (client.tree(root, sizes=False) for root in ("tank/none", *ROOTS))
    gone, *found = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(gone, NotFound)
    assert found == [await fresh.tree(root) for root in ROOTS]


async def test_where_no_event_tells_each_root_is_listed_by_itself_and_once(several: Looks) -> None:
    several.feed.kill()
    client, fresh = several.clients[0], Zfs(FakeTools(several.pool), key_root="tank")
    found = await asyncio.gather(*(client.tree(root, sizes=False) for root in ROOTS))
    assert found == [await fresh.tree(root) for root in ROOTS]
    assert [of for of in asked(several) if of[0] == "filesystem,volume"] == [
        ["filesystem,volume", root] for root in ROOTS
    ]


def points_of(one: Dataset) -> tuple[int, ...]:
    return tuple(sorted(point.guid for point in (*one.snapshots, *one.bookmarks)))


def whole(pool: FakePool) -> set[tuple[int, ...]]:
    """Each dataset with all that it has, by GUIDs, whatever it is called."""
    return {(it.guid, *sorted(guid for guid, _ in it.points.values())) for it in pool.datasets.values()}


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("place", [1, 2])
@pytest.mark.parametrize("change", FakePool.CHANGES, ids=lambda change: change.__name__)
async def test_what_changes_while_several_roots_are_listed_together_is_in_the_next_listing(
    several: Looks, change: Callable[[FakePool, int, int], None], place: int, number: int
) -> None:
    """Before each of the programs, at a root and below one. And nothing is told that never was."""
    there, left = whole(several.pool), [change if at == number else None for at in range(4)]

    def meanwhile() -> None:
        if left and (now := left.pop(0)) is not None:
            now(several.pool, place, 2)

    client, fresh = several.clients[0], Zfs(FakeTools(several.pool), key_root="tank")
    several.tools[0].meanwhile = meanwhile
    found = await asyncio.gather(*(tree(client, root, False) for root in ROOTS))
    told = {(one.guid, *points_of(one)) for it in found if it for one in it}
    assert told <= there | whole(several.pool)
    several.tools[0].meanwhile = lambda: None
    for root in ROOTS:
        assert bare(await tree(client, root, False)) == bare(await tree(fresh, root, True))


AWAY = {
    "export": (FakePool.export, FakePool.import_again),
    "rename": (lambda pool: pool.move("tank/a", "tank/x"), lambda pool: pool.move("tank/x", "tank/a")),
    "rename of a kid": (
        lambda pool: pool.move("tank/a/b", "tank/b"),
        lambda pool: pool.move("tank/b", "tank/a/b"),
    ),
}


@pytest.mark.parametrize("back", range(6))
@pytest.mark.parametrize("gone", range(5))
@pytest.mark.parametrize("what", AWAY)
@pytest.mark.parametrize("roots", [ROOTS, ("tank",), ("tank/a",)], ids=len)
async def test_what_was_away_while_it_was_listed_is_told_as_it_is_once_it_is_back(
    several: Looks, roots: Sequence[str], what: str, gone: int, back: int
) -> None:
    """Away before one of the programs, and back before a later one, or when all have ended."""
    away, again = AWAY[what]
    turns = iter(range(9))

    def meanwhile() -> None:
        turn = next(turns, None)
        if turn == gone:
            away(several.pool)
        elif turn == gone + back + 1:
            again(several.pool)

    client, fresh = several.clients[0], Zfs(FakeTools(several.pool), key_root="tank")
    several.tools[0].meanwhile = meanwhile
    there = whole(several.pool)
    found = await asyncio.gather(*(tree(client, root, False) for root in roots))
    assert {(one.guid, *points_of(one)) for it in found if it for one in it} <= there
    several.tools[0].meanwhile = lambda: None
    reached = next(turns, 9)
    if gone < reached <= gone + back + 1:
        again(several.pool)
    for root in roots:
        assert await client.tree(root) == await fresh.tree(root)
