"""A bucket in memory that keeps versions and locks them, as S3 does with object lock; see s3_versions.py for RGW's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.unit.object_store.memory_store import MemoryStore, etag
from zvault.core.policy.object_lock import LockMode, ObjectLock
from zvault.object_store.interface import (
    NO_OBJECT_YET,
    Buffer,
    ListedVersion,
    ObjectMissing,
    PreconditionFailed,
    StoreDenied,
    split_version,
)


@dataclass
class Version:
    """``data`` None: a delete marker. ``until``: locked up to then; 0: never."""

    id: str
    data: bytes | None
    modified: float
    mode: str = ""
    until: float = 0.0


class LockingStore(MemoryStore):
    """``lock`` is that of what is put. ``may`` has what its key has the right to: delete, retain."""

    def __init__(self, clock: Callable[[], float], lock: ObjectLock | None) -> None:
        super().__init__()
        self.clock, self.lock = clock, lock
        self.may = {"delete", "retain"}
        self.kept: dict[str, list[Version]] = {}
        """Of each key, the oldest first."""
        self.retained = 0
        self._ids = 0

    def put(self, key: str, data: Buffer, condition: str | None = None) -> str:
        content = bytes(data)
        with self._lock:
            there = self.objects.get(key)
            if condition is not None and condition != (NO_OBJECT_YET if there is None else etag(there)):
                raise PreconditionFailed(f"{key} was not put", "it is not what it should be", "")
            self._add(key, content)
            self.objects[key] = content
        return etag(content)

    def delete(self, keys: Sequence[str]) -> None:
        self._see("delete")
        with self._lock:
            for key in keys:
                self._add(key, None)
                self.objects.pop(key, None)

    def versions(self, prefix: str, after: str = "") -> Iterator[ListedVersion]:
        with self._lock:
            found = [
                ListedVersion(
                    key, one.id, len(one.data or b""), etag(one.data or b""), one.modified, one.data is None
                )
                for key in sorted(self.kept)
                if key.startswith(prefix) and key > after
                for one in reversed(self.kept[key])
            ]
        yield from found

    def retain(self, key: str, version: str, mode: LockMode, until: float) -> None:
        self._see("retain")
        with self._lock:
            one = self._version(key, version)
            if until < one.until or (one.mode == "compliance" and mode != "compliance"):
                raise StoreDenied(f"{key} cannot be locked for longer", "it is locked for longer", "")
            one.mode, one.until = mode, until
            self.retained += 1

    def delete_versions(self, versions: Sequence[ListedVersion]) -> Sequence[ListedVersion]:
        self._see("delete")
        left = []
        with self._lock:
            for named in versions:
                kept = self.kept.get(named.key, [])
                one = next((it for it in kept if it.id == named.version), None)
                if one is not None and one.until > self.clock():
                    left.append(named)
                elif one is not None:
                    kept.remove(one)
                    self._current(named.key)
        return left

    def _see(self, right: str) -> None:
        if right not in self.may:
            raise StoreDenied("it is not done", "the store answers 403 AccessDenied", "")

    def _add(self, key: str, data: bytes | None) -> None:
        self._ids += 1
        one = Version(f"v{self._ids}", data, self.clock())
        if data is not None and self.lock is not None:
            one.mode, one.until = self.lock.mode, self.clock() + self.lock.span
        self.kept.setdefault(key, []).append(one)

    def _current(self, key: str) -> None:
        kept = self.kept[key]
        self.objects.pop(key, None)
        if not kept:
            del self.kept[key]
        elif (data := kept[-1].data) is not None:
            self.objects[key] = data

    def _version(self, key: str, version: str) -> Version:
        for one in self.kept.get(key, []):
            if one.id == version:
                return one
        raise ObjectMissing(f"{key} cannot be read", "there is no such version", "")

    def _find(self, key: str) -> bytes:
        name, version = split_version(key)
        if not version:
            return super()._find(key)
        with self._lock:
            data = self._version(name, version).data
        if data is None:
            raise ObjectMissing(f"{name} cannot be read", "it is a delete marker", "")
        return data
