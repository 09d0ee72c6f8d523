"""What the block store asks of an object store, and how that may fail. Knows no client library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from zvault.core.errors import ZvaultError
from zvault.core.policy.object_lock import LockMode

Buffer = bytes | bytearray | memoryview

LISTING_PAGE = 1000
"""Objects that one request lists or removes."""
SMALL_OBJECT = 1 << 20
"""Bytes: more than any object has that only says who, what and since when."""
LARGEST_OBJECT = 64 << 20
"""Bytes: more than any object of data that is put. A store that knows no ranges sends so much at most."""

NO_OBJECT_YET = ""
"""As the condition of a put: there must be no object of that key yet."""


_AT = "\0"


def describe_loss(data: Buffer) -> str:
    """What an object of nothing but zero bytes tells of its store, in words; "" for any other object.

    Seen with VersityGW on ext4: it answers a put before the bytes are on disk, and its host's power went.
    """
    if bytes(data).strip(b"\0"):
        return ""
    what = "it is nothing but zero bytes" if memoryview(data).nbytes else "it is empty"
    why = (
        "the store lost it after it had answered the put, as one that does not sync does when its power goes"
    )
    return f"{what}: {why}"


class StoreError(ZvaultError):
    """The object store did not do what it was asked."""

    reason = "object-store"


class ObjectMissing(StoreError):
    """There is no such object."""


class PreconditionFailed(StoreError):
    """A put whose condition does not hold: somebody else put first."""


class StoreDenied(StoreError):
    """It will not do it for us: keys, permissions, no such bucket. May pass when somebody repairs it."""


class Unsupported(StoreDenied):
    """It cannot do this at all (501, another protocol): to wait for that is in vain."""


class StoreUnreachable(StoreError):
    """It did not answer, answered too late, or said that it is too busy (429, 500, 503). Worth another try."""

    retryable = True


class ObjectDamaged(StoreError):
    """An object is not what was put there."""

    reason = "damaged"


class ObjectTooLarge(ObjectDamaged):
    """More came than there can rightly be; it was not read to its end."""


@dataclass(frozen=True, slots=True)
class ListedObject:
    """One object of a listing; ``size`` in bytes."""

    key: str
    size: int


@dataclass(frozen=True, slots=True)
class ListedVersion:
    """A version of an object, or a delete marker that hides those before it.

    ``modified``: when it was put, by the store's clock, in seconds since the epoch. A bucket without versions has one
    of each object.
    """

    key: str
    version: str
    size: int
    etag: str
    modified: float
    marker: bool = False


def join_version(key: str, version: str) -> str:
    """Return what to read in place of a key, to have that version of it."""
    return f"{key}{_AT}{version}"


def split_version(name: str) -> tuple[str, str]:
    """A key, and the version of it that is meant; "": the newest."""
    key, _, version = name.partition(_AT)
    return key, version


class ObjectStore(Protocol):
    """Objects of one bucket. Safe to call from several threads; each call waits until it is done.

    Every call raises StoreUnreachable or StoreDenied. An answer that was lost may have been carried out. Where a key
    is read, ``join_version`` may stand.
    """

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Part of an object, in bytes; less where it ends sooner. Raises ObjectMissing, ObjectTooLarge."""

    def tail(self, key: str, length: int) -> tuple[bytes, int]:
        """The last ``length`` bytes of an object, or all, and its whole size. Raises ObjectMissing."""

    def read(self, key: str, most: int = SMALL_OBJECT) -> tuple[bytes, str]:
        """Fetch a whole object of at most ``most`` bytes, and its ETag.

        Raises ObjectMissing, ObjectTooLarge, and ObjectDamaged for an object without an ETag.
        """

    def put(self, key: str, data: Buffer, condition: str | None = None) -> str:
        """Put a whole object; return its ETag. ``condition``: NEW, or the ETag it must still have.

        Raises PreconditionFailed where it does not hold.
        """

    def list(self, prefix: str, after: str = "") -> Iterator[ListedObject]:
        """Objects whose key begins with ``prefix`` and comes after ``after``, in order of their keys' bytes.

        Raises ObjectDamaged for a listing that is not that.
        """

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; those that are not there count as removed."""

    def versions(self, prefix: str, after: str = "") -> Iterator[ListedVersion]:
        """All versions and delete markers of keys as ``list`` has them: by key, the newest first.

        Raises ObjectDamaged for a listing that is not that.
        """

    def retain(self, key: str, version: str, mode: LockMode, until: float) -> None:
        """Lock a version until then, in seconds since the epoch.

        Raises ObjectMissing; StoreDenied where it is longer already.
        """

    def delete_versions(self, versions: Sequence[ListedVersion]) -> Sequence[ListedVersion]:
        """Remove versions for good; those that the store refuses to. One that is not there counts as removed."""
