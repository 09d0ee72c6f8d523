"""The block store on S3 servers as others than Ceph have them: each fault of server_faults.py, over real HTTP."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.unit.blockstore.test_hostile_store import (
    all_there,
    flushed,
    opened,
    segments,
    server,  # noqa: F401
    store,  # noqa: F401
)
from tests.unit.object_store.hostile_s3 import HostileS3
from tests.unit.object_store.server_faults import LOSSLESS, Fault
from zvault.blockstore.maintenance.check import check
from zvault.object_store.s3 import S3Store


@pytest.mark.parametrize("fault", LOSSLESS.values(), ids=LOSSLESS.keys())
def test_what_was_flushed_is_opened(server: HostileS3, store: S3Store, tmp_path: Path, fault: Fault) -> None:  # noqa: F811
    fault(server)
    flushed(store, tmp_path)
    with ThreadPoolExecutor(2) as pool:
        report = check(store, "v", share=1, pool=pool, settle=0)
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
        cut = check(store, "v", share=1, pool=pool, settle=0).cut
    assert cut is not None
    assert (cut.first, cut.objects, cut.bytes) == (4, len(keys) - 3, whole)
    assert cut.acknowledged == len(keys) - 1, "the last says so of all before it"
    assert "acknowledged for certain" in cut.describe()
