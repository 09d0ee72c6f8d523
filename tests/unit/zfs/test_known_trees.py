"""What a client knows by events always equals a fresh listing, whatever happens, is dropped or restarted."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.examples import cases
from tests.unit.zfs.event_pool import PLACES, FakePool
from tests.unit.zfs.event_world import FakeFeed, FakeTools
from zvault.core.errors import NotFound
from zvault.core.model import Dataset, Tree
from zvault.zfs.client import Zfs
from zvault.zfs.pool.change_reader import MOST_OF_ONE, Changed

Change = tuple[Callable[[FakePool, int, int], None], int, int]
CHANGE = st.tuples(st.sampled_from(FakePool.CHANGES), st.integers(0, 9), st.integers(0, 9))
ROOT = st.sampled_from(["tank", "tank/a", "tank/a/b"])
BESIDE = "tank/c"
"""A root that is asked for at the same time as another."""
LOOK = st.tuples(st.sampled_from([0, 1]), ROOT, st.booleans(), st.lists(CHANGE, max_size=6))
STEP = st.one_of(
    st.lists(CHANGE, min_size=1, max_size=4), LOOK, st.sampled_from(["read", "restart", "broken", "sleep"])
)

Seen = tuple[Dataset, dict[str, set[str]], int | None]
"""A dataset as it was told, with its holds, and how many lapses there had been."""


class Looks:
    """Two clients of one host's pools, and what is done around them."""

    def __init__(self) -> None:
        self.pool = FakePool()
        self.feed = FakeFeed(self.pool)
        self.tools = [FakeTools(self.pool), FakeTools(self.pool)]
        self.clients = [Zfs(tools, feed=self.feed, key_root="tank") for tools in self.tools]
        self.before: list[dict[str, Seen]] = [{}, {}]

    def change(self, changes: Sequence[Change]) -> None:
        for change, one, other in changes:
            change(self.pool, one, other)

    def disturb(self, what: str) -> None:
        if what == "read" and self.feed.reader is not None:
            self.feed.reader.read()
        elif what == "restart":
            self.feed.restart()
        elif what == "broken":
            self.feed.kill()
        elif what == "sleep":
            self.feed._asleep -= 60

    async def look(self, number: int, root: str, sizes: bool, during: Sequence[Change]) -> None:
        """A look while something changes may see any part of it, and must not break."""
        left = list(during)

        def meanwhile() -> None:
            if left:
                self.change([left.pop(0)])

        self.tools[number].meanwhile = meanwhile
        await asyncio.gather(
            tree(self.clients[number], root, sizes),
            tree(self.clients[1 - number], root, True),
            *(tree(client, BESIDE, False) for client in self.clients),
            self._others(),
        )
        self.tools[number].meanwhile = lambda: None
        self.change(left)

    async def _others(self) -> None:
        """Other clients hear of changes while these two list."""
        for _ in range(5):
            await asyncio.sleep(0)
            await self.feed.collect()

    async def check(self, root: str) -> None:
        """Nothing happens now, so what is known is what there is."""
        await self._check(BESIDE)
        await self._check(root)

    async def _check(self, root: str) -> None:
        now = await tree(Zfs(FakeTools(self.pool), key_root="tank"), root, True)
        for client in self.clients:
            assert bare(await tree(client, root, False)) == bare(now)
            assert await tree(client, root, True) == now
            assert bare(await tree(client, root, False)) == bare(now)
        for client, before in zip(self.clients, self.before, strict=True):
            await self._check_holds(client, before, await tree(client, root, False))

    async def _check_holds(self, client: Zfs, before: dict[str, Seen], found: Tree | None) -> None:
        """Holds are as they are; and what is the same object, with no lapse between, has the same holds."""
        for name, one in found.datasets.items() if found is not None else ():
            points = self.pool.datasets[name].points.items()
            held = {name + short: self.pool.held.get(at[0], set()) for short, at in points if short[0] == "@"}
            assert await client.held([(one, list(one.snapshots))]) == held
            if name in before and before[name][0] is one and before[name][2] == client.lapses:
                assert before[name][1] == held
            before[name] = one, {snap: set(tags) for snap, tags in held.items()}, client.lapses


async def tree(client: Zfs, root: str, sizes: bool) -> Tree | None:
    try:
        return await client.tree(root, sizes=sizes)
    except NotFound:
        return None


def bare(found: Tree | None) -> Tree | None:
    """Without what no event tells of."""
    return found and Tree({name: replace(one, used=0, written=0) for name, one in found.datasets.items()})


@example(
    [[(FakePool.snapshot, 0, 0)], "broken", [(FakePool.bookmark, 0, 0), (FakePool.forget_events, 0, 0)]],
    "tank",
)
@example(
    [
        [(FakePool.snapshot, 0, 0)],
        "broken",
        (
            0,
            "tank",
            False,
            [(FakePool.create, 0, 0)] * 2 + [(FakePool.bookmark, 0, 0), (FakePool.forget_events, 0, 0)],
        ),
    ],
    "tank",
)
@example(
    [
        [(FakePool.snapshot, 0, 0), (FakePool.forget_events, 0, 0)],
        [(FakePool.bookmark, 0, 0), (FakePool.forget_events, 0, 0)],
    ],
    "tank",
)
@given(st.lists(STEP, max_size=25), ROOT)
@settings(max_examples=cases(400), deadline=None)
def test_what_is_known_equals_a_fresh_listing(steps: list[object], root: str) -> None:
    async def all_steps() -> None:
        looks = Looks()
        broken = False
        for step in steps:
            if isinstance(step, str):
                broken = step == "broken" or (broken and step != "restart")
                looks.disturb(step)
            elif isinstance(step, tuple):
                await looks.look(*step)
            else:
                assert isinstance(step, list)
                looks.change(step)
            if not broken:
                await looks.check(root)
        if broken:
            looks.disturb("restart")
        for each in ("tank", root):
            await looks.check(each)

    asyncio.run(all_steps())


@pytest.fixture
async def looks() -> Looks:
    found = Looks()
    found.pool.scrub()
    for root in ("tank", "tank"):
        await found.clients[0].tree(root)
    found.tools[0].started.clear()
    return found


async def test_nothing_is_listed_where_nothing_changed(looks: Looks) -> None:
    looks.pool.another_pool(0, 5)
    looks.pool.scrub()
    for root in ("tank", "tank/a"):
        await looks.clients[0].tree(root, sizes=False)
    assert looks.tools[0].started == []


async def test_of_what_was_written_only_the_datasets_themselves_are_listed(looks: Looks) -> None:
    looks.pool.write(0, 7)
    assert (await looks.clients[0].tree("tank")).datasets["tank"].written == 8
    assert [argv[1:5] for argv in looks.tools[0].started] == [["list", "-Hp", "-r", "-t"]]


def asked(looks: Looks) -> list[Sequence[str]]:
    """What was listed, of which, since this was last asked: each command's types and names."""
    argvs, looks.tools[0].started = looks.tools[0].started, []
    return [
        [argv[argv.index("-t") + 1], *argv[argv.index("-o") + 2 :]] for argv in argvs if argv[1] == "list"
    ]


THE_DATASET = ["filesystem,volume", "tank/a"]


async def test_of_a_dataset_that_changed_only_the_snapshots_are_listed_that_events_name(looks: Looks) -> None:
    client = looks.clients[0]
    for number in range(3):
        looks.pool.snapshot(1, number)
    await client.tree("tank", sizes=False)
    asked(looks)
    looks.pool.snapshot(1, 3)
    looks.pool.remove(1, 0)
    found = await client.tree("tank", sizes=False)
    names = [f"s{number}_1970-01-01T00:01:0{number}Z" for number in range(4)]
    assert [snap.snapname for snap in found.datasets["tank/a"].snapshots] == names[1:]
    assert asked(looks) == [
        THE_DATASET,
        ["snapshot", f"tank/a@{names[0]}", f"tank/a@{names[3]}"],
        THE_DATASET,
    ]


async def test_of_a_dataset_that_is_held_no_snapshot_is_listed_and_it_is_another_object(looks: Looks) -> None:
    """By that whoever asked for holds knows that it has to ask again."""
    client = looks.clients[0]
    looks.pool.snapshot(1, 0)
    before = await client.tree("tank", sizes=False)
    asked(looks)
    looks.pool.hold(1, 0)
    found = await client.tree("tank", sizes=False)
    assert asked(looks) == [THE_DATASET]
    assert found.datasets["tank/a"] == before.datasets["tank/a"]
    assert found.datasets["tank/a"] is not before.datasets["tank/a"]
    assert found.datasets["tank/a"].snapshots is not before.datasets["tank/a"].snapshots
    assert found.datasets["tank/c"] is before.datasets["tank/c"]


async def test_a_snapshot_that_is_renamed_while_it_is_asked_for_is_not_missed(looks: Looks) -> None:
    looks.pool.snapshot(1, 0)
    for _ in range(2):
        await looks.clients[0].tree("tank")
    looks.pool.snapshot(1, 1)
    waiting = [lambda: None, lambda: looks.pool.rename_snapshot(1, 1)]
    looks.tools[0].meanwhile = lambda: waiting.pop(0)() if waiting else None
    found = await looks.clients[0].tree("tank")
    assert waiting == []
    assert len(found.datasets["tank/a"].snapshots) == 2


async def test_one_that_cannot_be_opened_by_name_hides_no_other(
    looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing of all does not open it."""
    monkeypatch.setattr(looks.pool, "_named", lambda _: (1, "", "cannot open 'tank/a@x': I/O error\n"))
    looks.pool.snapshot(1, 0)
    looks.pool.snapshot(3, 0)
    found = await looks.clients[0].tree("tank", sizes=False)
    assert [len(found.datasets[name].snapshots) for name in ("tank/a", "tank/c")] == [1, 1]


async def test_nothing_is_known_while_no_event_tells_of_snapshots(looks: Looks) -> None:
    looks.pool.complete = False
    looks.pool.snapshot(1, 0)
    found = await looks.clients[0].tree("tank", sizes=False)
    assert len(found.datasets["tank/a"].snapshots) == 1


async def test_of_what_nobody_lists_here_no_names_are_gathered_and_of_a_dataset_few(looks: Looks) -> None:
    known = looks.clients[0]._trees._known
    looks.pool.snapshot(1, 0)
    for number in range(2 * MOST_OF_ONE):
        known.note(Changed(datasets={"other/a": {f"@{number}"}, "tank/a": {f"@{number}"}}))
    assert (known._what["other/a"], known._what["tank/a"]) == (None, None)
    known.note(Changed(datasets={"tank/c": {f"@{number}" for number in range(50)}}))
    await looks.clients[0].tree("tank", sizes=False)
    assert ["snapshot,bookmark", "tank/a", "tank/c"] in asked(looks)


async def test_bookmarks_are_listed_where_one_came_or_its_snapshot_went(looks: Looks) -> None:
    client = looks.clients[0]
    looks.pool.snapshot(1, 0)
    await client.tree("tank", sizes=False)
    asked(looks)
    looks.pool.bookmark_of(1, 0)
    await client.tree("tank", sizes=False)
    assert ["bookmark", "tank/a"] in asked(looks)
    looks.pool.remove(1, 1)
    found = await client.tree("tank", sizes=False)
    assert len(found.datasets["tank/a"].snapshots) == 0
    assert len(found.datasets["tank/a"].bookmarks) == 1
    assert ["bookmark", "tank/a"] in asked(looks)


async def test_so_many_changed_that_all_datasets_are_listed_and_yet_no_snapshot_that_is_known(
    looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zvault.zfs.tree_listing.FEW", 1)
    for number in range(4):
        looks.pool.snapshot(number, 0)
    looks.pool.another_pool(0, 1)
    await looks.clients[0].tree("tank", sizes=False)
    asked(looks)
    for number in range(4):
        looks.pool.snapshot(number, 1)
    found = await looks.clients[0].tree("tank", sizes=False)
    assert [len(one.snapshots) for one in found.datasets.values()] == [2] * 4
    assert [one[0] for one in asked(looks)] == ["filesystem,volume", "snapshot"]


@pytest.mark.parametrize("lose", ["events", "between", "long", "clear"])
async def test_all_is_listed_after_an_event_was_lost(looks: Looks, lose: str) -> None:
    looks.pool.bookmark(3, 0)
    if lose in {"events", "between"}:
        for _ in range(PLACES):
            looks.pool.scrub()
        if lose == "between" and looks.feed.reader is not None:
            looks.feed.reader.read()  # the last event that was read is there again, and so are all after it
    elif lose == "long":
        looks.pool.set_long(1, 0)
    else:
        looks.pool.forget_events()
    found = await looks.clients[0].tree("tank", sizes=False)
    assert len(found.datasets["tank/c"].bookmarks) == 1
    assert [argv[-1] for argv in looks.tools[0].started if "-r" in argv] == ["tank"] * 3


async def test_a_receive_that_waits_to_be_resumed_is_listed_each_time(looks: Looks) -> None:
    looks.pool.receive(1, 0)
    for number in (3, 4):
        looks.pool.receive_more(1, number)
        found = await looks.clients[0].tree("tank", sizes=False)
        assert found.datasets["tank/a"].resume_token == f"1-a-{number}-b"
    looks.pool.receive_end(1, 0)
    assert (await looks.clients[0].tree("tank", sizes=False)).datasets["tank/a"].resume_token is None
    looks.tools[0].started.clear()
    await looks.clients[0].tree("tank", sizes=False)
    assert looks.tools[0].started == []


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
