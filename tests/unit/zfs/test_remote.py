"""Changes on another host: the commands they are, and what is made of zfs's words (as seen in the lab)."""

import errno
from collections.abc import Sequence

import pytest

from zvault.core.address import Address
from zvault.core.errors import NotFound, Refused, ToolFailed, ToolMissing
from zvault.system.process.runner import ProcessResult
from zvault.zfs.changes import LzcFailure, NamesGone
from zvault.zfs.remote import RemoteChanges, parse_complaints

TAG = "zvault_2026-11-21T15:36:03Z"


class Peer:
    """A host that answers every call alike."""

    address = Address("peer", "root")

    def __init__(self, code: int = 0, out: str = "", err: str = "") -> None:
        self.code, self.out, self.err = code, out, err
        self.calls: list[list[list[str]]] = []

    async def run_all(self, commands: Sequence[Sequence[str]], *, deadline: float) -> ProcessResult:
        self.calls.append([list(command) for command in commands])
        return ProcessResult(tuple(commands[0]), self.code, self.out, self.err, 0.0)


def remote(code: int = 0, out: str = "", err: str = "") -> tuple[RemoteChanges, Peer]:
    peer = Peer(code, out, err)
    return RemoteChanges(peer), peer  # type: ignore[arg-type]


async def test_a_snapshot_of_many_is_one_command() -> None:
    changes, peer = remote()
    await changes.snapshot([f"tank@{TAG}", f"tank/my files@{TAG}"], {"org.zvault:run": "7"})
    assert peer.calls == [
        [["zfs", "snapshot", "-o", "org.zvault:run=7", f"tank@{TAG}", f"tank/my files@{TAG}"]]
    ]


async def test_more_than_one_command_can_take_is_refused_before_anything_is_done() -> None:
    changes, peer = remote()
    with pytest.raises(Refused, match="one moment"):
        await changes.snapshot([f"tank/{'x' * 200}{number}@s" for number in range(9000)], {})
    assert peer.calls == []


async def test_snapshots_are_destroyed_dataset_by_dataset_in_one_go() -> None:
    changes, peer = remote()
    await changes.destroy(["tank@a", "tank/b c@x", "tank@b", "tank/b c@y"])
    assert peer.calls == [[["zfs", "destroy", "tank@a,b"], ["zfs", "destroy", "tank/b c@x,y"]]]


async def test_holds_bookmarks_and_their_end() -> None:
    changes, peer = remote()
    await changes.hold(["tank@a", "tank/b@a"], "zvault:1f")
    await changes.release(["tank@a"], "zvault:1f")
    await changes.bookmark({"tank#m": "tank@a", "tank/b#m": "tank/b@a"})
    await changes.destroy_bookmarks(["tank#m", "tank/b#m"])
    assert peer.calls == [
        [["zfs", "hold", "zvault:1f", "tank@a", "tank/b@a"]],
        [["zfs", "release", "zvault:1f", "tank@a"]],
        [["zfs", "bookmark", "tank@a", "tank#m"], ["zfs", "bookmark", "tank/b@a", "tank/b#m"]],
        [["zfs", "destroy", "tank#m"], ["zfs", "destroy", "tank/b#m"]],
    ]


async def test_sizes() -> None:
    changes, peer = remote(out="incremental\ttank/a@1\ttank/a@3\t3159984\nsize\t3159984\n")
    assert await changes.send_space("tank/a@3", "tank/a@1", ["large_blocks", "compress"]) == 3159984
    assert peer.calls == [[["zfs", "send", "-nP", "-L", "-c", "-i", "tank/a@1", "tank/a@3"]]]
    changes, peer = remote(out="destroy\ttank/a@1\nreclaim\t10\ndestroy\ttank/b@3\nreclaim\t4096\n")
    assert await changes.range_space([("tank/a@1", "tank/a@1"), ("tank/b@2", "tank/b@3")]) == [10, 4096]
    assert peer.calls == [
        [["zfs", "destroy", "-nvp", "tank/a@1%1"], ["zfs", "destroy", "-nvp", "tank/b@2%3"]]
    ]
    with pytest.raises(ToolFailed):
        await remote(out="destroy\ttank/a@1\n")[0].range_space([("tank/a@1", "tank/a@1")])
    assert await remote()[0].range_space([]) == []


async def test_what_is_done_already_is_no_error() -> None:
    await remote(1, err="cannot hold snapshot 'tank/a@1': tag already exists on this dataset\n")[0].hold(
        ["tank/a@1"], "t"
    )
    gone = (
        "cannot release hold from snapshot 'tank/a@2': no such tag on this dataset\n"
        "cannot open 'tank/nix': dataset does not exist\n"
    )
    await remote(1, err=gone)[0].release(["tank/a@2", "tank/nix@1"], "t")
    await remote(1, err="cannot create bookmark 'tank/a#m': bookmark exists\n")[0].bookmark(
        {"tank/a#m": "tank/a@1"}
    )
    await remote(1, err="bookmark 'tank/a#m' does not exist.\n")[0].destroy_bookmarks(["tank/a#m"])
    await remote(1, err="could not find any snapshots to destroy; check snapshot names.\n")[0].destroy(
        ["t@x"]
    )


async def test_holding_what_is_gone_is_an_error_though_the_rest_is_held() -> None:
    said = (
        "cannot hold snapshot 'tank/a@1': tag already exists on this dataset\n"
        "cannot hold snapshot 'tank/a@nix': dataset does not exist\n"
    )
    with pytest.raises(NotFound) as caught:
        await remote(1, err=said)[0].hold(["tank/a@1", "tank/a@nix"], "t")
    assert caught.value.why == "tank/a@nix: dataset does not exist"


async def test_a_dataset_that_is_gone_is_named_so_that_the_others_can_be_had_without_it() -> None:
    # zfs names the first one by its dataset, and adds how it is used.
    said = "cannot open 'tank/my files': dataset does not exist\nusage:\n\tsnapshot [-r] <filesystem>@<snap> ...\n"
    changes, _ = remote(2, err=said)
    with pytest.raises(NamesGone) as failure:
        await changes.snapshot([f"tank@{TAG}", f"tank/my files@{TAG}"], {})
    assert failure.value.among([f"tank@{TAG}", f"tank/my files@{TAG}"]) == {f"tank/my files@{TAG}"}


async def test_a_snapshot_name_that_is_taken_is_told_as_libzfs_core_tells_it() -> None:
    said = (
        f"cannot create snapshot 'tank@{TAG}': dataset already exists\n"
        f"cannot create snapshot 'tank/b c@{TAG}': dataset already exists\nno snapshots were created\n"
    )
    with pytest.raises(LzcFailure) as caught:
        await remote(1, err=said)[0].snapshot([f"tank@{TAG}", f"tank/b c@{TAG}"], {})
    assert caught.value.errors == [
        (f"tank@{TAG}", "SnapshotExists", errno.EEXIST),
        (f"tank/b c@{TAG}", "SnapshotExists", errno.EEXIST),
    ]
    assert "ssh://root@peer" in caught.value.what


@pytest.mark.parametrize(
    ("line", "name", "kind", "code"),
    [
        (
            f"cannot destroy snapshot tank/b c@{TAG}: it's being held. Run 'zfs holds -r tank/b c@{TAG}' to see",
            f"tank/b c@{TAG}",
            "SnapshotIsHeld",
            errno.EBUSY,
        ),
        (
            f"cannot destroy snapshot tank@{TAG}: dataset is busy",
            f"tank@{TAG}",
            "SnapshotIsHeld",
            errno.EBUSY,
        ),
        (
            "cannot destroy 'tank/a@2': snapshot has dependent clones",
            "tank/a@2",
            "SnapshotIsCloned",
            errno.EEXIST,
        ),
        ("cannot hold: permission denied", "", "PermissionError", errno.EPERM),
        ("cannot create snapshots : permission denied", "", "PermissionError", errno.EPERM),
        ("cannot create bookmark 'tank/a#x': permission denied", "tank/a#x", "PermissionError", errno.EPERM),
        ("cannot create snapshot 'tank@x': out of space", "tank@x", "NoSpace", errno.ENOSPC),
        ("cannot do it: the moon is full", "", "", 0),
    ],
)
def test_names_and_kinds_are_read_from_complaints(line: str, name: str, kind: str, code: int) -> None:
    noise = "use '-R' to destroy the following datasets:\ntank/cl\nusage:\n"
    (found,) = parse_complaints(f"{line}\n{noise}")
    assert (found.name, found.kind, found.errno) == (name, kind, code)
    assert found.message


async def test_what_is_not_allowed_is_told_with_the_way_to_allow_it() -> None:
    with pytest.raises(LzcFailure) as caught:
        await remote(1, err="cannot create snapshots : permission denied\n")[0].snapshot(["tank@x"], {})
    assert "permission denied" in caught.value.why
    assert "zfs allow" in caught.value.next


async def test_what_is_not_recognised_is_told_as_it_was_said() -> None:
    with pytest.raises(LzcFailure, match="internal error: out of cheese"):
        await remote(1, err="internal error: out of cheese\n")[0].destroy(["tank@x"])


def test_each_dataset_that_refuses_a_snapshot_is_named() -> None:
    """As OpenZFS 2.3.9 says it, seen in the lab; what is wrong with the pool names nobody."""
    said = (
        "cannot create snapshot 'tank/half@x': dataset is busy\n"
        "cannot create snapshot 'tank/vm@x': out of space\n"
        "no snapshots were created\n"
    )
    found = [(one.name, one.errno) for one in parse_complaints(said)]
    assert found == [("tank/half@x", errno.EBUSY), ("tank/vm@x", errno.ENOSPC)]
    (full,) = parse_complaints("cannot create snapshots : out of space\nno snapshots were created\n")
    assert (full.name, full.errno) == ("", errno.ENOSPC)
    (read_only,) = parse_complaints("cannot create snapshots : pool is read-only\n")
    assert (read_only.name, read_only.errno) == ("", errno.EROFS)
    (unknown,) = parse_complaints("cannot create snapshots : nobody knows why\n")
    assert (unknown.name, unknown.errno, unknown.message) == (
        "",
        0,
        "cannot create snapshots : nobody knows why",
    )


# The names behind a dataset that cannot be opened


class Asked(Peer):
    """A host whose Python answers; ``missing``: it has none."""

    def __init__(self, code: int = 0, out: str = "", err: str = "", *, missing: bool = False) -> None:
        super().__init__(code, out, err)
        self.missing = missing

    async def run(self, argv: Sequence[str], *, deadline: float, check: bool) -> ProcessResult:
        if self.missing:
            raise ToolMissing("python3 is not installed on ssh://root@peer")
        assert argv[:3] == ["python3", "-I", "-c"]
        compile(argv[3], "sent", "exec")
        assert argv[4:] == ["tank"]
        return ProcessResult(tuple(argv), self.code, self.out, self.err, 0.0)


async def tell_names(peer: Asked) -> tuple[list[str], dict[str, str]]:
    return await RemoteChanges(peer).list_names("tank")  # type: ignore[arg-type]


async def test_the_python_there_asks_its_kernel_for_names() -> None:
    told = await tell_names(Asked(out="tank\t0\ntank/my files\t0\ntank/z\t0\ntank/bad\t5\n"))
    assert told == (["tank", "tank/my files", "tank/z"], {"tank/bad": "Input/output error"})


@pytest.mark.parametrize(
    ("peer", "why"),
    [
        (Asked(missing=True), "it has no python3"),
        (Asked(1, err="PermissionError: [Errno 13] Permission denied: '/dev/zfs'"), "Permission denied"),
        (Asked(1, err="Traceback\nSyntaxError: invalid syntax"), "SyntaxError"),
    ],
)
async def test_where_it_cannot_be_asked_it_is_told_what_to_do(peer: Asked, why: str) -> None:
    with pytest.raises(ToolFailed, match=why) as failure:
        await tell_names(peer)
    assert "what comes behind it is not known" in failure.value.what
    assert "install python3 and let its user run it and open /dev/zfs" in failure.value.next


@pytest.mark.parametrize(
    "made_up",
    [
        "",
        "tank/a\t0\n",
        "tank\t0\ndozer/x\t0\n",
        "tank\t0\ntank/a\n",
        "tank\t0\ntank/a\t99999\n",
        "tank\t0\n-o\t0\n",
        "x",
    ],
)
async def test_what_is_made_up_is_not_believed(made_up: str) -> None:
    with pytest.raises(ToolFailed, match="cannot be understood"):
        await tell_names(Asked(out=made_up))
