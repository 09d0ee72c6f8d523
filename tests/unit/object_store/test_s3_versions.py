"""Versions and locks as S3 tells of them; with a real RGW they are in the lab."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("boto3")

from botocore.exceptions import ClientError

from tests.unit.object_store.s3_server import BUCKET, S3Server, serving
from zvault.core.policy.object_lock import LOCK_SPAN_FACTOR, ObjectLock
from zvault.object_store.interface import ListedVersion, ObjectDamaged, StoreDenied, StoreUnreachable
from zvault.object_store.s3 import S3Store
from zvault.object_store.s3_client import compute_md5
from zvault.object_store.s3_errors import S3RequestKind, translate_s3_errors
from zvault.object_store.s3_settings import S3Settings
from zvault.object_store.s3_versions import BucketLock, delete_versions, list_versions, read_bucket_lock

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAY = 86400.0


class Client:
    """Answers what it is given, one after another, and keeps what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []

    def __getattr__(self, _: str) -> Any:
        def call(**words: Any) -> Any:
            self.asked.append(words)
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call

    @contextmanager
    def asking(self, what: str, kind: S3RequestKind) -> Iterator[Client]:
        with translate_s3_errors(what, kind):
            yield self


def item(key: str, version: str, second: int, **more: Any) -> dict[str, Any]:
    at = NOON.replace(second=second)
    return {"Key": key, "VersionId": version, "LastModified": at, "Size": 3, "ETag": '"e"'} | more


def error(status: int, code: str) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "x")


def page(*items: dict[str, Any], markers: Any = (), more: tuple[str, str] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "Versions": list(items),
        "DeleteMarkers": list(markers),
        "IsTruncated": bool(more),
    }
    return found | ({"NextKeyMarker": more[0], "NextVersionIdMarker": more[1]} if more else {})


def test_versions_come_by_key_and_the_newest_first_also_over_pages_with_markers_between() -> None:
    client = Client(
        page(item("k/a", "3", 9), item("k/a", "2", 7), more=("k/a", "2")),
        page(item("k/a", "1", 1), item("k/b", "4", 2), markers=[item("k/a", "m", 8)], more=("k/b", "4")),
        page(item("k/c", "5", 3)),
    )
    found = list(list_versions(client.asking, "b", "k/", ""))
    assert [(one.key, one.version, one.marker) for one in found] == [
        ("k/a", "3", False),
        ("k/a", "m", True),
        ("k/a", "2", False),
        ("k/a", "1", False),
        ("k/b", "4", False),
        ("k/c", "5", False),
    ]
    assert found[0] == ListedVersion("k/a", "3", 3, "e", NOON.replace(second=9).timestamp())
    assert client.asked[1]["VersionIdMarker"] == "2"


def test_a_store_that_begins_with_the_key_of_the_marker() -> None:
    """RGW 18.2.7 does so, where S3 begins after it."""
    client = Client(page(item("k/a", "1", 1), item("k/b", "2", 1)))
    assert [one.key for one in list_versions(client.asking, "b", "k/", "k/a")] == ["k/b"]


@pytest.mark.parametrize(
    "pages",
    [
        [page(item("k/b", "1", 1), item("k/c", "1", 1), more=("k/c", "1")), page(item("k/a", "1", 1))],
        [page(item("other", "1", 1))],
        [page(item("k/a", "1", 1), more=("k/a", "1")), page(item("k/a", "1", 1), more=("k/a", "1"))],
        [{"Versions": [], "IsTruncated": True}],
        [page(item("k/a", "1", 1, Size=-1))],
        [page({"Key": "k/a", "VersionId": "1"})],
    ],
)
def test_a_listing_that_cannot_be_right(pages: list[Any]) -> None:
    with pytest.raises(ObjectDamaged, match="cannot be right"):
        list(list_versions(Client(*pages).asking, "b", "k/", ""))


@pytest.mark.parametrize("markers", [["k/a", "k/b"], [f"k/{number:06d}" for number in range(10_000)]])
def test_a_listing_of_nothing_without_an_end(markers: list[str]) -> None:
    """Two markers in turn were asked for again and again, at whatever rate the store answered."""
    pages = (page(more=(markers[number % len(markers)], "1")) for number in range(10_000))
    client = Client(*pages)
    with pytest.raises(ObjectDamaged, match="does not come to an end"):
        list(list_versions(client.asking, "b", "k/", ""))
    assert len(client.asked) < 200


def test_what_is_locked_is_left_and_what_is_gone_counts_as_removed() -> None:
    every = [ListedVersion(key, "v", 1, "e", 0.0) for key in ("a", "b", "c")]
    errors = [
        {"Key": "a", "VersionId": "v", "Code": "AccessDenied"},
        {"Key": "b", "VersionId": "v", "Code": "NoSuchVersion"},
    ]
    assert delete_versions(Client({"Errors": errors}).asking, "b", every) == [every[0]]
    busy = {"Errors": [{"Key": "a", "VersionId": "v", "Code": "SlowDown"}]}
    with pytest.raises(StoreUnreachable):
        delete_versions(Client(busy).asking, "b", every)


def test_what_a_bucket_says_of_locks() -> None:
    def of(answer: Any) -> BucketLock:
        return read_bucket_lock(Client(answer).asking, "b")

    rule = {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 2}}
    assert of({"ObjectLockConfiguration": {"ObjectLockEnabled": "Enabled"}}) == BucketLock(True)
    assert of({"ObjectLockConfiguration": {"ObjectLockEnabled": "Enabled", "Rule": rule}}) == BucketLock(
        True, ObjectLock("compliance", 2 * DAY)
    )
    assert of(error(404, "ObjectLockConfigurationNotFoundError")) == BucketLock(False)
    for unknown in (error(403, "AccessDenied"), error(501, "NotImplemented"), error(400, "MethodNotAllowed")):
        assert of(unknown) == BucketLock(None)
    with pytest.raises(StoreDenied):
        of(error(404, "NoSuchBucket"))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "KEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("NO_PROXY", "*")
    with serving() as it:
        yield it


def made(server: S3Server, lock: ObjectLock | None = None) -> S3Store:
    return S3Store(S3Settings(BUCKET, server.endpoint, style="path", lock=lock))


def said(server: S3Server) -> dict[str, str]:
    return {name.lower(): value for name, value in server.seen[-1][2].items()}


def test_what_is_put_says_until_when_it_is_locked_by_the_stores_clock(server: S3Server) -> None:
    began = time.time()
    store = made(server, ObjectLock("compliance", 10 * DAY))
    server.ahead = 500.0
    store.put("a", b"data")
    before = time.time()
    store.put("b", b"data")
    ahead, after = 500 + 10 * DAY * LOCK_SPAN_FACTOR, time.time()
    heard = said(server)
    assert heard["x-amz-object-lock-mode"] == "COMPLIANCE"
    assert heard["content-md5"] == compute_md5(b"data")
    until = datetime.fromisoformat(heard["x-amz-object-lock-retain-until-date"]).timestamp()
    # To the second, as is the clock that a store shows; it is read some time after it was shown.
    assert before + ahead - (before - began) - 2 < until < after + ahead + 2


def test_a_clock_that_no_store_can_have_is_not_gone_by(server: S3Server) -> None:
    """Locks for years by a date that somebody on the way made up."""
    store = made(server, ObjectLock("compliance", DAY))
    server.ahead = 20 * 365 * DAY
    store.put("a", b"data")
    assert abs(store.now() - time.time()) <= 901


def test_a_bucket_that_locks_by_itself_has_its_content_md5(server: S3Server) -> None:
    store = made(server)
    store.put("a", b"data")
    assert "content-md5" not in said(server)
    server.demands_md5 = True
    store.put("b", b"data")
    assert said(server)["content-md5"] == compute_md5(b"data")
    before = len(server.seen)
    store.put("c", b"data")
    assert len(server.seen) == before + 1
    assert store.read("b")[0] == b"data"


def test_a_bucket_or_store_that_does_not_lock_is_told_of_as_that(server: S3Server) -> None:
    """RGW answers so of a bucket without object lock, and of a mode that it does not know."""
    server.locks = False
    made(server).put("a", b"data")
    with pytest.raises(StoreDenied) as found:
        made(server, ObjectLock("compliance", DAY)).put("a", b"data")
    assert "the store answers 400" in found.value.why
    assert "see that the bucket has object lock" in found.value.next


def test_a_clock_that_is_far_from_the_stores_is_the_hosts_to_set(server: S3Server) -> None:
    server.faults = ["RequestTimeTooSkewed"]
    with pytest.raises(StoreDenied, match="RequestTimeTooSkewed") as found:
        made(server, ObjectLock("compliance", DAY)).put("a", b"data")
    assert found.value.next == "set this host's clock"
