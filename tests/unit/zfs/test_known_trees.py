"""What a client knows by events always equals a fresh listing, whatever happens, is dropped or restarted."""

import asyncio

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.examples import cases
from tests.unit.zfs.event_looks import Looks, asked
from tests.unit.zfs.event_pool import PLACES, FakePool
from zvault.zfs.pool.event_reader import MOST_OF_ONE, ChangedDatasets

CHANGE = st.tuples(st.sampled_from(FakePool.CHANGES), st.integers(0, 9), st.integers(0, 9))
ROOT = st.sampled_from(["tank", "tank/a", "tank/a/b"])
LOOK = st.tuples(st.sampled_from([0, 1]), ROOT, st.booleans(), st.lists(CHANGE, max_size=6))
STEP = st.one_of(
    st.lists(CHANGE, min_size=1, max_size=4), LOOK, st.sampled_from(["read", "restart", "broken", "sleep"])
)


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
        known.note(ChangedDatasets(datasets={"other/a": {f"@{number}"}, "tank/a": {f"@{number}"}}))
    assert (known._what["other/a"], known._what["tank/a"]) == (None, None)
    known.note(ChangedDatasets(datasets={"tank/c": {f"@{number}" for number in range(50)}}))
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
    monkeypatch.setattr("zvault.zfs.tree_listing.SINGLY_LISTED_DATASETS", 1)
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
