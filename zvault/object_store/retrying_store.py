"""A store that is asked again until it answers, and the telling of what is waited for.

What may pass (Unreachable; a Denied that is ``retryable``, as one of keys that ran out) is tried again for ever,
after at most 0.1 to 30 s, with full jitter. Any other Denied wants a person: it is tried again each 30 s, and raised
after ``patience``; Unsupported at once. ObjectMissing and PreconditionFailed are answers.

A put whose answer was lost may have been carried out; tried again with its condition, it then finds itself in the
way. So after a try without an answer, an object with the very same bytes is taken for the one that was put. Hence
what two writers put under a condition must differ: by the writer's name, epoch, or a random mark.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from zvault.core.policy.backoff import FULL_JITTER, iterate_delays
from zvault.core.policy.object_lock import LockMode
from zvault.core.units import format_duration
from zvault.object_store.interface import (
    LISTING_PAGE,
    SMALL_OBJECT,
    Buffer,
    ListedObject,
    ListedVersion,
    ObjectDamaged,
    ObjectMissing,
    ObjectStore,
    PreconditionFailed,
    StoreDenied,
    StoreError,
    StoreUnreachable,
    Unsupported,
)

T = TypeVar("T")

FIRST_RETRY_DELAY, LONGEST_RETRY_DELAY = 0.1, 30.0
"""Seconds: the bound of the wait after the first failure, and of all later ones; it doubles in between."""

DENIED_PATIENCE = 600.0
"""Seconds that a Denied may last until it is raised."""

HICCUP = 1.0
"""Seconds: an outage that is over sooner is not told of. Stores answer 503 now and then when they are well."""

REMIND = 300.0
"""Seconds after which an outage that lasts is told of again."""


@dataclass(frozen=True, slots=True, eq=False)
class _Wait:
    """A call, and since when it waits for the store."""

    since: float


class RetryingStore:
    """An ObjectStore that waits for another one. Safe for threads; each waits for itself.

    Raises, besides answers, only the last error of a call: once ``stopping`` is set, when ``patience`` is over for
    a Denied, or when a call that reads (get, tail, read, list) has waited ``bound`` seconds (None: for ever).
    Until the store has answered anything at all, no call waits longer than ``first_bound`` seconds (None: it does): an
    endpoint that is wrong, a port of another protocol, a clock that is off never answer.
    ``say`` is told of an outage when it begins, every five minutes while it lasts, and when it is over. ``clock``
    gives seconds that never go back; ``sleep`` waits so many seconds, and less once ``stopping`` is set (by default,
    it waits for ``stopping``); ``chance`` gives numbers from 0 to 1.
    """

    def __init__(  # noqa: PLR0913 - what it waits by is passed in
        self,
        store: ObjectStore,
        *,
        stopping: threading.Event,
        say: Callable[[str], None],
        patience: float = DENIED_PATIENCE,
        bound: float | None = None,
        first_bound: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._store, self._stopping = store, stopping
        self._patience, self._bound = patience, bound
        self._first_bound = first_bound
        self._has_answered = False
        self._clock, self._sleep, self._chance = clock, sleep or stopping.wait, chance
        self._outage = _Outage(say)

    @property
    def trouble(self) -> str | None:
        """The wait in words, and for how long already; None while all goes well."""
        return self._outage.describe(self._clock())

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        return self._persist(lambda: self._store.get(key, start, length), self._bound)

    def tail(self, key: str, length: int) -> tuple[bytes, int]:
        return self._persist(lambda: self._store.tail(key, length), self._bound)

    def read(self, key: str, most: int = SMALL_OBJECT) -> tuple[bytes, str]:
        return self._persist(lambda: self._store.read(key, most), self._bound)

    def put(self, key: str, data: Buffer, condition: str | None = None) -> str:
        if condition is None:
            return self._persist(lambda: self._store.put(key, data))
        unclear = False

        def put() -> str:
            nonlocal unclear
            try:
                return self._store.put(key, data, condition)
            except StoreUnreachable:
                unclear = True
                raise
            except PreconditionFailed:
                etag = self._own(key, data) if unclear else None
                if etag is None:
                    raise
                return etag

        return self._persist(put)

    def list(self, prefix: str, after: str = "") -> Iterator[ListedObject]:
        """See ObjectStore. Goes on behind what was had already."""
        again = self._again(lambda: self._store.list(prefix, after))
        while (item := self._persist(again, self._bound)) is not None:
            yield item
            after = item.key

    def versions(self, prefix: str, after: str = "") -> Iterator[ListedVersion]:
        """See ObjectStore. Goes on with the key that the listing broke off at, and leaves out what was had of it."""
        before, had = "", set[str]()
        again = self._again(lambda: self._store.versions(prefix, after))
        while (item := self._persist(again, self._bound)) is not None:
            if item.key != before:
                # Of the key before this one all was had.
                after, before, had = before or after, item.key, set()
            if item.version not in had:
                had.add(item.version)
                yield item

    def _again(self, listed: Callable[[], Iterator[T]]) -> Callable[[], T | None]:
        """What gives a listing's next; after an error it begins anew."""
        listing: Iterator[T] | None = None

        def following() -> T | None:
            nonlocal listing
            try:
                listing = listing or iter(listed())
                return next(listing, None)
            except StoreError:
                listing = None
                raise

        return following

    def retain(self, key: str, version: str, mode: LockMode, until: float) -> None:
        self._persist(lambda: self._store.retain(key, version, mode, until))

    def delete_versions(self, versions: Sequence[ListedVersion]) -> Sequence[ListedVersion]:
        return self._persist(lambda: self._store.delete_versions(versions))

    def delete(self, keys: Sequence[str]) -> None:
        """See ObjectStore. Each thousand objects are tried by themselves: what was removed is not asked for again."""
        for begin in range(0, len(keys), LISTING_PAGE):
            self._persist(partial(self._store.delete, keys[begin : begin + LISTING_PAGE]))

    def _own(self, key: str, data: Buffer) -> str | None:
        """The ETag of the object if it is what was to be put."""
        try:
            found, etag = self._store.read(key, memoryview(data).nbytes)
        except (ObjectMissing, ObjectDamaged):
            return None
        return etag if found == data else None

    def _persist(self, call: Callable[[], T], bound: float | None = None) -> T:
        """Call until there is an answer; raises the last error when there will be none."""
        began, denied = self._clock(), None
        wait, pauses = (
            _Wait(began),
            iterate_delays(FIRST_RETRY_DELAY, LONGEST_RETRY_DELAY, jitter=FULL_JITTER, chance=self._chance),
        )
        while True:
            try:
                answer = call()
            except (ObjectMissing, PreconditionFailed):
                self._has_answered = True
                self._outage.ended(wait, self._clock())
                raise
            except Unsupported:
                self._outage.given_up(wait)
                raise
            except (StoreUnreachable, StoreDenied) as error:
                now = self._clock()
                self._outage.lasts(wait, error, now)
                if not isinstance(error, StoreDenied) or error.retryable:
                    pause, left, denied = next(pauses), math.inf, None
                else:
                    denied = now if denied is None else denied
                    pause, left = LONGEST_RETRY_DELAY, denied + self._patience - now
                if bound is not None:
                    left = min(left, began + bound - now)
                if self._first_bound is not None and not self._has_answered:
                    left = min(left, began + self._first_bound - now)
                if left <= 0 or self._stopping.is_set():
                    self._outage.given_up(wait)
                    raise
                self._sleep(min(pause, left))
            except BaseException:
                self._outage.given_up(wait)
                raise
            else:
                self._has_answered = True
                self._outage.ended(wait, self._clock())
                return answer


class _Outage:
    """What all threads wait for, as one story. It is over when the store answered a call and no other waits."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._lock = threading.Lock()
        self._waits: set[_Wait] = set()
        self._since: float | None = None
        self._told: float | None = None
        self._error: StoreError | None = None

    def describe(self, now: float) -> str | None:
        """Say in words what is waited for and for how long already; None while all goes well."""
        with self._lock:
            return None if self._since is None else self._words(self._since, now)

    def lasts(self, wait: _Wait, error: StoreError, now: float) -> None:
        """Note that a call failed and will be made again, or given up."""
        with self._lock:
            self._waits.add(wait)
            self._error = error
            self._since = wait.since if self._since is None else self._since
            hiccup = HICCUP if isinstance(error, StoreUnreachable) else 0.0
            if now < (self._since + hiccup if self._told is None else self._told + REMIND):
                return
            self._told, words = now, self._words(self._since, now)
        self._say(words)

    def ended(self, wait: _Wait, now: float) -> None:
        """Note that a call had its answer."""
        if self._since is None:
            return
        with self._lock:
            self._waits.discard(wait)
            if self._waits or self._since is None:
                return
            lasted, told = now - self._since, self._told is not None
            self._since = self._told = self._error = None
        if told:
            self._say(f"the object store answers again, after {format_duration(lasted)}")

    def given_up(self, wait: _Wait) -> None:
        """Note that a call waits no more, though it had no answer: that does not end the outage."""
        with self._lock:
            self._waits.discard(wait)

    def _words(self, since: float, now: float) -> str:
        return f"waiting for the object store for {format_duration(now - since)}: {self._error}"
