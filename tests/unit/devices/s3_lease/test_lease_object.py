"""The lease's object in a store that speaks S3 over HTTP; with a real RGW it runs in the lab."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.devices.s3_lease.test_takeover import MINE, THEIRS
from tests.unit.object_store.hostile_s3 import lying
from tests.unit.object_store.s3_server import BUCKET, S3Server, serving
from zvault.core.errors import Busy, DeviceGone, HeldElsewhere, NotFound, Refused
from zvault.devices.s3_lease.held_lease import HeldLease
from zvault.devices.s3_lease.lease_object import (
    UNKNOWN_BOUND,
    BucketPlace,
    LeaseContent,
    LeaseLost,
    LeaseObjectStore,
)
from zvault.devices.s3_lease.note import NoteStore
from zvault.devices.s3_lease.takeover import BootClock, take_lease, take_lease_over
from zvault.object_store.interface import Buffer

pytest.importorskip("boto3")


@pytest.fixture
def server() -> Iterator[S3Server]:
    with serving() as it:
        yield it


@pytest.fixture
def store(server: S3Server) -> LeaseObjectStore:
    return LeaseObjectStore(place(server, "access_key=KEY", "secret_key=SECRET"))


def place(server: S3Server, *words: str) -> BucketPlace:
    return BucketPlace.of(
        [f"bucket={BUCKET}", "key=cold", f"endpoint-url={server.endpoint}", "style=path", *words]
    )


def keys(file: Path, access: str) -> None:
    file.write_text(f"[default]\naws_access_key_id = {access}\naws_secret_access_key = hunter2\n")


@pytest.mark.parametrize("bare", [False, True])
def test_of_two_who_put_one_wins_whichever_form_of_etag_the_store_compares(
    server: S3Server, store: LeaseObjectStore, bare: bool
):
    server.bare = bare
    assert store.read() is None
    first = store.put(MINE, None)
    with pytest.raises(LeaseLost):
        store.put(THEIRS, None)
    second = store.put(MINE, first)
    with pytest.raises(LeaseLost):
        store.put(THEIRS, first)
    server.ahead = MINE.bound + 2
    seen = store.read()
    assert seen is not None
    assert (replace(seen.lease, mark=""), seen.etag, seen.is_expired()) == (MINE, second, True)
    server.store.delete(["cold.lease"])
    with pytest.raises(LeaseLost):
        store.put(MINE, second)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_store_is_seen_to_keep_to_conditions(server: S3Server, store: LeaseObjectStore, at_once: bool):
    store.refuse_without_conditions(MINE, at_once=at_once)
    assert not server.store.objects
    put = server.store.put

    def careless(key: str, data: Buffer, condition: str | None = None) -> str:
        return put(key, data)

    server.store.put = careless  # type: ignore[method-assign]
    with pytest.raises(Refused, match="has no lock"):
        store.refuse_without_conditions(MINE, at_once=at_once)
    assert not server.store.objects


def test_what_is_there_is_looked_at_after_an_error(server: S3Server, store: LeaseObjectStore):
    """RGW answers one of two conditional puts with 500, and an answer may be lost."""

    def taken(fault: str) -> str:
        server.put_faults["cold.lease"] = fault
        return take_lease(store, MINE, resume=False, say=pytest.fail, clock=BootClock())

    etag = store.put(replace(MINE, held=False), None)
    with pytest.raises(DeviceGone, match="500 InternalError"):
        taken("InternalError")
    seen = store.read()
    assert seen is not None
    assert seen.etag == etag
    assert taken("lost") != etag
    seen = store.read()
    assert seen is not None
    assert seen.lease.held
    store.put(THEIRS, seen.etag)
    with pytest.raises(Busy, match="held by there"):
        take_lease(store, MINE, resume=False, say=pytest.fail, clock=BootClock())


def test_what_may_pass_and_what_wants_a_person(server: S3Server, store: LeaseObjectStore):
    server.faults = ["SlowDown", "AccessDenied"]
    with pytest.raises(DeviceGone, match=r"the lease s3://zvault/cold.lease cannot be had.*503 SlowDown"):
        store.read()
    with pytest.raises(Refused, match="403 AccessDenied"):
        store.put(MINE, None)
    server.store.put("cold.lease", b"something else")
    with pytest.raises(Refused, match="is no lease"):
        store.read()


def test_keys_that_were_refused_are_read_again(server: S3Server, tmp_path: Path):
    file = tmp_path / "s3.keys"
    keys(file, "OLD")
    store = LeaseObjectStore(place(server, f"keys={file}"))
    with pytest.raises(Refused, match="InvalidAccessKeyId"):
        store.put(MINE, None)
    keys(file, "KEY")
    store.put(MINE, None)
    secret = tmp_path / "secret"
    store = LeaseObjectStore(place(server, "access-key=KEY", f"secret-key=+{secret}"))
    with pytest.raises(Refused, match="cannot be read"):
        store.read()
    secret.write_text("SECRET\n")
    assert store.read() is not None


def test_a_credential_that_is_not_there_is_told_at_once(server: S3Server):
    with pytest.raises(NotFound, match=r"there is no credential zvault\.none"):
        LeaseObjectStore(place(server, "credential=zvault.none"))


def test_a_lease_of_another_version_is_read(server: S3Server, store: LeaseObjectStore):
    server.store.put("cold.lease", MINE.as_bytes().replace(b'"host"', b'"later": 1, "host"'))
    seen = store.read()
    assert seen is not None
    assert isinstance(seen.lease, LeaseContent)


def test_a_lease_may_be_in_another_bucket_than_the_blocks(server: S3Server) -> None:
    found = place(server, "access_key=KEY", "secret_key=SECRET", "lease-bucket=other")
    assert str(found) == "s3://other/cold.lease"
    with pytest.raises(Refused, match="NoSuchBucket"):
        LeaseObjectStore(found).read()
    there = BucketPlace.of(
        [
            "bucket=another",
            f"lease-bucket={BUCKET}",
            "key=cold",
            f"endpoint-url={server.endpoint}",
            "style=path",
            "access_key=KEY",
            "secret_key=SECRET",
        ]
    )
    LeaseObjectStore(there).put(MINE, None)
    assert "cold.lease" in server.store.objects


@pytest.mark.parametrize("etag", [True, False], ids=["ETag", "no ETag"])
def test_a_lease_that_the_store_lost_is_held_by_nobody_knows_whom_until_a_person_takes_it(etag: bool):
    with lying() as server:
        store = LeaseObjectStore(place(server, "access_key=KEY", "secret_key=SECRET"))
        store.put(THEIRS, None)
        server.lose("cold.lease", etag=etag)
        for resume in (False, True):
            with pytest.raises(HeldElsewhere, match="zero bytes") as error:
                take_lease(store, MINE, resume=resume, say=pytest.fail, clock=BootClock())
            assert "vault take" in error.value.next
            assert "within 30m" in error.value.next, "whoever takes it waits that long"
        seen = store.read()
        assert seen is not None
        assert (seen.is_lost, seen.lease.held, bool(seen.etag)) == (True, True, etag)
        now = [0.0]
        clock = BootClock(lambda: now[0], lambda seconds: now.append(now.pop() + seconds))
        said: list[str] = []
        take_lease_over(store, MINE, seen.lease.boot, said.append, clock)
        assert now[0] >= UNKNOWN_BOUND, "it may be a living host's"
        taken = store.read()
        assert taken is not None
        assert (taken.lease.boot, taken.lease.held, taken.is_lost) == (MINE.boot, True, False)


@pytest.mark.parametrize("etag", [True, False], ids=["ETag", "no ETag"])
def test_a_holder_puts_its_lost_lease_again_where_only_one_host_can(etag: bool):
    with lying() as server:
        store = LeaseObjectStore(place(server, "access_key=KEY", "secret_key=SECRET"))
        held = HeldLease(store, MINE, store.put(MINE, None), BootClock())
        server.lose("cold.lease", etag=etag)
        if not etag:
            with pytest.raises(DeviceGone, match="without an ETag"):
                held._renew_once()
            return
        held._renew_once()
        seen = store.read()
        assert seen is not None
        assert (replace(seen.lease, mark=""), seen.etag) == (MINE, held.etag)


def test_a_note_that_the_store_lost_is_none_and_can_be_put():
    with lying() as server:
        notes = NoteStore.of(place(server, "access_key=KEY", "secret_key=SECRET"))
        notes.put(b"note", "")
        server.lose("cold.note", etag=False)
        assert notes.note()["data"] is None
        assert notes.put(b"another", "")["etag"]


def test_a_store_without_etags_has_no_lease():
    with lying() as server:
        store = LeaseObjectStore(place(server, "access_key=KEY", "secret_key=SECRET"))
        store.put(MINE, None)
        server.without_etag.add("cold.lease")
        with pytest.raises(Refused, match="without an ETag"):
            store.read()
