"""For how long objects are locked in a store, and when a lock has to be made longer. Pure.

An object lock ends by itself, and a key that writes can only make it longer. So what is needed has to be locked again
and again, while somebody honest writes. Each lock is one request. Objects are locked for longer than what is promised,
so that all of them are locked again only now and then, together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

LockMode = Literal["governance", "compliance"]
"""Whether a key that has the right to may end a lock before its time, or nobody."""

LOCK_SPAN_FACTOR = 1.5
"""An object is locked for so many times what is promised."""
LOCK_DUE_FACTOR = 1.1
"""While all is locked for so many times what is promised nothing is done."""
MONTH_SECONDS = 30 * 86400.0


@dataclass(frozen=True, slots=True)
class ObjectLock:
    """A lock on objects: what is needed stays for ``seconds``, whatever its writer does from now on."""

    mode: LockMode
    seconds: float

    @property
    def span(self) -> float:
        """Seconds for which an object is locked when it is put, or locked again."""
        return self.seconds * LOCK_SPAN_FACTOR


def count_renewals(lock: ObjectLock) -> float:
    """Return how often a month each object that is needed is locked again."""
    return MONTH_SECONDS / (lock.seconds * (LOCK_SPAN_FACTOR - LOCK_DUE_FACTOR))


@dataclass(frozen=True, slots=True)
class LockState:
    """The progress of locking a store's objects. Times are in seconds since the epoch, 0 for none.

    All that is needed is locked until ``until`` at least, by ``mode``. A renewal ``begun`` and not over has come to the
    key ``after``. ``seen``: when all versions were listed last.
    """

    mode: LockMode | Literal[""] = ""
    until: float = 0.0
    begun: float = 0.0
    after: str = ""
    seen: float = 0.0

    def due(self, lock: ObjectLock, now: float) -> bool:
        """True if what is needed has to be locked again."""
        return self.mode != lock.mode or self.until - now < LOCK_DUE_FACTOR * lock.seconds

    def begin(self, lock: ObjectLock, now: float) -> LockState:
        """With a renewal that is due: the one that goes on, or where that would come too late, a new one."""
        if not self.due(lock, now):
            return self
        goes_on = 0 < self.begun <= now and self.begun + lock.span - now >= LOCK_DUE_FACTOR * lock.seconds
        return self if goes_on else replace(self, begun=now, after="")

    def come_to(self, key: str) -> LockState:
        """With a renewal that has done all up to this key."""
        return replace(self, after=key) if self.begun else self

    def done(self, lock: ObjectLock, now: float) -> LockState:
        """With the renewal over: what was put meanwhile is locked for longer than from its beginning."""
        if not self.begun:
            return replace(self, seen=now)
        return LockState(lock.mode, self.begun + lock.span, seen=now)
