"""What one host knows of an object that another host writes: since when it has not changed.

Times are this host's own, by a clock that goes on while it sleeps (CLOCK_BOOTTIME) and that nobody sets. The store may
say how old the object is: a duration, for both of its times are from one answer. It is believed only within what this
host has seen itself: an object is at least as old as the time since this host first saw it, and younger than the time
since it last saw the one before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Generic, TypeVar

Said = TypeVar("Said")


@dataclass(frozen=True, slots=True)
class ForeignWatch(Generic[Said]):
    """One object as this host has seen it: ``said`` and ``etag`` are None and "" where there is none.

    ``first`` and ``last``: when this host first and last saw it so. ``before``: when it last saw another in its place;
    None where it never did. ``told``: how old the store said that it was at ``first``; None where it did not.
    """

    said: Said | None
    etag: str
    first: float
    last: float
    before: float | None = None
    told: float | None = None

    @classmethod
    def begin(cls, said: Said | None, etag: str, now: float, told: float | None = None) -> ForeignWatch[Said]:
        """Begin with what the first look saw, at ``now``."""
        return cls(said, etag, now, now, None, _sane(told))

    def look(self, said: Said | None, etag: str, now: float, told: float | None = None) -> ForeignWatch[Said]:
        """Return the watch after another look, at ``now``."""
        if etag == self.etag:
            return ForeignWatch(self.said, etag, self.first, max(self.last, now), self.before, self.told)
        return ForeignWatch(said, etag, now, now, self.last, _sane(told))

    def unchanged(self, now: float) -> float:
        """For how many seconds it has been so, at least, at the last look: by this host's own clock alone."""
        return max(0.0, min(now, self.last) - self.first)

    def age(self, now: float) -> float:
        """Return how many seconds ago it was written, at least; more only as far as the store is believed."""
        since = max(0.0, now - self.first)
        if self.told is None:
            return since
        return since + min(self.told, self._longest_at_first())

    def at_most(self, now: float) -> float:
        """Return how many seconds ago it was written, at most; infinite where neither the store nor a look before
        tells.
        """
        since = max(0.0, now - self.first)
        told = math.inf if self.told is None else self.told
        return since + min(told, self._longest_at_first())

    def fresh(self, now: float, within: float) -> bool:
        """True if this host looked no longer ago than ``within`` seconds."""
        return now - self.last <= within

    def _longest_at_first(self) -> float:
        return math.inf if self.before is None else max(0.0, self.first - self.before)


def _sane(told: float | None) -> float | None:
    """What a store says of an age; None for what can be none. A second's fraction below zero is rounding."""
    return max(0.0, told) if told is not None and math.isfinite(told) and told > -2.0 else None
