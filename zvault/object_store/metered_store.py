"""How many requests a store was asked, how long they took, and what they moved; within a budget of them, if any."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import TypeVar

from zvault.api.blockstore import REQUEST_KINDS, RequestCount, RequestKind
from zvault.core.policy.object_lock import LockMode
from zvault.object_store.interface import (
    LISTING_PAGE,
    SMALL_OBJECT,
    Buffer,
    ListedObject,
    ListedVersion,
    ObjectMissing,
    ObjectStore,
    PreconditionFailed,
)
from zvault.object_store.request_budget import RequestBudget

T = TypeVar("T")

MOVING_KINDS: tuple[RequestKind, ...] = ("put", "get")
"""Those that move what is in objects."""

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds: upper bounds of the histogram's buckets, without the last, which has none."""

EMPTY_PAGES = 100
"""So many pages of a listing in a row may have nothing in them."""


@dataclass(frozen=True, slots=True)
class RequestTally:
    """Requests of one kind so far.

    ``bytes`` of objects' contents that were had or put; ``seconds`` of all requests together; ``errors`` are those
    that had no answer or were denied. ``buckets`` is how many took at most each of BOUNDS, and how many there are.
    """

    requests: int
    errors: int
    bytes: int
    seconds: float
    buckets: tuple[int, ...]

    def as_dict(self) -> RequestCount:
        """For a status in JSON."""
        return {
            "requests": self.requests,
            "errors": self.errors,
            "bytes": self.bytes,
            "seconds": self.seconds,
            "buckets": self.buckets,
        }


@dataclass(slots=True)
class _Tally:
    requests: int = 0
    errors: int = 0
    bytes: int = 0
    seconds: float = 0.0
    slots: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))


class MeteredStore:
    """An ObjectStore that counts, and keeps to a budget. Safe for threads. ``clock`` gives seconds that never go back.

    To count what is really sent it stands next to the store, within what waits and tries again. The time that it waits
    for its budget does not count. Where it is not known how much will come, that is taken from the budget afterwards.
    """

    def __init__(
        self,
        store: ObjectStore,
        clock: Callable[[], float] = time.monotonic,
        budget: RequestBudget | None = None,
    ) -> None:
        self._store, self._clock = store, clock
        self._budget = budget or RequestBudget()
        self._lock = threading.Lock()
        self._tallies = {kind: _Tally() for kind in REQUEST_KINDS}

    def counts(self) -> Mapping[RequestKind, RequestTally]:
        """Return the counts so far, by kind."""
        with self._lock:
            return {
                kind: RequestTally(it.requests, it.errors, it.bytes, it.seconds, tuple(accumulate(it.slots)))
                for kind, it in self._tallies.items()
            }

    def totals(self) -> dict[str, int]:
        """Requests so far by kind, and the bytes put and had, as ``put_bytes`` and ``get_bytes``."""
        with self._lock:
            totals = {str(kind): it.requests for kind, it in self._tallies.items()}
            return totals | {f"{kind}_bytes": self._tallies[kind].bytes for kind in MOVING_KINDS}

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        return self._measure("get", lambda: self._store.get(key, start, length), len, down=length or 0)

    def tail(self, key: str, length: int) -> tuple[bytes, int]:
        return self._measure(
            "get", lambda: self._store.tail(key, length), lambda found: len(found[0]), down=length
        )

    def read(self, key: str, most: int = SMALL_OBJECT) -> tuple[bytes, str]:
        return self._measure("get", lambda: self._store.read(key, most), lambda found: len(found[0]), down=0)

    def put(self, key: str, data: Buffer, condition: str | None = None) -> str:
        size = memoryview(data).nbytes
        return self._measure("put", lambda: self._store.put(key, data, condition), lambda _: size, up=size)

    def list(self, prefix: str, after: str = "") -> Iterator[ListedObject]:
        """See ObjectStore. Each thousand objects are a request; the first of them is what takes its time."""
        return self._paged(self._store.list(prefix, after))

    def versions(self, prefix: str, after: str = "") -> Iterator[ListedVersion]:
        """See ObjectStore. Counts as list does."""
        return self._paged(self._store.versions(prefix, after))

    def retain(self, key: str, version: str, mode: LockMode, until: float) -> None:
        """See ObjectStore. Stores count it as a put."""
        self._measure("put", lambda: self._store.retain(key, version, mode, until), lambda _: 0)

    def delete_versions(self, versions: Sequence[ListedVersion]) -> Sequence[ListedVersion]:
        """See ObjectStore. Each thousand are a request."""
        left: Sequence[ListedVersion] = ()
        for begin in range(0, len(versions), LISTING_PAGE):
            some = versions[begin : begin + LISTING_PAGE]
            left = [*left, *self._measure("delete", partial(self._store.delete_versions, some), lambda _: 0)]
        return left

    def _paged(self, listed: Iterator[T]) -> Iterator[T]:
        listing = iter(listed)
        number = 0
        self._budget.take(requests=1)
        while True:
            began = self._clock()
            try:
                item = next(listing, None)
            except Exception as error:
                self._note("list", began, 0, error)
                raise
            # A page says whether another one follows: there is none that is asked for in vain, but the first.
            if number % LISTING_PAGE == 0 and (item is not None or number == 0):
                self._note("list", began, 0)
                if number:
                    self._budget.take(requests=1)
            if item is None:
                return
            number += 1
            yield item

    def delete(self, keys: Sequence[str]) -> None:
        """See ObjectStore. Each thousand objects are a request."""
        for begin in range(0, len(keys), LISTING_PAGE):
            self._measure(
                "delete", partial(self._store.delete, keys[begin : begin + LISTING_PAGE]), lambda _: 0
            )

    def _measure(
        self,
        kind: RequestKind,
        call: Callable[[], T],
        size: Callable[[T], int],
        *,
        up: int | None = None,
        down: int | None = None,
    ) -> T:
        """Make one request. ``up`` and ``down``: the bytes that it will move, as far as that is known."""
        self._budget.take(1, up, down)
        began, came = self._clock(), 0
        try:
            answer = call()
            came = size(answer)
        except Exception as error:
            self._note(kind, began, 0, error)
            raise
        finally:
            if down is not None:
                self._budget.settle(came - down)
        self._note(kind, began, came)
        return answer

    def _note(self, kind: RequestKind, began: float, size: int, error: Exception | None = None) -> None:
        seconds = self._clock() - began
        with self._lock:
            tally = self._tallies[kind]
            tally.requests += 1
            tally.errors += error is not None and not isinstance(error, (ObjectMissing, PreconditionFailed))
            tally.bytes += size
            tally.seconds += seconds
            tally.slots[bisect_left(BOUNDS, seconds)] += 1
