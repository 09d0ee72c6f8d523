"""What zfs prints, on this host and on others: a listing is understood, or told as one that cannot be."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

from hypothesis import strategies as st

from tests.unit.fuzz.mutation import mutated, seed
from tests.unit.fuzz.target import MIB, target
from tests.unit.zfs.zfs_tools import zfs
from zvault.core.errors import ZvaultError
from zvault.core.names import DatasetName
from zvault.core.replication.plan_model import InterruptedReceive
from zvault.ops.retention.holds import list_base_protections
from zvault.system.process.runner import ProcessResult
from zvault.zfs import parse_listing, properties, record_sizes, rename_clone_rollback
from zvault.zfs.client import Zfs
from zvault.zfs.remote import RemoteChanges, parse_complaints

FAMILY = "zfs_output"
PAIRS = b"\0\0"
"""Between the two answers of an input that has two."""


def outputs(*names: str) -> st.SearchStrategy[bytes]:
    return mutated([seed(FAMILY, name) for name in names])


def text(data: bytes) -> str:
    """As a program's output is read."""
    return data.decode(errors="replace")


def asked(
    data: bytes, call: Callable[[Zfs], Coroutine[Any, Any, object]], *, status: int = 0, err: str = ""
) -> Any:
    """What a client makes of an answer that is the same whatever is asked."""
    client, _ = zfs(lambda _: (status, text(data), err))
    return asyncio.run(call(client))


two = st.tuples(
    outputs("datasets", "datasets-resumable"), outputs("points"), outputs("own"), outputs("created")
).map(PAIRS.join)


@target(two, ZvaultError, cap=8 * MIB)
def test_listings(data: bytes) -> None:
    """A whole listing: datasets, snapshots and bookmarks, zvault's own properties, and the dates asked for."""
    datasets, points, own, created = map(text, [*data.split(PAIRS), b"", b"", b""][:4])

    def answer(argv: list[str]) -> tuple[int, str, str]:
        if "name,creation" in argv:
            return 0, created, ""
        return 0, points if "snapshot,bookmark" in argv else datasets, ""

    client, tools = zfs(answer)
    tools.own = own
    root = datasets.partition("\t")[0]
    tree = asyncio.run(client.tree(root if root.isprintable() and root else "tank"))
    for dataset in tree:
        assert dataset.name == root or dataset.name.startswith(f"{root}/")
        assert all(snap.dataset == dataset.name for snap in dataset.snapshots)
    list_base_protections(tree, {})


@target(outputs("holds"), ZvaultError, cap=4 * MIB)
def test_holds(data: bytes) -> None:
    """Who holds what."""
    for tags in asked(data, lambda client: client.holds(["tank/home@by-hand"])).values():
        assert tags


@target(outputs("userrefs"), ZvaultError, cap=4 * MIB)
def test_counts_of_holds(data: bytes) -> None:
    """How many hold each snapshot."""
    asked(data, lambda client: client.held_below("tank"))


@target(outputs("clones"), ZvaultError, cap=4 * MIB)
def test_clones(data: bytes) -> None:
    """The clones of snapshots."""
    asked(data, lambda client: client.clones(["tank/home@by-hand"]))


@target(outputs("get"), ZvaultError, cap=4 * MIB)
def test_properties(data: bytes) -> None:
    """Single properties of a dataset, and what is made of them."""
    asked(data, lambda client: client.get("tank/home", "written", "origin", "type"))
    asked(data, lambda client: client.describe_content("tank/home"))


@target(outputs("send-size", "send-resume"), ZvaultError, cap=4 * MIB)
def test_sizes_of_streams(data: bytes) -> None:
    """The estimate of a stream, and what is left of one."""
    size = parse_listing.parse_stream_size(text(data))
    assert size is None or 0 <= size < 1 << 63
    token = seed("resume_tokens", "full").decode()
    found = asked(data, lambda client: client.interrupted(token))
    assert isinstance(found, InterruptedReceive)


class _Host:
    """Another host, that answers all with the same."""

    address = "ssh://root@peer"

    def __init__(self, out: str, err: str, status: int) -> None:
        self.out, self.err, self.status = out, err, status

    async def run(self, argv: list[str], **_: Any) -> ProcessResult:
        return ProcessResult(tuple(argv), self.status, self.out, self.err, 0.0)

    async def run_all(self, commands: list[list[str]], **_: Any) -> ProcessResult:
        return await self.run(commands[0])


@target(outputs("reclaim", "send-size"), ZvaultError, cap=4 * MIB)
def test_sizes_from_another_host(data: bytes) -> None:
    """What destroying would free, and how large a stream would be."""
    remote = RemoteChanges(_Host(text(data), "", 0))  # type: ignore[arg-type]
    asyncio.run(remote.range_space([("tank/home@a", "tank/home@b")]))
    asyncio.run(remote.send_space("tank/home@a", None, []))


@target(
    outputs("complaint-gone", "complaint-held", "complaint-property", "complaint-tag"),
    ZvaultError,
    cap=4 * MIB,
)
def test_complaints(data: bytes) -> None:
    """What zfs complains of: of another host's each is a refusal that can be told."""
    said = text(data)
    parse_listing.find_unknown_property(said)
    parse_listing.list_missing(said)
    parse_listing.is_only_missing(said)
    for one in parse_complaints(said):
        assert one.message
    for call in ("hold", "release"):
        remote = RemoteChanges(_Host("", said, 1))  # type: ignore[arg-type]
        with contextlib.suppress(ZvaultError):
            asyncio.run(getattr(remote, call)(["tank/home@by-hand"], "t"))


@target(outputs("complaint-gone", "complaint-property"), ZvaultError, cap=4 * MIB)
def test_listings_that_fail(data: bytes) -> None:
    """A listing that ends with a complaint."""
    asked(seed(FAMILY, "datasets"), lambda client: client.tree("tank"), status=1, err=text(data))


@target(outputs("datasets"), ZvaultError, cap=4 * MIB)
def test_what_is_beside(data: bytes) -> None:
    """The names beside a dataset, and the one property asked before a rollback."""
    host: Any = _Host(text(data), "", 0)
    for name in asyncio.run(rename_clone_rollback.list_datasets_beside(host, DatasetName("tank/a"), "_")):
        assert name.startswith("tank/a_")
    asyncio.run(rename_clone_rollback.roll_dataset_back(host, "tank@a"))


BLOCKS = (
    b"tank\ttype\tvolume\ntank\tvolblocksize\t16384\ntank\trecordsize\t-\ntank\tcompressratio\t1.00\n"
    + (b"tank\tcompression\ton\ntank\tencryption\toff\n")
)


@target(mutated([BLOCKS, b"tank@a\t4096\ntank@b\t0\n"]), ZvaultError, cap=4 * MIB)
def test_blocks_and_what_was_written(data: bytes) -> None:
    """Sizes of blocks, and what was written between snapshots."""
    host: Any = _Host(text(data), "", 0)
    with contextlib.suppress(ZvaultError):
        asyncio.run(properties.read_written(host, "tank"))
    record_sizes.parse_block_sizes(text(data))


def test_the_seeds_themselves_are_read() -> None:
    """Otherwise changed ones would show nothing."""
    data = PAIRS.join(seed(FAMILY, name) for name in ("datasets", "points", "own", "created"))
    assert data.count(PAIRS) == 3
    holds = asked(seed(FAMILY, "holds"), lambda client: client.holds(["tank/home@by-hand"]))
    assert sum(map(len, holds.values())) == 2
    assert parse_listing.parse_stream_size(text(seed(FAMILY, "send-size")))
