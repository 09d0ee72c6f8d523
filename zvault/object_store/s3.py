"""Objects of an S3 bucket, by boto3. Tries nothing twice: retrying_store.py does.

What is asked of a store: ranges, ListObjectsV2 with StartAfter, DeleteObjects, and conditional puts (If-None-Match,
If-Match). Seen with Ceph 18.2.7's RGW and boto3 1.37; Amazon has all of them since November 2024.

The SHA-256 of a put's bytes is part of its signature, so that what was changed on its way is refused. What is read has
no checksum here: the block store verifies each piece itself. It is as long as it was asked for, or reaches to the
object's end; anything else counts as no answer.
"""

from __future__ import annotations

import contextlib
import re
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from zvault.core.policy.object_lock import LockMode
from zvault.object_store import s3_versions
from zvault.object_store.conditions import STALE
from zvault.object_store.interface import (
    LARGEST_OBJECT,
    LISTING_PAGE,
    NO_OBJECT_YET,
    SMALL_OBJECT,
    Buffer,
    ListedObject,
    ListedVersion,
    ObjectDamaged,
    ObjectTooLarge,
    PreconditionFailed,
    StoreDenied,
    StoreError,
    StoreUnreachable,
    describe_loss,
    split_version,
)
from zvault.object_store.metered_store import EMPTY_PAGES
from zvault.object_store.s3_client import S3Clients, compute_md5, put_object
from zvault.object_store.s3_errors import (
    RangeBeyondEnd,
    S3RequestKind,
    make_answer_error,
    make_unreachable_error,
    translate_s3_errors,
)
from zvault.object_store.s3_settings import S3Settings

LARGEST_SKEW = 900.0
"""Seconds that a store's clock may differ from ours: what is signed with a greater difference it refuses."""
_RANGE = re.compile(r"bytes ([0-9]{1,20})-[0-9]{1,20}/([0-9]{1,20})")


@dataclass(frozen=True, slots=True)
class _Part:
    """What came of an object: bytes from ``first`` on, of ``size`` in all."""

    data: bytes
    first: int
    size: int
    etag: str


class S3Store:
    """The ObjectStore of a bucket. ETags are without their quotes."""

    def __init__(self, settings: S3Settings, page: int = LISTING_PAGE) -> None:
        """Asks nothing yet. ``page``: how many objects a listing is asked for at a time. Raises ToolMissing without
        boto3.
        """
        self.settings = settings
        self._page = page
        self._clients = S3Clients(settings)
        self._bare: bool | None = None
        self._md5 = settings.lock is not None
        """Whether puts come with a Content-MD5: where a lock comes with them, S3 demands one."""
        self._ahead = 0.0

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        if length == 0:
            return self.get(key, start, 1)[:0]
        if start == 0 and length is None:
            return self._fetch(key, "", LARGEST_OBJECT).data
        try:
            span = f"bytes={start}-{start + length - 1 if length else ''}"
            part = self._fetch(key, span, LARGEST_OBJECT if length is None else length)
        except RangeBeyondEnd:
            part = self._fetch_whole(key)
        end = part.size if length is None else min(start + length, part.size)
        return self._cut(key, part, start, end)

    def tail(self, key: str, length: int) -> tuple[bytes, int]:
        try:
            part = self._fetch(key, f"bytes=-{max(1, length)}", max(1, length))
        except RangeBeyondEnd:
            part = self._fetch_whole(key)
        start = max(0, part.size - max(1, length))
        found = self._cut(key, part, start, part.size)
        return (found if length else b""), part.size

    def read(self, key: str, most: int = SMALL_OBJECT) -> tuple[bytes, str]:
        part = self._fetch(key, "", most)
        if not part.etag:
            raise ObjectDamaged(
                f"{key} cannot be believed",
                describe_loss(part.data)
                or "the store sends it without an ETag, which S3 promises of each object",
                "run 'zvaultctl blockstore check'",
            )
        return part.data, part.etag

    def read_aged(self, key: str) -> tuple[bytes, str, float]:
        """Fetch an object, its ETag, and how many seconds ago it was put by the store's own clock.

        The ETag is "" where the store sends none, as of an object that it lost. Raises ObjectMissing, StoreUnreachable.
        """
        answer, data = self._ask(key, "", SMALL_OBJECT)
        try:
            age = _date_of(answer) - answer["LastModified"].timestamp()
        except (KeyError, TypeError, ValueError) as error:
            why = f"the answer does not say when it was put: {error}"
            raise make_unreachable_error(f"{key} cannot be read", why) from error
        return data, _etag_of(answer), max(0.0, age)

    def put(self, key: str, data: Buffer, condition: str | None = None) -> str:
        body = memoryview(data).cast("B")
        if condition is None:
            return self._put(key, body, "put")
        if condition == NO_OBJECT_YET:
            return self._put(key, body, "put-if", IfNoneMatch="*")
        # RGW compares what it is sent with an ETag without its quotes, so the quoted form never matches there.
        bare = bool(self._bare)
        try:
            etag = self._put(key, body, "put-if", IfMatch=_form(condition, bare))
        except PreconditionFailed:
            if self._bare is not None:
                raise
            self._bare = self._compares_bare(key)
            if not self._bare:
                raise
            return self._put(key, body, "put-if", IfMatch=_form(condition, bare=True))
        self._bare = bare
        return etag

    def _compares_bare(self, key: str) -> bool:
        """Whether the store compares an ETag only without its quotes, tried on an object beside this one.

        It is not tried on the object itself: a store that ignores an ETag without quotes would overwrite it, whoever
        had put it.
        """
        beside = f"{key}.{uuid.uuid4().hex}"
        etag = self._put(beside, memoryview(b"made to try conditional puts; may be removed"), "put")
        try:
            for wanted, bare in ((etag, False), (STALE, True)):
                try:
                    self._put(beside, memoryview(b"the same, again"), "put-if", IfMatch=_form(wanted, bare))
                except (PreconditionFailed, StoreDenied):
                    continue
                return False
            try:
                self._put(beside, memoryview(b"the same, again"), "put-if", IfMatch=etag)
            except (PreconditionFailed, StoreDenied):
                return False
            return True
        finally:
            with contextlib.suppress(StoreError):
                self.delete([beside])

    def list(self, prefix: str, after: str = "") -> Iterator[ListedObject]:
        """See ObjectStore. Asks for a page at a time, when it is wanted."""
        where, empty = {"StartAfter": after} if after else {}, 0
        while True:
            with self._asking(f"the objects of {prefix} cannot be listed", "list") as client:
                page = client.list_objects_v2(
                    Bucket=self.settings.bucket, Prefix=prefix, MaxKeys=self._page, **where
                )
            for item in page.get("Contents", ()):
                key, size = item.get("Key"), item.get("Size")
                if not isinstance(key, str) or not isinstance(size, int) or size < 0:
                    raise _listed_wrongly(prefix, "it has an entry without a key or a size")
                if key <= after or not key.startswith(prefix):
                    raise _listed_wrongly(
                        prefix, f"{key} comes where it cannot be, after {after or 'nothing'}"
                    )
                after, empty = key, 0
                yield ListedObject(key, size)
            if not page.get("IsTruncated"):
                return
            empty += 1
            if not (token := page.get("NextContinuationToken")) or empty > EMPTY_PAGES:
                raise _listed_wrongly(prefix, "it does not come to an end")
            where = {"ContinuationToken": token}

    def delete(self, keys: Sequence[str]) -> None:
        """See ObjectStore. A thousand in a request; after an error some are removed and some are not."""
        for begin in range(0, len(keys), LISTING_PAGE):
            some = [{"Key": key} for key in keys[begin : begin + LISTING_PAGE]]
            with self._asking(f"{len(some)} objects cannot be removed", "delete") as client:
                answer = client.delete_objects(
                    Bucket=self.settings.bucket, Delete={"Objects": some, "Quiet": True}
                )
                for error in answer.get("Errors", ()):
                    if error.get("Code") != "NoSuchKey":
                        raise make_answer_error(
                            f"{error.get('Key')} cannot be removed", "delete", {"Error": error}
                        )

    def versions(self, prefix: str, after: str = "") -> Iterator[ListedVersion]:
        yield from s3_versions.list_versions(self._asking, self.settings.bucket, prefix, after)

    def retain(self, key: str, version: str, mode: LockMode, until: float) -> None:
        s3_versions.retain_version(self._asking, self.settings.bucket, key, version, mode, until)

    def delete_versions(self, versions: Sequence[ListedVersion]) -> Sequence[ListedVersion]:
        return s3_versions.delete_versions(self._asking, self.settings.bucket, versions)

    def bucket_lock(self) -> s3_versions.BucketLock:
        """Ask what the bucket says of locks. Raises StoreError."""
        return s3_versions.read_bucket_lock(self._asking, self.settings.bucket)

    def lock_of(self, key: str, version: str) -> s3_versions.VersionLock | None:
        """Ask how a version is locked; None: it is not, or the store does not say. Raises ObjectMissing, StoreError."""
        return s3_versions.read_version_lock(self._asking, self.settings.bucket, key, version)

    def bypass(self, key: str, version: str) -> None:
        """Remove a version as one who may bypass its lock. Raises StoreDenied, StoreError."""
        s3_versions.bypass_lock(self._asking, self.settings.bucket, key, version)

    def range_status(self, key: str, span: str) -> int:
        """The status with which the store answers a Range header: 206, 200 where it knows none, or 416.

        Raises ObjectMissing, StoreError.
        """
        try:
            answer, _ = self._ask(key, span, LARGEST_OBJECT)
        except RangeBeyondEnd:
            return 416
        return 206 if "ContentRange" in answer else int(answer["ResponseMetadata"]["HTTPStatusCode"])

    def refuses_changed_bytes(self, key: str) -> bool:
        """Whether a put is refused whose bytes change after they were signed. Raises StoreError."""
        client, body = S3Clients(self.settings).get(), b"bytes that are signed"

        def change(request: Any, **_: object) -> None:
            request.body = b"bytes that are others"

        client.meta.events.register("before-send.s3.PutObject", change)
        try:
            with translate_s3_errors(f"{key} was not put", "put"):
                client.put_object(Bucket=self.settings.bucket, Key=key, Body=body)
        except (StoreUnreachable, StoreDenied):
            return True
        return False

    def now(self) -> float:
        """The time by the store's clock, as it was last seen; in seconds since the epoch."""
        return time.time() + self._ahead

    def _fetch(self, key: str, span: str, most: int) -> _Part:
        """Fetch an object, or the part of a Range header (RFC 9110), of at most ``most`` bytes.

        Raises ObjectMissing, RangeBeyondEnd, ObjectTooLarge.
        """
        answer, data = self._ask(key, span, most)
        etag, told = _etag_of(answer), answer.get("ContentRange", "")
        # rclone 1.75 answers a range with 200, and tells in Content-Range alone that it is not the whole object.
        if answer["ResponseMetadata"]["HTTPStatusCode"] != 206 and not told:
            return _Part(data, 0, len(data), etag)
        found = _RANGE.fullmatch(told)
        if found is None:
            raise make_unreachable_error(f"{key} cannot be read", "the answer does not say which part it is")
        return _Part(data, int(found[1]), int(found[2]), etag)

    def _fetch_whole(self, key: str) -> _Part:
        """The whole object, after a 416, which alone does not say that an object is too short.

        ``rclone serve s3`` answers 416 to a suffix range longer than the object, where RFC 9110 (14.1.2) and Amazon
        send all of it: sound segments were taken for damaged ones.
        """
        return self._fetch(key, "", LARGEST_OBJECT)

    def _ask(self, key: str, span: str, most: int) -> tuple[dict[str, Any], bytes]:
        with self._asking(f"{key} cannot be read", "read") as client:
            name, version = split_version(key)
            wanted = {"Range": span, "VersionId": version}
            wanted = {what: value for what, value in wanted.items() if value}
            answer = client.get_object(Bucket=self.settings.bucket, Key=name, **wanted)
            self._see_clock(answer)
            with contextlib.closing(answer["Body"]) as body:
                if span and answer["ResponseMetadata"]["HTTPStatusCode"] != 206:
                    most = max(most, LARGEST_OBJECT)  # it knows no ranges
                return answer, _whole(body, most, key)

    def _cut(self, key: str, part: _Part, start: int, end: int) -> bytes:
        """What was asked for, out of what came: that, or more from a store that knows no ranges."""
        if part.first > start or part.first + len(part.data) < end:
            why = f"bytes from {part.first} came, {len(part.data)} of them, in place of {start} to {end}"
            raise make_unreachable_error(f"{key} cannot be read", why)
        return part.data[start - part.first : max(start, end) - part.first]

    def _put(self, key: str, body: memoryview, kind: S3RequestKind, **condition: str) -> str:
        said: dict[str, Any] = {**self.settings.for_new_objects(), **condition}
        if self.settings.lock is not None:
            said |= s3_versions.make_lock_params(self.settings.lock, self.now())
        if self._md5:
            said["ContentMD5"] = compute_md5(body)
        try:
            with self._asking(f"{key} was not put", kind) as client:
                answer = put_object(client, body, Bucket=self.settings.bucket, Key=key, **said)
        except StoreDenied as error:
            if self._md5 or "content-md5" not in error.why.lower():
                if self.settings.lock is None:
                    raise
                raise s3_versions.advise_on_denied_lock(error) from error.__cause__
            self._md5 = True  # of a bucket that locks what comes without a lock of its own
            return self._put(key, body, kind, **condition)
        self._see_clock(answer)
        return _etag_of(answer) or (self._read_etag(key, body) if condition else "")

    def _read_etag(self, key: str, body: memoryview) -> str:
        """The ETag of an object that was just put under a condition, and whose answer had none: the next put of it
        needs one. Raises PreconditionFailed where it is another object by now, ObjectDamaged without an ETag.
        """
        data, etag = self.read(key, body.nbytes)
        if data != body:
            raise PreconditionFailed(
                f"{key} was put, and is another object already", "somebody else put it since", ""
            )
        return etag

    def _see_clock(self, answer: dict[str, Any]) -> None:
        with contextlib.suppress(KeyError, TypeError, ValueError):
            ahead = _date_of(answer) - time.time()
            self._ahead = min(max(ahead, -LARGEST_SKEW), LARGEST_SKEW)

    @contextlib.contextmanager
    def _asking(self, what: str, kind: S3RequestKind) -> Iterator[Any]:
        """The client; what goes wrong is raised as a StoreError."""
        client = None
        try:
            with translate_s3_errors(what, kind):
                client = self._clients.get()
                yield client
        except StoreDenied:
            self._clients.forget(client)
            raise


def _date_of(answer: dict[str, Any]) -> float:
    """When it was given, by the store's clock. Raises KeyError, TypeError, ValueError."""
    return parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"]).timestamp()


def _listed_wrongly(prefix: str, why: str) -> ObjectDamaged:
    return ObjectDamaged(
        f"the listing of {prefix} cannot be right", why, "see what is wrong with the object store"
    )


def _whole(body: Any, most: int, key: str) -> bytes:
    """All that comes, which is no more than ``most`` bytes, whatever length the answer says. Raises ObjectTooLarge."""
    pieces, left = [], most + 1
    while left > 0 and (piece := body.read(left)):
        pieces.append(piece)
        left -= len(piece)
    if left <= 0:
        why = f"it has more than {most} bytes, and nothing that is put there has"
        raise ObjectTooLarge(f"{key} is not what was put there", why, "see what the bucket holds there")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _etag_of(answer: dict[str, Any]) -> str:
    """The ETag of an answer without its quotes; "" where it has none."""
    return str(answer.get("ETag") or "").strip('"')


def _form(etag: str, bare: bool) -> str:
    return etag if bare else f'"{etag}"'
