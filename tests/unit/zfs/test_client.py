"""The zfs command as typed calls: holds, resume tokens, and receives; what is made of its answers and complaints."""

from collections.abc import Sequence

import pytest

from tests.unit.zfs.zfs_tools import Answer, zfs
from zvault.core.errors import PoolReadOnly, PoolSuspended, ToolFailed, VaultFull
from zvault.core.model import Snapshot
from zvault.core.names import DatasetName
from zvault.core.replication.plan_model import TransferAction, TransferStep
from zvault.core.replication.stream_flags import SentFlags
from zvault.zfs.client import Zfs
from zvault.zfs.list_command import SNAPSHOTS_IN_ARGV
from zvault.zfs.lzc import Lzc
from zvault.zfs.remote import RemoteChanges
from zvault.zfs.stream_argv import SendFlags

DATED = "tank@zvault_1970-01-01T00:00:{:02}Z"
"""A snapshot that tells by its name when it was made."""


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
    client.lzc = RemoteChanges(client.host)  # type: ignore[arg-type]
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


async def test_nothing_is_asked_about_no_snapshot() -> None:
    client, tools = zfs(lambda _: (0, "", ""))
    assert await client.holds([]) == {}
    assert tools.asked == []


async def test_many_snapshots_do_not_overflow_a_command_line() -> None:
    names = [f"tank/{'x' * 200}@s{number}" for number in range(2 * SNAPSHOTS_IN_ARGV + 1)]
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
    assert await held(own, "").describe_content("cold/up") == ""
    assert await held(own, "cold/up@by-hand\n").describe_content("cold/up") == "it has snapshots"
    assert (
        await held(own, "", written="2000000").describe_content("cold/up")
        == "2000000 bytes were written to it"
    )
    assert await held(own, "", origin="cold/x@s").describe_content("cold/up") == "it is a clone"
    for other in (
        "",
        own.replace("\tcold/up\n", "\tcold/other\n"),
        "cold\torg.zvault:placeholder\tcold/up\n",
    ):
        assert await held(other, "").describe_content("cold/up") == "it is none that zvault made"


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
    step = TransferStep(TransferAction.RESUME, Snapshot(DatasetName("tank/a"), "s", 1, 1, 1), token="1-abc")
    flags = SendFlags(large_blocks=True, compressed=True, embedded=True, raw=False, properties=True)
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


async def test_parents_of_many_datasets_are_asked_for_once() -> None:
    """A first copy of 60 datasets asked for each of the three names above each of them: 180 programs."""
    there = {"cold", "cold/host", "cold/host/tank"}
    client, tools = zfs(lambda argv: (0, "", "") if argv[-1] in there else (1, "", "dataset does not exist"))
    known = set[str]()
    for number in range(60):
        await client.make_parents(f"cold/host/tank/{number}", known)
    assert [argv[-1] for argv in tools.asked] == ["cold/host", "cold/host/tank"]
    assert known == {"cold/host", "cold/host/tank"}


@pytest.mark.parametrize(
    ("words", "kind"), [("out of space", VaultFull), ("pool is read-only", PoolReadOnly)]
)
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
