"""Versions of objects in an S3 bucket, and locks on them: what S3 calls object lock.

Seen with Ceph 18.2.7's RGW. A lock is on a version. To remove an object without naming a version is never refused: it
only puts a delete marker before the versions, and those can be read by their ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from zvault.core.policy.object_lock import LockMode, ObjectLock
from zvault.object_store.interface import LISTING_PAGE, ListedVersion, ObjectDamaged, StoreDenied, StoreError
from zvault.object_store.metered_store import EMPTY_PAGES
from zvault.object_store.s3_errors import S3RequestKind, make_answer_error

Asking = Callable[[str, S3RequestKind], AbstractContextManager[Any]]
"""Gives the client: what is asked of it, in words for its errors, and of which kind that is."""

SECONDS_PER_DAY = 86400.0
_NOT_THERE = frozenset({"NoSuchKey", "NoSuchVersion"})
_REFUSED = frozenset({"AccessDenied", "InvalidRequest", "ObjectLocked", "MethodNotAllowed"})
_MODES: dict[str, LockMode] = {"GOVERNANCE": "governance", "COMPLIANCE": "compliance"}


@dataclass(frozen=True, slots=True)
class BucketLock:
    """The bucket's settings of locks; ``enabled`` None: it does not say. ``default``: of objects put without one."""

    enabled: bool | None
    default: ObjectLock | None = None


@dataclass(frozen=True, slots=True)
class VersionLock:
    """The lock of a version: ``until`` in seconds since the epoch."""

    mode: LockMode
    until: float


def make_lock_params(lock: ObjectLock, now: float) -> dict[str, Any]:
    """Return what a put says of its lock, as boto3's parameters."""
    return {"ObjectLockMode": lock.mode.upper(), "ObjectLockRetainUntilDate": make_date(now + lock.span)}


def make_date(at: float) -> datetime:
    """Whole seconds: all stores understand them."""
    return datetime.fromtimestamp(int(at), UTC)


def list_versions(asking: Asking, bucket: str, prefix: str, after: str) -> Iterator[ListedVersion]:
    """See ObjectStore.versions. Asks for a page at a time, when it is wanted.

    RGW begins with the key of a marker, where S3 begins after it.
    """
    where, last = {"KeyMarker": after} if after else {}, after
    held: list[ListedVersion] = []
    begun, empty = set[frozenset[tuple[str, str]]](), 0
    while True:
        with asking(f"the versions below {prefix} cannot be listed", "list") as client:
            page = client.list_object_versions(Bucket=bucket, Prefix=prefix, MaxKeys=LISTING_PAGE, **where)
        found = [_of(item, marker=False) for item in page.get("Versions", ())]
        found += [_of(item, marker=True) for item in page.get("DeleteMarkers", ())]
        # Of a key whose versions go over two pages the second may belong before the end of the first.
        held = sorted([*held, *(one for one in found if one.key != after)], key=_order)
        more = bool(page.get("IsTruncated"))
        if held and (held[0].key <= last or not all(one.key.startswith(prefix) for one in held)):
            raise _listed_wrongly(
                prefix, f"{held[0].key} comes where it cannot be, after {last or 'nothing'}"
            )
        whole = [one for one in held if not more or one.key != held[-1].key]
        yield from whole
        last, held = whole[-1].key if whole else last, held[len(whole) :]
        if not more:
            return
        following = {
            "KeyMarker": page.get("NextKeyMarker"),
            "VersionIdMarker": page.get("NextVersionIdMarker"),
        }
        following = {name: value for name, value in following.items() if value}
        where, before = following, len(begun)
        begun.add(frozenset(where.items()))
        empty = 0 if found else empty + 1
        if len(begun) == before or empty > EMPTY_PAGES or "KeyMarker" not in where:
            raise _listed_wrongly(prefix, "it does not come to an end")


def _order(one: ListedVersion) -> tuple[str, float]:
    return one.key, -one.modified


def _of(item: dict[str, Any], *, marker: bool) -> ListedVersion:
    key, version, at = item.get("Key"), item.get("VersionId"), item.get("LastModified")
    size = 0 if marker else item.get("Size")
    if not (isinstance(key, str) and isinstance(version, str) and isinstance(at, datetime)):
        raise _listed_wrongly("versions", "it has an entry without a key, a version or a date")
    if not isinstance(size, int) or size < 0:
        raise _listed_wrongly("versions", f"{key} has no size")
    return ListedVersion(key, version, size, str(item.get("ETag", "")).strip('"'), at.timestamp(), marker)


def _listed_wrongly(prefix: str, why: str) -> ObjectDamaged:
    return ObjectDamaged(
        f"the listing of {prefix} cannot be right", why, "see what is wrong with the object store"
    )


def advise_on_denied_lock(error: StoreDenied) -> StoreDenied:
    """A put with a lock that was refused, with what to do where the lock may be the reason."""
    status = getattr(error.__cause__, "response", {}).get("ResponseMetadata", {}).get("HTTPStatusCode")
    if status not in (400, 501):
        return error
    following = (
        "see that the bucket has object lock, and the store knows the mode that lock= of the device names"
    )
    return StoreDenied(error.what, error.why, following)


def retain_version(asking: Asking, bucket: str, key: str, version: str, mode: LockMode, until: float) -> None:
    """See ObjectStore.retain."""
    wanted = {"Mode": mode.upper(), "RetainUntilDate": make_date(until)}
    with asking(f"{key} cannot be locked for longer", "read") as client:
        client.put_object_retention(Bucket=bucket, Key=key, VersionId=version, Retention=wanted)


def delete_versions(asking: Asking, bucket: str, versions: Sequence[ListedVersion]) -> list[ListedVersion]:
    """See ObjectStore.delete_versions. A thousand in a request."""
    left: list[ListedVersion] = []
    for begin in range(0, len(versions), LISTING_PAGE):
        some = versions[begin : begin + LISTING_PAGE]
        named = [{"Key": one.key, "VersionId": one.version} for one in some]
        with asking(f"{len(some)} versions of objects cannot be removed", "delete") as client:
            answer = client.delete_objects(Bucket=bucket, Delete={"Objects": named, "Quiet": True})
        refused = {
            (error.get("Key"), error.get("VersionId")): error
            for error in answer.get("Errors", ())
            if error.get("Code") not in _NOT_THERE
        }
        for (key, _), error in refused.items():
            if error.get("Code") not in _REFUSED:
                raise make_answer_error(f"{key} cannot be removed", "delete", {"Error": error})
        left += [one for one in some if (one.key, one.version) in refused]
    return left


def read_bucket_lock(asking: Asking, bucket: str) -> BucketLock:
    """Ask what the bucket says of locks. Raises StoreUnreachable, and StoreDenied where there is no such bucket."""
    what = f"whether the bucket {bucket} locks its objects cannot be seen"
    try:
        with asking(what, "list") as client:
            found = client.get_object_lock_configuration(Bucket=bucket).get("ObjectLockConfiguration", {})
    except StoreDenied as error:
        code = _code(error)
        if code == "NoSuchBucket":
            raise
        return BucketLock(False if code == "ObjectLockConfigurationNotFoundError" else None)
    rule = found.get("Rule", {}).get("DefaultRetention", {})
    days = rule.get("Days", 0) + 365 * rule.get("Years", 0)
    mode = _MODES.get(rule.get("Mode", ""))
    default = ObjectLock(mode, days * SECONDS_PER_DAY) if mode is not None and days > 0 else None
    return BucketLock(found.get("ObjectLockEnabled") == "Enabled", default)


def read_version_lock(asking: Asking, bucket: str, key: str, version: str) -> VersionLock | None:
    """Ask how a version is locked; None where it is not, or the store does not say. Raises ObjectMissing,
    StoreError.
    """
    with asking(f"{key} cannot be looked at", "read") as client:
        found = client.head_object(Bucket=bucket, Key=key, VersionId=version)
    mode, until = _MODES.get(found.get("ObjectLockMode", "")), found.get("ObjectLockRetainUntilDate")
    return None if mode is None or until is None else VersionLock(mode, until.timestamp())


def bypass_lock(asking: Asking, bucket: str, key: str, version: str) -> None:
    """Remove a version as one who may bypass a lock in governance mode. Raises StoreDenied, StoreError."""
    with asking(f"{key} cannot be removed", "delete") as client:
        client.delete_object(Bucket=bucket, Key=key, VersionId=version, BypassGovernanceRetention=True)


def _code(error: StoreError) -> str:
    answer = getattr(error.__cause__, "response", {})
    return str(answer.get("Error", {}).get("Code", ""))
