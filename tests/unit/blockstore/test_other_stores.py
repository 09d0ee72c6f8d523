"""The block store on S3 servers as others than Ceph have them: each fault of server_faults.py, over real HTTP."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.unit.blockstore.test_hostile_store import (
    FLUSHES,
    all_there,
    flushed,
    opened,
    segments,
    server,  # noqa: F401
    store,  # noqa: F401
)
from tests.unit.object_store.hostile_s3 import HostileS3
from tests.unit.object_store.s3_server import BUCKET
from tests.unit.object_store.server_faults import LOSSLESS, UNLOCKED, Fault
from zvault.blockstore.format import BLOCK_SIZE
from zvault.blockstore.locked_bucket import see_that_conditions_hold
from zvault.blockstore.maintenance.check import find_store_problems
from zvault.blockstore.maintenance.repair import RepairJob, repair_store
from zvault.blockstore.map.map_part import PART_BLOCKS
from zvault.blockstore.options import EngineOptions
from zvault.config.device_specs.blockstore import parse_blockstore
from zvault.core.errors import Refused, ZvaultError
from zvault.object_store.interface import StoreError, describe_loss
from zvault.object_store.s3 import S3Store

ITS_POWER_WENT = ["v/store", "v/epoch", "v/checkpoints/", "v/segments/"]


@pytest.mark.parametrize("fault", LOSSLESS.values(), ids=LOSSLESS.keys())
def test_what_was_flushed_is_opened(server: HostileS3, store: S3Store, tmp_path: Path, fault: Fault) -> None:  # noqa: F811
    fault(server)
    flushed(store, tmp_path)
    with ThreadPoolExecutor(2) as pool:
        report = find_store_problems(store, "v", share=1, pool=pool, settle=0)
        assert report.well, report.problems
    engine = opened(store, tmp_path)
    assert all_there(engine)
    engine.close()


def test_check_measures_what_the_end_of_the_log_would_lose(
    server: HostileS3,  # noqa: F811
    store: S3Store,  # noqa: F811
    tmp_path: Path,
) -> None:
    flushed(store, tmp_path)
    keys = segments(server)
    whole = sum(len(server.store.objects[key]) for key in keys[3:])
    server.store.objects[keys[3]] = bytes(len(server.store.objects[keys[3]]))
    with ThreadPoolExecutor(2) as pool:
        cut = find_store_problems(store, "v", share=1, pool=pool, settle=0).cut
    assert cut is not None
    assert (cut.first, cut.objects, cut.bytes) == (4, len(keys) - 3, whole)
    assert cut.acknowledged == len(keys) - 1, "the last says so of all before it"
    assert "acknowledged for certain" in cut.describe()


def lived(store: S3Store, folder: Path) -> None:  # noqa: F811
    """Two checkpoints, and a log after them."""
    engine = opened(store, folder)
    for block in range(FLUSHES):
        engine.write(block * BLOCK_SIZE, bytes([block + 1]) * BLOCK_SIZE)
        engine.flush()
        if block in (1, 3):
            engine.checkpoint()
    engine.fail(StoreError("it is gone"))
    engine.abandon()
    for file in engine.options.journal.iterdir():
        file.unlink()


@pytest.mark.parametrize("etag", [True, False], ids=["ETag", "no ETag"])
@pytest.mark.parametrize("kind", ITS_POWER_WENT)
def test_what_a_store_lost_with_its_power_has_words_and_a_way_out(
    server: HostileS3,  # noqa: F811
    store: S3Store,  # noqa: F811
    tmp_path: Path,
    kind: str,
    etag: bool,
) -> None:
    lived(store, tmp_path)
    lost = max(key for key in server.store.objects if key.startswith(kind))
    server.lose(lost, etag=etag)
    with ThreadPoolExecutor(2) as pool:
        report = find_store_problems(store, "v", share=1, pool=pool, settle=0)
        assert any("zero bytes" in one.why for one in report.problems), report.problems
        if kind != "v/checkpoints/":  # the one before says the same
            with pytest.raises(ZvaultError, match="zero bytes") as error:
                opened(store, tmp_path)
            assert "blockstore check" in error.value.next
        options = EngineOptions(tmp_path / "repair", uploads=0)
        job = RepairJob(options, "repairer", PART_BLOCKS * BLOCK_SIZE, cut=True)
        after = repair_store(store, "v", job, pool)
        assert after.well, after.problems
        assert len(job.done) == len(set(job.done))
    engine = opened(store, tmp_path, "another")
    there = [
        engine.read(block * BLOCK_SIZE, BLOCK_SIZE) == bytes([block + 1]) * BLOCK_SIZE
        for block in range(FLUSHES)
    ]
    assert all(there[:-1])
    assert there[-1] == (kind != "v/segments/"), "the last flush alone was in that object"
    engine.close()


def test_only_zero_bytes_count_as_lost() -> None:
    assert "zero bytes" in describe_loss(bytes(9))
    assert "empty" in describe_loss(b"")
    assert describe_loss(b"\0\0x") == ""


@pytest.mark.parametrize("fault", UNLOCKED.values(), ids=UNLOCKED.keys())
def test_no_store_is_made_where_a_second_writer_would_not_be_shut_out(
    server: HostileS3,  # noqa: F811
    store: S3Store,  # noqa: F811
    fault: Fault,
) -> None:
    spec = parse_blockstore(f"{BUCKET}/other endpoint={server.endpoint}")
    see_that_conditions_hold(store, spec, pytest.fail)
    fault(server)
    said: list[str] = []
    if server.races:
        see_that_conditions_hold(store, spec)
        see_that_conditions_hold(store, spec, said.append)
        assert "only one host" in said[0]
    else:
        with pytest.raises(Refused, match="no place for a block store"):
            see_that_conditions_hold(store, spec)
    assert not any("conditions" in key for key in server.store.objects)
