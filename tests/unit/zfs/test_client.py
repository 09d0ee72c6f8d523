"""The zfs command as typed calls: what is asked for, and what is made of its answers and complaints."""

import asyncio
from collections.abc import Callable, Container, Sequence
from typing import Any

import pytest

from zvault.core.address import Address
from zvault.core.errors import NotFound, PoolSuspended, ToolFailed, VaultFull
from zvault.core.model import Snapshot
from zvault.core.names import DatasetName
from zvault.core.replication.plan_model import Action, Step
from zvault.core.replication.stream_flags import SentFlags
from zvault.system.process.pipeline import Hear, Pipeline
from zvault.system.process.runner import Result
from zvault.zfs import list_command
from zvault.zfs.client import Zfs
from zvault.zfs.list_command import NAMES_IN_ARGV
from zvault.zfs.lzc import Lzc
from zvault.zfs.remote import Remote
from zvault.zfs.stream import Flags

Answer = tuple[int, str, str]

DATED = "tank@zvault_1970-01-01T00:00:{:02}Z"
"""A snapshot that tells by its name when it was made."""


class Tools:
    """A Runner that starts nothing: ``answer(argv)`` gives status, stdout, stderr; ``own`` are zvault's properties."""

    own = ""

    def __init__(self, answer: Callable[[list[str]], Answer]) -> None:
        self.answer = answer
        self.asked: list[list[str]] = []

    async def run(
        self,
        argv: Sequence[str],
        *,
        deadline: float = 60.0,
        stdin: bytes | None = None,
        check: bool = True,
    ) -> Result:
        if list(argv[:4]) == ["zfs", "get", "-Hp", "-r"]:
            return Result(tuple(argv), 0, self.own, "", 0.0)
        self.asked.append(list(argv))
        code, out, err = self.answer(list(argv))
        result = Result(tuple(argv), code, out, err, 0.0)
        if check and code:
            raise ToolFailed("failed", result.complaint())
        return result

    async def pipeline(
        self, stages: Sequence[Sequence[str]], hear: Hear | None = None, *, nobody: Container[str] = ()
    ) -> Pipeline:
        raise AssertionError("no stream was asked for")


def zfs(answer: Callable[[list[str]], Answer]) -> tuple[Zfs, Tools]:
    tools = Tools(answer)
    return Zfs(tools), tools


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


async def test_holds_by_snapshot() -> None:
    said = "tank/my data@s1\tzvault:1f\tSat Nov 21 12:44 2026\ntank/my data@s1\tkeep\tSat Nov 21 12:44 2026\n"
    client, _ = zfs(lambda _: (0, said, ""))
    assert await client.holds(["tank/my data@s1"]) == {"tank/my data@s1": {"zvault:1f", "keep"}}


async def test_which_snapshots_a_tag_holds_on_this_host_and_on_another() -> None:
    class Helper(Lzc):
        async def tagged(self, names: Sequence[str], tag: str) -> list[str]:
            asked.append([*names, tag])
            return list(names[:1])

    asked: list[list[str]] = []
    said = "tank@1\tzvault:keep\tSat Nov 21 12:44 2026\ntank@2\tmine\tSat Nov 21 12:44 2026\n"
    client, tools = zfs(lambda _: (0, said, ""))
    client.lzc = Helper()
    assert await client.tagged(["tank@1", "tank@2"], "zvault:keep") == {"tank@1"}
    assert await client.tagged([], "zvault:keep") == set()
    assert (asked, tools.asked) == ([["tank@1", "tank@2", "zvault:keep"]], [])
    client.lzc = Remote(client.host)  # type: ignore[arg-type]
    assert await client.tagged(["tank@1", "tank@2"], "zvault:keep") == {"tank@1"}
    assert await client.tagged([], "zvault:keep") == set()
    assert tools.asked == [["zfs", "holds", "-H", "tank@1", "tank@2"]]


@pytest.mark.parametrize(
    "told",
    [
        "cannot open 'tank/a@nope': dataset does not exist\n",
        # It was opened, and went before it was asked.
        "cannot get holds for 'tank/a@nope': no such pool or dataset\nno datasets available\n",
    ],
)
async def test_holds_of_what_is_left_when_a_snapshot_went_in_between(told: str) -> None:
    said = "tank/a@s1\tzvault:1f\tSat Nov 21 12:44 2026\n"
    client, _ = zfs(lambda _: (1, said, told))
    assert await client.holds(["tank/a@nope", "tank/a@s1"]) == {"tank/a@s1": {"zvault:1f"}}


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


async def test_holds_are_asked_once_of_what_did_not_change_and_only_of_what_is_asked_for() -> None:
    def answer(argv: list[str]) -> Answer:
        if "snapshot,bookmark" in argv:
            return 0, "".join(f"{DATED.format(second)}\t{second}\t{second}\n" for second in (3, 4, 5)), ""
        if "holds" in argv:
            return 0, f"{DATED.format(4)}\tzvault:1f\tSat Nov 21\n", ""
        return 0, "tank\tfilesystem\t1\t0\t0\t-\toff\t-\t100\n", ""

    client, tools = zfs(answer)

    async def ask(start: int) -> dict[str, set[str]]:
        tank = (await client.tree("tank")).datasets["tank"]
        return await client.held([(tank, tank.snapshots[start:])])

    held = {DATED.format(4): {"zvault:1f"}}
    for _ in range(2):
        assert {name: tags for name, tags in (await ask(1)).items() if tags} == held
    assert set(await ask(0)) == {DATED.format(second) for second in (3, 4, 5)}
    client.forget("tank")
    await ask(2)
    asked = [[name[-3:-1] for name in argv[3:]] for argv in tools.asked if "holds" in argv]
    assert asked == [["04", "05"], ["03"], ["05"]]


async def test_two_who_look_at_the_same_time_list_the_snapshots_once() -> None:
    def answer(argv: list[str]) -> Answer:
        if "snapshot,bookmark" in argv:
            return 0, "tank@zvault_1970-01-01T00:01:40Z\t7\t3\n", ""
        return 0, "tank\tfilesystem\t1\t0\t0\t-\toff\t-\t100\n", ""

    client, tools = zfs(answer)
    run = tools.run

    async def slowly(argv: Sequence[str], **options: Any) -> Result:
        await asyncio.sleep(0.001)
        return await run(argv, **options)

    client.host.run = slowly  # type: ignore[method-assign]
    first, second = await asyncio.gather(client.tree("tank"), client.tree("tank"))
    assert first == second
    assert sum("snapshot,bookmark" in argv for argv in tools.asked) == 1
    assert len(tools.asked) == 3


async def test_nothing_is_asked_about_no_snapshot() -> None:
    client, tools = zfs(lambda _: (0, "", ""))
    assert await client.holds([]) == {}
    assert tools.asked == []


async def test_many_snapshots_do_not_overflow_a_command_line() -> None:
    names = [f"tank/{'x' * 200}@s{number}" for number in range(2 * NAMES_IN_ARGV + 1)]
    client, tools = zfs(lambda argv: (0, "".join(f"{name}\tt\tnow\n" for name in argv[3:]), ""))
    assert set(await client.holds(names)) == set(names)
    # One argument list may take 2 MiB with the environment (execve(2)).
    assert max(sum(len(word) + 9 for word in argv) for argv in tools.asked) < 1 << 20


TOKEN = (
    "1-cb09dd245-f0-789c636064000310a500c4ec50360710e72765a52697303030439460caa7a515a796806444e0f26c48f2499525a9c54"
    "0fa81b41856fd25f9e9a599290c0c5ee7bcd2769ffa2aae8124cf0996cf4bcc4d05d28979d9fa890ec58650774840f5c3dc9d9a9b949a92"
    "9f0d369f1b493c393fb7a028b5b818280507009c141d3d"
)
"""Made by OpenZFS 2.3.9: 0x161be0 bytes of tank/a@s1, in full, with -c and -e."""

SAYS = "resume token contents:\nnvlist version: 0\n\ttoguid = 0x666\n\ttoname = evil@s\n\trawok = 1\n"
"""A host's claims of it, which are not so."""


async def test_a_token_means_what_it_holds_and_not_what_is_said_of_it() -> None:
    client, _ = zfs(lambda _: (0, f"{SAYS}size\t4195944\n", ""))
    found = await client.interrupted(TOKEN)
    assert (found.token, found.to_guid, found.problem) == (TOKEN, 0x17F5CABB664ACE4A, "")
    assert (found.done, found.left, found.from_guid, found.pool) == (0x161BE0, 4195944, 0, "tank")
    assert found.flags == SentFlags(compressed=True, embedded=True)


async def test_a_token_whose_snapshot_is_gone() -> None:
    err = "cannot resume send: 'tank/my data@s5' used in the initial send no longer exists\n"
    client, _ = zfs(lambda _: (255, SAYS, err))
    found = await client.interrupted(TOKEN)
    assert found.problem == "'tank/my data@s5' used in the initial send no longer exists"


@pytest.mark.parametrize("token", ["1-abc", TOKEN[:-2], TOKEN.replace("1-c", "1-d", 1), "1-0-ffffffff-789c"])
async def test_a_token_that_is_none_is_asked_of_nobody(token: str) -> None:
    client, tools = zfs(lambda _: (0, SAYS, ""))
    found = await client.interrupted(token)
    assert found.problem.startswith("its resume token is corrupt: ")
    assert tools.asked == []


async def test_a_trouble_of_the_hosts_is_none_of_the_tokens() -> None:
    client, _ = zfs(lambda _: (1, SAYS, "internal error: out of memory\n"))
    found = await client.interrupted(TOKEN)
    assert (found.to_guid, found.problem) == (0x17F5CABB664ACE4A, "")
    broken, _ = zfs(lambda _: (1, "", "Permission denied the ZFS utilities must be run as root.\n"))
    with pytest.raises(ToolFailed, match="cannot tell whether an interrupted receive can be resumed"):
        await broken.interrupted(TOKEN)


def held(own: str, snapshots: str, **properties: str) -> Zfs:
    """A vault whose placeholder is so."""
    known = {"written": "0", "origin": "-", "type": "filesystem", **properties}

    def answer(argv: list[str]) -> Answer:
        if "local" in argv:
            return 0, own, ""
        if "snapshot" in argv:
            return 0, snapshots, ""
        return 0, "".join(f"{key}\t{value}\n" for key, value in known.items()), ""

    return zfs(answer)[0]


async def test_a_placeholder_is_looked_at_again_before_anything_goes_over_it() -> None:
    own = "cold/up\torg.zvault:placeholder\tcold/up\n"
    assert await held(own, "").filled("cold/up") == ""
    assert await held(own, "cold/up@by-hand\n").filled("cold/up") == "it has snapshots"
    assert await held(own, "", written="2000000").filled("cold/up") == "2000000 bytes were written to it"
    assert await held(own, "", origin="cold/x@s").filled("cold/up") == "it is a clone"
    for other in (
        "",
        own.replace("\tcold/up\n", "\tcold/other\n"),
        "cold\torg.zvault:placeholder\tcold/up\n",
    ):
        assert await held(other, "").filled("cold/up") == "it is none that zvault made"


@pytest.mark.parametrize(
    "words",
    [
        "'cold/a' does not have any resumable receive state to abort",
        "cannot open 'cold/a': dataset does not exist",
    ],
)
async def test_nothing_to_give_up_is_as_good_as_given_up(words: str) -> None:
    client, tools = zfs(lambda _: (1, "", f"{words}\n"))
    await client.abort_receive("cold/a")
    assert tools.asked == [["zfs", "receive", "-A", "cold/a"]]


async def test_an_interrupted_receive_that_cannot_be_given_up() -> None:
    client, _ = zfs(lambda _: (1, "", "cannot destroy 'cold/a/%recv': dataset is busy\n"))
    with pytest.raises(ToolFailed, match="cannot give up the interrupted receive of 'cold/a'"):
        await client.abort_receive("cold/a")


async def test_the_size_of_what_is_left_of_an_interrupted_stream() -> None:
    client, tools = zfs(lambda _: (0, "size\t4195944\n", ""))
    step = Step(Action.RESUME, Snapshot(DatasetName("tank/a"), "s", 1, 1, 1), token="1-abc")
    flags = Flags(large_blocks=True, compressed=True, embedded=True, raw=False, properties=True)
    assert await client.estimate(step, flags) == 4195944
    assert tools.asked == [["zfs", "send", "-nvP", "-t", "1-abc"]]


async def test_only_missing_parents_are_made_and_marked() -> None:
    there = {"cold", "cold/host"}

    def answer(argv: list[str]) -> Answer:
        if argv[1] == "list":
            return (0, "", "") if argv[-1] in there else (1, "", "dataset does not exist")
        there.add(argv[-1])
        return 0, "", ""

    client, tools = zfs(answer)
    await client.make_parents("cold/host/tank/my data/x")
    made = [argv for argv in tools.asked if argv[1] == "create"]
    assert [argv[-1] for argv in made] == ["cold/host/tank", "cold/host/tank/my data"]
    assert all(
        "canmount=off" in argv and f"org.zvault:placeholder={argv[-1]}" in argv and "-u" in argv
        for argv in made
    )


@pytest.mark.parametrize(("words", "kind"), [("out of space", VaultFull), ("pool is read-only", ToolFailed)])
async def test_parents_that_cannot_be_made(words: str, kind: type) -> None:
    def answer(argv: list[str]) -> Answer:
        return (
            1,
            "",
            f"cannot {argv[1]} 'cold/host': {words if argv[1] == 'create' else 'dataset does not exist'}\n",
        )

    client, _ = zfs(answer)
    with pytest.raises(kind, match="cannot make 'cold/host'") as failure:
        await client.make_parents("cold/host/tank")
    assert words in failure.value.why


async def test_parents_in_a_pool_that_is_suspended_meanwhile() -> None:
    absent, stuck = "dataset does not exist", "pool I/O is currently suspended"
    client, _ = zfs(lambda argv: (1, "", f"cannot do it: {absent if argv[1] == 'list' else stuck}\n"))
    with pytest.raises(PoolSuspended, match="'cold'"):
        await client.make_parents("cold/host/tank")


async def test_properties_may_hold_tabs() -> None:
    client, _ = zfs(lambda _: (0, "mountpoint\t/a\tb\nmounted\tno\n", ""))
    assert await client.get("tank/a", "mountpoint", "mounted") == {"mountpoint": "/a\tb", "mounted": "no"}


@pytest.mark.parametrize("ask", ["holds", "clones"])
async def test_holds_and_clones_that_cannot_be_told_are_not_taken_for_none(ask: str) -> None:
    def suspended(_: list[str]) -> Answer:
        return 1, "", "cannot open 'cold/a@1': pool I/O is currently suspended\n"

    with pytest.raises(ToolFailed, match="cannot be told"):
        await getattr(zfs(suspended)[0], ask)(["cold/a@1"])

    def gone(_: list[str]) -> Answer:
        return 1, "", "cannot open 'cold/a@1': dataset does not exist\n"

    assert await getattr(zfs(gone)[0], ask)(["cold/a@1"]) == {}


@pytest.mark.parametrize(
    "name", ["tank/b", "tank/ab@s", "cold/x", "tank/a/\x1b[2J", "", "tank/a/b@s@t", "-rf"]
)
async def test_a_listing_of_what_was_not_asked_for_is_not_believed(name: str) -> None:
    def lying(argv: list[str]) -> Answer:
        columns = argv[argv.index("-o") + 1].count(",")
        return (
            0,
            "".join(
                f"{one}{chr(9) + '-' if columns else ''}" + "\t-" * (columns - 1) + "\n"
                for one in ("tank/a", name)
            ),
            "",
        )

    with pytest.raises(ToolFailed, match="cannot be believed"):
        await zfs(lying)[0].tree("tank/a")


async def test_a_listing_that_is_no_listing_is_an_error_that_is_known() -> None:
    with pytest.raises(ToolFailed, match="cannot be understood"):
        await zfs(lambda _: (0, "tank/a\tx\n", ""))[0].tree("tank/a")


@pytest.mark.parametrize("said", ["x\n", "a\tb\tc\n", "tank@a\t-1\n"])
async def test_what_no_zfs_prints_is_told_as_that(said: str) -> None:
    client, _ = zfs(lambda _: (0, said, ""))
    with pytest.raises(ToolFailed, match=r"cannot be (understood|believed)"):
        await client.held_below("tank")
    with pytest.raises(ToolFailed, match="the properties of 'tank' cannot be understood"):
        await client.get("tank", "written")
    client, _ = zfs(lambda _: (0, f"written\t{said}", ""))
    with pytest.raises(ToolFailed, match="the property written of 'tank' cannot be understood"):
        await client.number("tank", "written")


async def test_a_listing_of_more_lines_than_fit_is_refused_before_any_is_looked_at(monkeypatch) -> None:
    monkeypatch.setattr(list_command, "MOST_LINES", 3)
    lines = ["tank\tfilesystem\t1\t0\t0\t-\toff\t-\t-\n"] * 3
    client, _ = zfs(lambda argv: (0, "" if "snapshot,bookmark" in argv else "".join(lines), ""))
    await client.tree("tank")
    lines.append("no line at all\n")
    with pytest.raises(ToolFailed, match="has 4 lines, and 3 are taken at most"):
        await client.tree("tank")


async def test_what_zvault_set_there_is_bounded_too(monkeypatch) -> None:
    monkeypatch.setattr(list_command, "MOST_LINES", 3)
    client, tools = zfs(
        lambda argv: (
            0,
            "" if "snapshot,bookmark" in argv else "tank\tfilesystem\t1\t0\t0\t-\toff\t-\t-\n",
            "",
        )
    )
    tools.own = "tank\torg.zvault:sent\tx\n" * 4
    with pytest.raises(ToolFailed, match="too long"):
        await client.tree("tank")


@pytest.mark.parametrize(("length", "taken"), [(255, True), (256, False)])
async def test_a_name_longer_than_zfs_allows_is_not_believed(length: int, taken: bool) -> None:
    name = "tank/" + "x" * (length - 5)
    rows = [f"{one}\tfilesystem\t1\t0\t0\t-\toff\t-\t-\n" for one in ("tank", name)]
    client, _ = zfs(lambda argv: (0, "" if "snapshot,bookmark" in argv else "".join(rows), ""))
    if taken:
        assert name in (await client.tree("tank")).datasets
    else:
        with pytest.raises(ToolFailed, match="cannot be believed"):
            await client.tree("tank")
