"""A bucket with versions as it was at a time, read only: what came later is not there, nor what it hid.

Of each object the oldest version counts: its writer puts each name once. When a version was put the store says, whose
clock nobody sets who has only a key to it. So what a key can do to a bucket from some time on changes nothing of what
is seen as of that time, as long as the versions of then are there: a lock sees to that.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from zvault.blockstore.needed_objects import ObjectVersions, group_versions
from zvault.core.errors import Refused
from zvault.core.policy.object_lock import LockMode
from zvault.object_store.interface import (
    SMALL_OBJECT,
    Buffer,
    ListedObject,
    ListedVersion,
    ObjectMissing,
    ObjectStore,
    join_version,
)


@dataclass(frozen=True, slots=True)
class HiddenObjects:
    """Objects that are there as of a time and have been hidden since by a delete marker, or put again with other
    contents; and objects that were put since only."""

    hidden: int
    overwritten: int
    later: int


class BucketAsOf:
    """An ObjectStore of what is below ``prefix``. All that is there is listed once, and kept in memory."""

    def __init__(self, store: ObjectStore, prefix: str, before: float) -> None:
        """``before`` in seconds since the epoch. Raises StoreError."""
        self._store = store
        self._found: dict[str, ListedVersion] = {}
        self._before = before
        self._many = 0
        self._oldest: ListedVersion | None = None
        hidden = overwritten = later = 0
        for one in group_versions(store.versions(f"{prefix}/")):
            self._note(one)
            then = [version for version in one.versions if version.modified <= before and not version.marker]
            if not then:
                later += 1
                continue
            # Whoever writes is said in one object, again and again.
            counts = then[0] if one.key == f"{prefix}/epoch" else then[-1]
            self._found[one.key] = counts
            hidden += one.versions[0].marker
            overwritten += any(
                not v.marker and v.etag != counts.etag and v.modified > before for v in one.versions
            )
        self._keys = sorted(self._found)
        self.passed_over = HiddenObjects(hidden, overwritten, later)

    def _note(self, one: ObjectVersions) -> None:
        self._many += 1
        for version in one.versions:
            if not version.marker and (self._oldest is None or version.modified < self._oldest.modified):
                self._oldest = version

    def describe_versions(self) -> str:
        """Which versions the bucket lists, for whoever finds none that is old enough."""
        if self._oldest is None:
            markers = f": {self._many} objects have nothing but delete markers" if self._many else ""
            return f"the bucket lists no version of any object there{markers}"
        first, when = self._oldest, _date(self._oldest.modified)
        if self._found:
            return (
                f"of {self._many} objects {len(self._found)} have a version of then; the oldest is of {when}"
            )
        return (
            f"the bucket lists versions of {self._many} objects, and all are of later than {_date(self._before)}:"
            f" the oldest is of {when} ({first.key})"
        )

    def put_at(self, key: str) -> float:
        """Return when an object was put, by the store's clock, in seconds since the epoch. Raises ObjectMissing."""
        return self._of(key).modified

    def __contains__(self, key: str) -> bool:
        return key in self._found

    def _of(self, key: str) -> ListedVersion:
        if key not in self._found:
            raise ObjectMissing(f"{key} cannot be read", "there was no such object then", "")
        return self._found[key]

    def _name(self, key: str) -> str:
        return join_version(key, self._of(key).version)

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        return self._store.get(self._name(key), start, length)

    def tail(self, key: str, length: int) -> tuple[bytes, int]:
        return self._store.tail(self._name(key), length)

    def read(self, key: str, most: int = SMALL_OBJECT) -> tuple[bytes, str]:
        return self._store.read(self._name(key), most)

    def list(self, prefix: str, after: str = "") -> Iterator[ListedObject]:
        for key in self._keys[bisect_right(self._keys, after) if after else 0 :]:
            if key.startswith(prefix):
                yield ListedObject(key, self._found[key].size)

    def versions(self, prefix: str, after: str = "") -> Iterator[ListedVersion]:
        for one in self.list(prefix, after):
            yield self._found[one.key]

    def put(self, key: str, data: Buffer, condition: str | None = None) -> str:
        """The past is not written to. Raises Refused."""
        raise _refused()

    def delete(self, keys: Sequence[str]) -> None:
        """Raises Refused: the past cannot be changed."""
        raise _refused()

    def retain(self, key: str, version: str, mode: LockMode, until: float) -> None:
        """Raises Refused: the past cannot be changed."""
        raise _refused()

    def delete_versions(self, versions: Sequence[ListedVersion]) -> Sequence[ListedVersion]:
        """Raises Refused: the past cannot be changed."""
        raise _refused()


def _date(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().isoformat(sep=" ", timespec="seconds")


def _refused() -> Refused:
    return Refused("a bucket as it was is not changed", "it is read as of a time that has passed", "")
