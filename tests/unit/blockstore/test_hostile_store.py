"""The block store on an S3 that lies, over real HTTP: what was acknowledged is there, or somebody is told."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.object_store.hostile_s3 import HostileS3, lying
from tests.unit.object_store.memory_store import etag
from tests.unit.object_store.s3_server import BUCKET
from zvault.blockstore.attach import attach_store
from zvault.blockstore.engine import BlockEngine
from zvault.blockstore.format import BLOCK_SIZE, ObjectDamaged, parse_key_numbers
from zvault.blockstore.known_position import StoreWentBack
from zvault.blockstore.map.map_part import PART_BLOCKS
from zvault.blockstore.options import EngineOptions
from zvault.blockstore.recovery import WriterEpoch, create_store
from zvault.blockstore.writer_fence import WriterFenced
from zvault.core.errors import Busy
from zvault.object_store.interface import NO_OBJECT_YET, ObjectTooLarge, StoreError, StoreUnreachable

pytest.importorskip("boto3")

from zvault.object_store.s3 import S3Store
from zvault.object_store.s3_client import MAX_ANSWER
from zvault.object_store.s3_settings import S3Settings

FLUSHES = 8
MIB = 1 << 20


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HostileS3]:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "KEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
    with lying() as it:
        yield it


@pytest.fixture
def store(server: HostileS3) -> S3Store:
    it = S3Store(S3Settings(BUCKET, server.endpoint, region="us-east-1", read_seconds=5.0))
    create_store(it, "v", PART_BLOCKS * BLOCK_SIZE)
    return it


def opened(store: S3Store, folder: Path, owner: str = "test") -> BlockEngine:
    options = EngineOptions(folder / owner, uploads=0, linger=1e9, seen=folder / f"{owner}-seen")
    return attach_store(store, "v", options, owner)


def died(engine: BlockEngine) -> None:
    """The host is gone, with the journal in its memory."""
    engine.fail(StoreError("it is gone"))
    engine.abandon()
    for file in engine.options.journal.iterdir():
        file.unlink()


def write(engine: BlockEngine, block: int) -> None:
    engine.write(block * BLOCK_SIZE, bytes([block + 1]) * BLOCK_SIZE)
    engine.flush()


def flushed(store: S3Store, folder: Path) -> None:
    engine = opened(store, folder)
    for block in range(FLUSHES):
        write(engine, block)
    died(engine)


def all_there(engine: BlockEngine) -> bool:
    return all(
        engine.read(block * BLOCK_SIZE, BLOCK_SIZE) == bytes([block + 1]) * BLOCK_SIZE
        for block in range(FLUSHES)
    )


def segments(server: HostileS3) -> list[str]:
    return sorted(key for key in server.store.objects if key.startswith("v/segments/"))


def nothing_removed(server: HostileS3, call: Callable[[], object], *errors: type[Exception]) -> None:
    before = set(server.store.objects)
    with pytest.raises(errors):
        call()
    assert before <= set(server.store.objects)


@pytest.mark.parametrize("hidden", [{1}, {4}, {FLUSHES}, {3, 4, 5}, set(range(1, FLUSHES + 1))], ids=str)
def test_a_listing_that_leaves_segments_out(
    server: HostileS3, store: S3Store, tmp_path: Path, hidden: set[int]
) -> None:
    flushed(store, tmp_path)
    server.hidden = {key for key in segments(server) if parse_key_numbers(key)[0] in hidden}
    engine = opened(store, tmp_path)
    assert all_there(engine)
    engine.close()


@pytest.mark.parametrize("kind", ["checkpoints", "segments", "maps", ""])
def test_a_listing_that_leaves_all_of_a_kind_out(
    server: HostileS3, store: S3Store, tmp_path: Path, kind: str
) -> None:
    flushed(store, tmp_path)
    opened(store, tmp_path).close()
    server.hidden = {key for key in server.store.objects if key.startswith(f"v/{kind}")}
    if kind in ("segments", "maps"):
        engine = opened(store, tmp_path)
        assert all_there(engine)
        engine.close()
    else:
        nothing_removed(server, lambda: opened(store, tmp_path), ObjectDamaged)


@pytest.mark.parametrize("listing", ["backwards", "elsewhere", "round", "tokens"])
def test_a_listing_that_is_none(server: HostileS3, store: S3Store, tmp_path: Path, listing: str) -> None:
    flushed(store, tmp_path)
    server.listing = listing  # type: ignore[assignment]
    nothing_removed(server, lambda: opened(store, tmp_path), ObjectDamaged)


@pytest.mark.parametrize("lost", [1, 4, FLUSHES])
def test_a_put_that_was_answered_and_never_carried_out(
    server: HostileS3, store: S3Store, tmp_path: Path, lost: int
) -> None:
    server.dropped = {f"v/segments/{lost:010x}-00000001"}
    flushed(store, tmp_path)
    nothing_removed(server, lambda: opened(store, tmp_path), ObjectDamaged)


def test_puts_that_are_answered_and_come_late(server: HostileS3, store: S3Store, tmp_path: Path) -> None:
    engine = opened(store, tmp_path)
    write(engine, 0)
    server.late = []
    for block in range(1, FLUSHES):
        write(engine, block)
    died(engine)
    late, server.late = server.late, None
    nothing_removed(server, lambda: opened(store, tmp_path), ObjectDamaged)
    server.late = late
    server.arrive()
    engine = opened(store, tmp_path)
    assert all_there(engine)
    engine.close()


def test_an_older_root_and_epoch_are_read(server: HostileS3, store: S3Store, tmp_path: Path) -> None:
    flushed(store, tmp_path)
    older = {key: data for key, data in server.store.objects.items() if "segments" not in key}
    engine = opened(store, tmp_path)
    write(engine, 0)
    died(engine)
    server.stale = {"v/epoch": older["v/epoch"]}
    server.hidden = set(server.store.objects) - set(older)
    nothing_removed(server, lambda: opened(store, tmp_path), ObjectDamaged, Busy)


def test_a_stale_epoch_hides_another_writer_and_this_host_is_told_later(
    server: HostileS3, store: S3Store, tmp_path: Path
) -> None:
    mine = opened(store, tmp_path, "mine")
    write(mine, 0)
    epoch = server.store.objects["v/epoch"]
    other = opened(store, tmp_path, "other")
    write(other, 1)
    server.stale["v/epoch"] = epoch
    write(mine, 2)  # it is told that the store is still its own
    died(mine)
    server.stale = {}
    write(other, 3)
    other.close()
    with pytest.raises(StoreWentBack):
        opened(store, tmp_path, "mine")


def test_a_store_that_ignores_conditions_does_not_have_two_writers_acknowledge(
    server: HostileS3, store: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(store, tmp_path, "before").close()
    before = server.store.objects["v/epoch"]
    server.conditions = False
    one = opened(store, tmp_path, "one")
    with monkeypatch.context() as patch:
        really = WriterEpoch.read
        once = [WriterEpoch(1, "before", 0.0, etag(before))]
        patch.setattr(WriterEpoch, "read", lambda *where: once.pop() if once else really(*where))
        other: BlockEngine | None = None
        try:
            other = opened(store, tmp_path, "other")
        except StoreError:
            assert other is None
    acknowledged = 0
    for engine in filter(None, (one, other)):
        try:
            write(engine, 0)
            acknowledged += 1
        except WriterFenced:
            continue
    assert acknowledged <= 1
    for engine in filter(None, (one, other)):
        engine.abandon()


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.read("v/store"),
        lambda store: store.get("v/store"),
        lambda store: store.get("v/store", 0, 10),
        lambda store: store.tail("v/store", 10),
    ],
    ids=["read", "get", "range", "tail"],
)
@pytest.mark.parametrize("body", ["endless", "huge", "truncated"])
def test_bodies_of_objects(
    server: HostileS3, store: S3Store, call: Callable[[S3Store], object], body: str
) -> None:
    server.objects = body  # type: ignore[assignment]
    most = 3 * 64 * MIB if body != "truncated" else MIB
    raises_within(most, lambda: call(store), ObjectTooLarge if body != "truncated" else StoreUnreachable)


@pytest.mark.parametrize("body", ["endless", "huge", "truncated"])
def test_bodies_of_listings_and_errors(server: HostileS3, store: S3Store, body: str) -> None:
    server.lists = server.errors = body  # type: ignore[assignment]
    expected = (ObjectTooLarge,) if body != "truncated" else (StoreError,)
    for ask in (
        lambda: list(store.list("v/")),
        lambda: store.read("v/none"),
        lambda: store.put("v/store", b"x", NO_OBJECT_YET),
    ):
        raises_within(4 * MAX_ANSWER, ask, *expected)


@pytest.mark.parametrize("body", ["entities", "entities in UTF-16"])
def test_entities_are_not_put_in(server: HostileS3, store: S3Store, body: str) -> None:
    server.lists = server.errors = body  # type: ignore[assignment]
    for ask in (
        lambda: list(store.list("v/")),
        lambda: store.read("v/none"),
        lambda: store.put("v/store", b"x", NO_OBJECT_YET),
    ):
        raises_within(8 * MIB, ask, ObjectTooLarge)


def test_a_document_type_that_declares_nothing_is_no_harm(server: HostileS3, store: S3Store) -> None:
    server.has_doctype = True
    assert [one.key for one in store.list("v/")] == ["v/store"]


def raises_within(most: int, call: Callable[[], object], *errors: type[Exception]) -> None:
    """It raises one of these, and takes no more memory than that, of this process's server too."""
    tracemalloc.start()
    try:
        with pytest.raises(errors):
            call()
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def test_an_engine_on_such_bodies(server: HostileS3, store: S3Store, tmp_path: Path) -> None:
    flushed(store, tmp_path)
    for server.objects in ("endless", "truncated"):
        nothing_removed(server, lambda: opened(store, tmp_path), StoreError)
    server.objects = ""
    engine = opened(store, tmp_path)
    assert all_there(engine)
    engine.close()
