"""An object store between a test and another store: it counts the calls and lets any of them go wrong.

A model test walks over all calls: it runs once with no fault to see how many there are (``calls``), or lets
hypothesis draw a ``Fault``. After a crash the process is dead: every further call, of whatever thread, crashes too.
The test then makes a new FaultyStore over the same store, and may call ``settle`` on the dead one at any later
time: puts that were still on their way arrive then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from zvault.core.policy.object_lock import LockMode
from zvault.object_store.interface import (
    SMALL_OBJECT,
    Buffer,
    ListedObject,
    ListedVersion,
    ObjectStore,
    StoreError,
    StoreUnreachable,
)

T = TypeVar("T")

Wrong = Literal["crash before", "crash after", "refused", "lost", "twice", "late", "crash late"]
"""What goes wrong with a call: the process dies before or after it is carried out; it is not carried out; it is,
but its answer is lost; it is carried out twice; its answer is lost and it is carried out only after later
calls; the same, and the process dies at once."""

WRONG: tuple[Wrong, ...] = ("crash before", "crash after", "refused", "lost", "twice", "late", "crash late")


class Crash(BaseException):
    """The process died here. No ``except Exception`` may catch it."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a store; ``number`` counts from 0, ``key`` is the key, the prefix, or all keys with a space between."""

    number: int
    name: str
    key: str


@dataclass(frozen=True, slots=True)
class Fault:
    """``wrong`` happens to call number ``at``; ``after`` more calls, a late one is carried out."""

    at: int
    wrong: Wrong
    after: int = 1


Hook = Callable[[Literal["before", "after"], Call], None]


class FaultyStore:
    """``hook`` is called before and after each call and may raise; ``faults`` come beside it. Safe for threads.

    A put that is carried out late or twice keeps its condition, and fails quietly where that does not hold any more.
    Of a listing whose answer is lost the first half comes.
    """

    def __init__(self, store: ObjectStore, faults: Sequence[Fault] = (), hook: Hook | None = None) -> None:
        self.store = store
        self.dead = False
        self.calls: list[Call] = []
        self._faults = {fault.at: fault for fault in faults}
        self._hook = hook or (lambda _when, _call: None)
        self._late: list[tuple[int, Callable[[], object]]] = []
        self._lock = threading.RLock()

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        return self._do("get", key, lambda: self.store.get(key, start, length))

    def tail(self, key: str, length: int) -> tuple[bytes, int]:
        return self._do("tail", key, lambda: self.store.tail(key, length))

    def read(self, key: str, most: int = SMALL_OBJECT) -> tuple[bytes, str]:
        return self._do("read", key, lambda: self.store.read(key, most))

    def put(self, key: str, data: Buffer, condition: str | None = None) -> str:
        content = bytes(data)
        return self._do("put", key, lambda: self.store.put(key, content, condition))

    def list(self, prefix: str, after: str = "") -> Iterator[ListedObject]:
        found: list[ListedObject] = []
        try:
            self._do("list", prefix, lambda: found.__setitem__(slice(None), self.store.list(prefix, after)))
        except StoreUnreachable:
            yield from found[: len(found) // 2]
            raise
        yield from found

    def delete(self, keys: Sequence[str]) -> None:
        gone = tuple(keys)
        self._do("delete", " ".join(gone), lambda: self.store.delete(gone))

    def versions(self, prefix: str, after: str = "") -> Iterator[ListedVersion]:
        found: list[ListedVersion] = []
        self._do(
            "versions",
            prefix,
            lambda: found.__setitem__(slice(None), list(self.store.versions(prefix, after))),
        )
        yield from found

    def retain(self, key: str, version: str, mode: LockMode, until: float) -> None:
        self._do("retain", key, lambda: self.store.retain(key, version, mode, until))

    def delete_versions(self, versions: Sequence[ListedVersion]) -> Sequence[ListedVersion]:
        gone = tuple(versions)
        names = " ".join(one.key for one in gone)
        return self._do("delete_versions", names, lambda: self.store.delete_versions(gone))

    def settle(self) -> None:
        """Carry out all that is still on its way."""
        with self._lock:
            late, self._late = self._late, []
        for _, action in late:
            _quietly(action)

    def _do(self, name: str, key: str, action: Callable[[], T]) -> T:
        call, fault = self._begin(name, key)
        self._hook("before", call)
        wrong = fault.wrong if fault is not None else ""
        if fault is not None and wrong in ("late", "crash late"):
            with self._lock:
                self._late.append((call.number + fault.after, action))
        if wrong.startswith("crash") and wrong != "crash after":
            self._die(call)
        if wrong in ("refused", "late"):
            raise StoreUnreachable(f"{name} {key}", wrong, "")
        answer = action()
        if wrong == "twice":
            _quietly(action)
        if wrong == "crash after":
            self._die(call)
        self._hook("after", call)
        if wrong == "lost":
            raise StoreUnreachable(f"{name} {key}", wrong, "")
        return answer

    def _begin(self, name: str, key: str) -> tuple[Call, Fault | None]:
        with self._lock:
            if self.dead:
                raise Crash(f"{name} {key}, of a dead process")
            call = Call(len(self.calls), name, key)
            self.calls.append(call)
            due = [action for when, action in self._late if when < call.number]
            self._late = [(when, action) for when, action in self._late if when >= call.number]
        for action in due:
            _quietly(action)
        return call, self._faults.get(call.number)

    def _die(self, call: Call) -> None:
        self.dead = True
        raise Crash(f"at call {call.number}: {call.name} {call.key}")


def _quietly(action: Callable[[], object]) -> None:
    """Carry out what nobody waits for the answer of."""
    try:
        action()
    except StoreError:
        return
