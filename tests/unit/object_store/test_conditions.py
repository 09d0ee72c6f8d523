"""Whether a store keeps to conditions, on servers that do and on those of server_faults.py that do not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.object_store.hostile_s3 import HostileS3, lying
from tests.unit.object_store.server_faults import LOSSLESS, UNLOCKED, Fault
from zvault.object_store.conditions import find_fault, try_conditions
from zvault.object_store.interface import PreconditionFailed

pytest.importorskip("boto3")

from tests.unit.object_store.s3_stores import (
    make,
    no_other_keys,  # noqa: F401
)
from zvault.object_store.s3 import S3Store


@pytest.fixture(name="server")
def server_for_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[HostileS3]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "KEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
    with lying() as it:
        yield it


@pytest.fixture(name="store")
def store_for_test(server: HostileS3) -> S3Store:
    return make(server)


@pytest.mark.parametrize("fault", LOSSLESS.values(), ids=LOSSLESS.keys())
def test_a_store_that_keeps_to_conditions_passes_and_nothing_is_left(
    server: HostileS3, store: S3Store, fault: Fault
) -> None:
    fault(server)
    results = try_conditions(store, "v/probe", 1)
    assert find_fault(results) is None, results
    assert [one.held for one in results] == [True] * 6
    assert not server.store.objects


@pytest.mark.parametrize("fault", UNLOCKED.values(), ids=UNLOCKED.keys())
def test_a_store_with_which_not_exactly_one_wins_fails_and_nothing_is_left(
    server: HostileS3, store: S3Store, fault: Fault
) -> None:
    fault(server)
    assert find_fault(try_conditions(store, "v/probe", 2)) is not None
    assert not server.store.objects


def test_nothing_is_overwritten_where_an_etag_without_quotes_is_ignored(
    server: HostileS3, store: S3Store
) -> None:
    """A failed If-Match used to be tried again without quotes, on the object itself."""
    server.ignores_unquoted = True
    mine = store.put("lease", b"mine")
    make(server).put("lease", b"theirs", mine)
    with pytest.raises(PreconditionFailed):
        store.put("lease", b"mine again", mine)
    assert server.store.objects == {"lease": b"theirs"}
    assert store.put("lease", b"mine, rightly", store.read("lease")[1])
