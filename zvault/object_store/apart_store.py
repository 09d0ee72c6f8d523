"""Two buckets as one: an object that is put again and again has one of its own, which keeps no versions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zvault.core.policy.object_lock import LockMode
from zvault.object_store.interface import (
    SMALL_OBJECT,
    Buffer,
    ListedObject,
    ListedVersion,
    ObjectStore,
)


class ApartStore:
    """An ObjectStore in which the object ``key`` is in ``apart``. Listings do not have it."""

    def __init__(self, store: ObjectStore, apart: ObjectStore, key: str) -> None:
        self._store, self._apart, self._key = store, apart, key

    def _of(self, key: str) -> ObjectStore:
        return self._apart if key == self._key else self._store

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        return self._of(key).get(key, start, length)

    def tail(self, key: str, length: int) -> tuple[bytes, int]:
        return self._of(key).tail(key, length)

    def read(self, key: str, most: int = SMALL_OBJECT) -> tuple[bytes, str]:
        return self._of(key).read(key, most)

    def put(self, key: str, data: Buffer, condition: str | None = None) -> str:
        return self._of(key).put(key, data, condition)

    def list(self, prefix: str, after: str = "") -> Iterator[ListedObject]:
        return self._store.list(prefix, after)

    def delete(self, keys: Sequence[str]) -> None:
        for store in (self._store, self._apart):
            if some := [key for key in keys if self._of(key) is store]:
                store.delete(some)

    def versions(self, prefix: str, after: str = "") -> Iterator[ListedVersion]:
        return self._store.versions(prefix, after)

    def retain(self, key: str, version: str, mode: LockMode, until: float) -> None:
        self._store.retain(key, version, mode, until)

    def delete_versions(self, versions: Sequence[ListedVersion]) -> Sequence[ListedVersion]:
        return self._store.delete_versions(versions)
