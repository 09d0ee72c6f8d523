"""An object store in memory that keeps to what S3 promises: conditions, ETags of contents, listings by pages."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import xxhash

from zvault.core.policy.object_lock import LockMode
from zvault.object_store.interface import (
    NO_OBJECT_YET,
    SMALL_OBJECT,
    Buffer,
    ListedObject,
    ListedVersion,
    ObjectMissing,
    ObjectTooLarge,
    PreconditionFailed,
    StoreDenied,
    split_version,
)


class MemoryStore:
    """A bucket. As with S3, equal contents have equal ETags, and a listing sees what changes while it is read.

    ``objects`` may be looked at and changed by a test that has the store to itself. ``page`` is how many objects a
    listing asks for at once.
    """

    def __init__(self, page: int = 1000) -> None:
        self.objects: dict[str, bytes] = {}
        self.page = page
        self._lock = threading.Lock()

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        data = self._find(key)
        return data[start:] if length is None else data[start : start + length]

    def tail(self, key: str, length: int) -> tuple[bytes, int]:
        data = self._find(key)
        return data[max(0, len(data) - length) :], len(data)

    def read(self, key: str, most: int = SMALL_OBJECT) -> tuple[bytes, str]:
        data = self._find(key)
        if len(data) > most:
            raise ObjectTooLarge(f"{key} is not what was put there", f"it has {len(data)} bytes", "")
        return data, etag(data)

    def put(self, key: str, data: Buffer, condition: str | None = None) -> str:
        content = bytes(data)
        with self._lock:
            there = self.objects.get(key)
            if condition is not None and condition != (NO_OBJECT_YET if there is None else etag(there)):
                raise PreconditionFailed(f"{key} was not put", "it is not what it should be", "")
            self.objects[key] = content
        return etag(content)

    def list(self, prefix: str, after: str = "") -> Iterator[ListedObject]:
        while True:
            with self._lock:
                keys = sorted(key for key in self.objects if key.startswith(prefix) and key > after)
                found = [ListedObject(key, len(self.objects[key])) for key in keys[: self.page]]
            yield from found
            if len(keys) <= self.page:
                return
            after = found[-1].key

    def delete(self, keys: Sequence[str]) -> None:
        with self._lock:
            for key in keys:
                self.objects.pop(key, None)

    def versions(self, prefix: str, after: str = "") -> Iterator[ListedVersion]:
        for one in self.list(prefix, after):
            yield ListedVersion(one.key, "null", one.size, etag(self.objects[one.key]), 0.0)

    def retain(self, key: str, version: str, mode: LockMode, until: float) -> None:
        raise StoreDenied(f"{key} cannot be locked for longer", "the bucket has no object lock", "")

    def delete_versions(self, versions: Sequence[ListedVersion]) -> Sequence[ListedVersion]:
        self.delete([one.key for one in versions])
        return []

    def _find(self, key: str) -> bytes:
        name, version = split_version(key)
        with self._lock:
            if name not in self.objects or version not in ("", "null"):
                raise ObjectMissing(f"{name} cannot be read", "there is no such object", "")
            return self.objects[name]


def etag(data: bytes) -> str:
    """As S3 has it: the same for the same content, and never NEW. It is no MD5, which costs more than most tests."""
    return xxhash.xxh3_128_hexdigest(data)
