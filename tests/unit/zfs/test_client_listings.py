"""Listings by the zfs command: what is asked, what is asked once, and what is missing, broken or moved meanwhile."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.unit.zfs.zfs_tools import Answer, zfs
from zvault.core.address import Address
from zvault.core.errors import NotFound, PoolSuspended, ToolFailed
from zvault.core.model import Snapshot
from zvault.core.names import DatasetName
from zvault.system.process.runner import ProcessResult
from zvault.zfs.client import Zfs
from zvault.zfs.whole_listing import PartialListing


@pytest.mark.parametrize(("address", "listings"), [(None, 3), (Address("filer1"), 4)])
async def test_only_stamps_by_this_hosts_clock_prove_that_nothing_changed(
    address: Address | None, listings: int
) -> None:
    def answer(argv: list[str]) -> Answer:
        if "snapshot,bookmark" in argv:
            return 0, "tank@zvault_1970-01-01T00:01:40Z\t7\t3\n", ""
        return 0, "tank\tfilesystem\t1\t0\t0\t-\toff\t-\t1000\n", ""

    client, tools = zfs(answer)
    client.host.address = address  # type: ignore[misc]
    first, second = await client.tree("tank"), await client.tree("tank")
    assert first == second
    assert len(tools.asked) == listings


async def test_a_tree_is_two_listings() -> None:
    def answer(argv: list[str]) -> Answer:
        if "snapshot,bookmark" in argv:
            return 0, "tank/a b@zvault_1970-01-01T00:01:40Z\t7\t3\n", ""
        return (
            0,
            "tank\tfilesystem\t1\t0\t0\t-\toff\t-\t-\ntank/a b\tfilesystem\t2\t0\t0\t-\toff\t-\t-\n",
            "",
        )

    client, tools = zfs(answer)
    found = await client.tree("tank")
    assert found.datasets["tank/a b"].snapshots == (
        Snapshot(DatasetName("tank/a b"), "zvault_1970-01-01T00:01:40Z", 7, 3, 100),
    )
    assert len(tools.asked) == 2
    assert all(argv[:4] == ["zfs", "list", "-Hp", "-r"] and argv[-1] == "tank" for argv in tools.asked)


async def test_a_change_of_the_root_alone_leaves_what_is_below_it_as_it_was() -> None:
    changed = {"tank": 100, "tank/a": 100}

    def answer(argv: list[str]) -> Answer:
        if "snapshot,bookmark" not in argv:
            return (
                0,
                "".join(f"{d}\tfilesystem\t1\t0\t0\t-\toff\t-\t{at}\n" for d, at in changed.items()),
                "",
            )
        roots = changed if "-r" in argv else argv[argv.index("-o") + 2 :]
        return 0, "".join(f"{root}@s_1970-01-01T00:0{changed[root] // 100}:00Z\t7\t3\n" for root in roots), ""

    client, tools = zfs(answer)
    await client.tree("tank")
    changed["tank"] = 200
    for _ in range(2):
        found = await client.tree("tank")
        assert {d.name: [s.creation for s in d.snapshots] for d in found} == {"tank": [120], "tank/a": [60]}
    assert [argv[3] for argv in tools.asked if "snapshot,bookmark" in argv] == ["-r", "-d1"]


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("cannot open 'tank/a': dataset does not exist\n", NotFound),
        ("cannot open 'tank/a': no such pool 'tank'\n", NotFound),
        ("cannot open 'tank/\xe4': invalid dataset name\n", NotFound),
        ("cannot iterate filesystems: I/O error\n", ToolFailed),
    ],
)
async def test_a_listing_that_fails_says_whether_it_is_missing_or_broken(words: str, kind: type) -> None:
    client, _ = zfs(lambda _: (1, "", words))
    with pytest.raises(kind) as failure:
        await client.tree("tank/a")
    assert words.strip() in str(failure.value)


@pytest.mark.parametrize("types", ["filesystem,volume", "snapshot,bookmark"])
async def test_a_listing_that_zfs_cuts_short_is_none_though_it_ends_with_0(types: str) -> None:
    """It leaves out what comes after what it cannot open, and ends with 0: no part of it may be taken for all."""

    def answer(argv: list[str]) -> Answer:
        if "filesystem,volume" in argv:
            lines = "tank\tfilesystem\t1\t1\t1\t-\t-\t-\t-\n"
        else:
            lines = "tank@s_1970-01-01T00:01:00Z\t7\t3\n"
        return 0, lines, "cannot iterate filesystems: I/O error\n" if types in argv else ""

    client, _ = zfs(answer)
    with pytest.raises(
        ToolFailed, match="'tank' cannot be listed whole: cannot iterate filesystems: I/O error"
    ):
        await client.tree("tank")
    with pytest.raises(ToolFailed, match="cannot be listed whole"):
        await client.tree_or_none("tank")


async def test_names_that_zfs_cuts_short_are_none() -> None:
    client, _ = zfs(lambda _: (0, "tank\n", "cannot iterate filesystems: Invalid exchange\n"))
    with pytest.raises(ToolFailed, match="cannot be listed whole"):
        await client.names("tank")


async def test_what_is_not_there_is_an_empty_tree_only_where_that_is_meant() -> None:
    client, _ = zfs(lambda _: (1, "", "cannot open 'cold/a': dataset does not exist\n"))
    assert len(await client.tree_or_none("cold/a")) == 0
    broken, _ = zfs(lambda _: (1, "", "cannot iterate filesystems: I/O error\n"))
    with pytest.raises(ToolFailed):
        await broken.tree_or_none("cold/a")
    stuck, _ = zfs(lambda _: (1, "", "cannot open 'cold/a': pool I/O is currently suspended\n"))
    with pytest.raises(PoolSuspended, match="'cold'"):
        await stuck.tree_or_none("cold/a")


async def test_a_tree_of_which_a_part_goes_while_it_is_listed_is_not_taken_for_an_empty_one() -> None:
    lists = 0

    def answer(argv: list[str]) -> Answer:
        nonlocal lists
        if "-r" not in argv:
            return 0, "cold/a\n", ""
        lists += 1
        return 1, "", "cannot open 'cold/a/b': dataset does not exist\n"

    client, _ = zfs(answer)
    with pytest.raises(NotFound, match="cold/a"):
        await client.tree_or_none("cold/a")
    assert lists == 2


class Busy:
    """Three datasets; between the two listings of each look somebody does the next of these."""

    def __init__(self, *moves: Callable[[dict[str, int]], object]) -> None:
        self.there = {"tank": 1, "tank/a": 2, "tank/b": 3}
        self.moves = list(moves)
        self.changed = 5

    def __call__(self, argv: list[str]) -> Answer:
        if "get" in argv:
            return 0, "", ""
        if "filesystem,volume" in argv and "-d0" not in argv:
            rows = "".join(
                f"{name}\tfilesystem\t{guid}\t0\t0\t-\toff\t-\t{self.changed}\n"
                for name, guid in self.there.items()
            )
            if self.moves:
                self.moves.pop(0)(self.there)
            return 0, rows, ""
        asked = argv[argv.index("-o") + 2 :]
        gone = "".join(
            f"cannot open '{one}': dataset does not exist\n" for one in asked if one not in self.there
        )
        names = self.there if "-r" in argv else [one for one in asked if one in self.there]
        if "-d0" in argv:
            return int(bool(gone)), "".join(f"{name}\n" for name in names), gone
        rows = "".join(
            f"{name}@zvault_1970-01-01T00:00:01Z\t{100 + self.there[name]}\t1\n"
            for name in names
            if name != "tank"
        )
        return int(bool(gone)), rows, gone


def destroyed(there: dict[str, int]) -> None:
    there.pop("tank/b", None)


def renamed(there: dict[str, int]) -> None:
    old, new = ("tank/b", "tank/c") if "tank/b" in there else ("tank/c", "tank/b")
    there[new] = there.pop(old)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("moves", "names"),
    [
        ([destroyed], {"tank/a": 2}),
        ([renamed], {"tank/a": 2, "tank/c": 3}),
        ([renamed, renamed], {"tank/a": 2, "tank/b": 3}),
        ([renamed] * 3, {"tank/a": 2}),
    ],
)
async def test_a_dataset_is_never_seen_without_its_snapshots_because_it_moved(
    moves: list[Callable[[dict[str, int]], object]], names: dict[str, int], known: bool
) -> None:
    busy = Busy()
    client, _ = zfs(busy)
    if known:
        await client.tree("tank")
        busy.changed = 9
    busy.moves = list(moves)
    seen = await client.tree("tank")
    assert {
        name: one.snapshots[0].guid - 100 for name, one in seen.datasets.items() if name != "tank"
    } == names


@pytest.mark.parametrize(
    ("words", "kind"),
    [("pool I/O is currently suspended", PoolSuspended), ("permission denied", ToolFailed)],
)
async def test_what_cannot_be_known_is_not_taken_for_absent(words: str, kind: type) -> None:
    client, _ = zfs(lambda _: (1, "", f"cannot open 'cold/a': {words}\n"))
    with pytest.raises(kind):
        await client.exists("cold/a")
    absent, _ = zfs(lambda _: (1, "", "cannot open 'cold/a': dataset does not exist\n"))
    assert not await absent.exists("cold/a")


async def test_when_was_made_what_has_no_time_in_its_name_is_asked_by_name() -> None:
    lines = {
        "tank@zvault_1970-01-01T00:01:40Z": "100",
        "tank@by-hand": "150",
        "tank#zvault_1f_7": "100",
        "tank#old": "50",
        "tank@just-gone": None,
    }

    def answer(argv: list[str]) -> Answer:
        if "name,creation" in argv:
            names = argv[argv.index("name,creation") + 1 :]
            assert names == ["tank@by-hand", "tank@just-gone", "tank#old"]
            told = "".join(f"{name}\t{lines[name]}\n" for name in names if lines[name])
            return 1, told, "cannot open 'tank@just-gone': dataset does not exist\n"
        if "snapshot,bookmark" in argv:
            guids = (7, 8, 7, 6, 9)
            return (
                0,
                "".join(f"{name}\t{guid}\t{guid}\n" for name, guid in zip(lines, guids, strict=True)),
                "",
            )
        return 0, "tank\tfilesystem\t1\t0\t0\t-\toff\t-\t-\n", ""

    client, tools = zfs(answer)
    tank = (await client.tree("tank")).datasets["tank"]
    assert {point.name: point.creation for point in (*tank.snapshots, *tank.bookmarks)} == {
        name: int(when) for name, when in lines.items() if when
    }
    assert len(tools.asked) == 3


async def test_a_listing_that_cannot_be_completed_fails() -> None:
    """It must not pass for one of a dataset that has fewer snapshots."""

    def answer(argv: list[str]) -> Answer:
        if "name,creation" in argv:
            return 1, "", "cannot open 'tank@by-hand': pool I/O is currently suspended\n"
        if "snapshot,bookmark" in argv:
            return 0, "tank@by-hand\t7\t3\n", ""
        return 0, "tank\tfilesystem\t1\t0\t0\t-\toff\t-\t-\n", ""

    client, _ = zfs(answer)
    with pytest.raises(PoolSuspended):
        await client.tree("tank")


async def test_two_who_look_at_the_same_time_list_the_snapshots_once() -> None:
    def answer(argv: list[str]) -> Answer:
        if "snapshot,bookmark" in argv:
            return 0, "tank@zvault_1970-01-01T00:01:40Z\t7\t3\n", ""
        return 0, "tank\tfilesystem\t1\t0\t0\t-\toff\t-\t100\n", ""

    client, tools = zfs(answer)
    run = tools.run

    async def slowly(argv: Sequence[str], **options: Any) -> ProcessResult:
        await asyncio.sleep(0.001)
        return await run(argv, **options)

    client.host.run = slowly  # type: ignore[method-assign]
    first, second = await asyncio.gather(client.tree("tank"), client.tree("tank"))
    assert first == second
    assert sum("snapshot,bookmark" in argv for argv in tools.asked) == 1
    assert len(tools.asked) == 3


def around_damage(answer: Callable[[list[str]], Answer], **unlisted: str) -> Zfs:
    """A client whose kernel tells more names than zfs list."""
    client, _ = zfs(answer)

    async def list_names(root: str) -> tuple[list[str], dict[str, str]]:
        return [root, "tank/a", "tank/z"], {f"tank/{name}": said for name, said in unlisted.items()}

    client._trees._list_names = list_names
    return client


def cut_short(argv: list[str]) -> Answer:
    """What zfs says of a pool of which tank/bad cannot be opened, and tank/z comes behind it."""
    roots = [word for word in argv if word.startswith("tank")]
    if argv[1] == "get":
        return 0, "".join(f"{name}\torg.zvault:sent\tthat\n" for name in roots), ""
    asked = ["tank", "tank/a"] if "-r" in argv else roots
    said = "cannot iterate filesystems: I/O error\n" if "-r" in argv else ""
    if "filesystem,volume" in argv:
        return 0, "".join(f"{name}\tfilesystem\t{len(name)}\t1\t1\t-\t-\t-\t-\n" for name in asked), said
    return 0, "".join(f"{name}@s_1970-01-01T00:01:00Z\t{len(name)}7\t3\n" for name in asked), said


async def test_what_zfs_leaves_out_is_listed_by_its_name_and_only_what_cannot_be_is_unlisted() -> None:
    client = around_damage(cut_short, bad="Input/output error")
    with pytest.raises(PartialListing) as failure:
        await client.tree("tank")
    tree = await client.tree_around_damage("tank", failure.value)
    assert list(tree.datasets) == ["tank", "tank/a", "tank/z"]
    assert all(len(one.snapshots) == 1 and one.sent == "that" for one in tree)
    assert tree.unlisted == {"tank/bad": "Input/output error"}
    with pytest.raises(PartialListing):
        await client.tree("tank", sizes=False)  # nothing of it is remembered as the whole


async def test_where_nobody_tells_what_was_left_out_the_listing_fails_as_before() -> None:
    remote, _ = zfs(cut_short)
    remote._trees._list_names = None
    why = PartialListing("'tank' cannot be listed whole")
    with pytest.raises(PartialListing) as failure:
        await remote.tree_around_damage("tank", why)
    assert failure.value is why


async def test_where_all_can_be_opened_after_all_the_tree_is_whole() -> None:
    tree = await around_damage(cut_short).tree_around_damage("tank", PartialListing("a moment ago"))
    assert list(tree.datasets) == ["tank", "tank/a", "tank/z"]
    assert tree.unlisted == {}


async def test_what_goes_while_it_is_listed_by_name_has_it_listed_again() -> None:
    listings = 0

    def answer(argv: list[str]) -> Answer:
        nonlocal listings
        if "filesystem,volume" in argv and "-d0" in argv and argv[1] == "list":
            listings += 1
            if listings == 1:
                whole = cut_short([word for word in argv if word != "tank/z"])
                return 1, whole[1], "cannot open 'tank/z': dataset does not exist\n"
        return cut_short(argv)

    client = around_damage(answer, bad="Input/output error")
    tree = await client.tree_around_damage("tank", PartialListing("cut short"))
    assert (listings, list(tree.datasets)) == (2, ["tank", "tank/a", "tank/z"])


async def test_a_dataset_of_an_unknown_type_is_unknown_alone() -> None:
    def answer(argv: list[str]) -> Answer:
        if argv[1] == "get":
            return 0, "", ""
        if "filesystem,volume" in argv:
            kinds = {"tank": "filesystem", "tank/a": "bucket", "tank/a/b": "filesystem", "tank/c": "volume"}
            lines = [f"{name}\t{kind}\t{len(name)}\t1\t1\t-\t-\t-\t-\n" for name, kind in kinds.items()]
            return 0, "".join(lines), ""
        return 0, "tank@s_1970-01-01T00:01:00Z\t7\t3\n", ""

    client, _ = zfs(answer)
    with pytest.raises(PartialListing, match="of type 'bucket'") as failure:
        await client.tree("tank")
    tree = await client.tree_around_damage("tank", failure.value)
    assert list(tree.datasets) == ["tank", "tank/c"]
    assert tree.unlisted == {"tank/a": "it is of type 'bucket', which zvault does not know"}


@pytest.mark.parametrize("said", ["I/O error", "checksum mismatch", "invalid exchange"])
async def test_below_a_root_that_cannot_be_opened_all_is_listed_by_its_name(said: str) -> None:
    def answer(argv: list[str]) -> Answer:
        if "tank" in argv:
            return 1, "", f"cannot open 'tank': {said}\n"
        return cut_short(argv)

    client, _ = zfs(answer)

    async def list_names(root: str) -> tuple[list[str], dict[str, str]]:
        return ["tank/a", "tank/z"], {root: said, "tank/bad": said}

    client._trees._list_names = list_names
    with pytest.raises(PartialListing) as failure:
        await client.tree("tank")
    tree = await client.tree_around_damage("tank", failure.value)
    assert list(tree.datasets) == ["tank/a", "tank/z"]
    assert all(len(one.snapshots) == 1 and one.sent == "that" for one in tree)
    assert tree.unlisted == {"tank": said, "tank/bad": said}


async def test_where_nothing_below_it_can_be_listed_it_is_told_what_can_be_done() -> None:
    client, _ = zfs(lambda _: (1, "", "cannot open 'tank': I/O error\n"))

    async def list_names(root: str) -> tuple[list[str], dict[str, str]]:
        return [], {root: "I/O error"}

    client._trees._list_names = list_names
    with pytest.raises(PartialListing) as failure:
        await client.tree("tank")
    with pytest.raises(PartialListing, match="which cannot be opened itself") as again:
        await client.tree_around_damage("tank", failure.value)
    assert again.value is failure.value


@pytest.mark.parametrize("said", ["I/O error", "checksum mismatch", "invalid exchange"])
async def test_of_a_root_that_cannot_be_opened_it_is_told_what_can_be_done(said: str) -> None:
    client, _ = zfs(lambda _: (1, "", f"cannot open 'tank/x': {said}\n"))
    with pytest.raises(ToolFailed, match="which cannot be opened itself") as failure:
        await client.tree("tank/x")
    assert 'source = "tank/x/…"' in failure.value.next
    assert "zpool status tank" in failure.value.next
