"""S3-FIFO, the order in which a cache gives up what it has.

After Yang, Zhang, Qiu, Yue, Rashmi: "FIFO queues are all you need for cache eviction", SOSP 2023. What is new goes to a
small queue; only what is asked for again while it is there goes on to the main queue, so a stream that passes once
pushes out nothing but itself. Of what fell out of the small queue the keys are remembered for a while (the ghosts),
and go to the main queue at once when they come again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

SMALL_PART = 10
"""One of so many entries is the small queue's."""
MOST_HITS = 3
"""Hits are counted up to here."""
ENOUGH_HITS = 2
"""With so many hits a key goes on from the small queue to the main one."""


@dataclass(frozen=True, slots=True)
class FifoState(Generic[Key]):
    """The queues, what goes first in front; keys with their hits."""

    small: list[tuple[Key, int]]
    main: list[tuple[Key, int]]
    ghosts: list[Key]


class S3Fifo(Generic[Key]):
    """Which of at most ``capacity`` keys, all of the same cost, are to be kept. Not safe for threads."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._small: OrderedDict[Key, int] = OrderedDict()
        self._main: OrderedDict[Key, int] = OrderedDict()
        self._ghosts: OrderedDict[Key, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._small) + len(self._main)

    def __contains__(self, key: Key) -> bool:
        return key in self._small or key in self._main

    def touch(self, key: Key) -> bool:
        """Note that a key was asked for; whether it is kept."""
        for queue in (self._small, self._main):
            hits = queue.get(key)
            if hits is not None:
                if hits < MOST_HITS:
                    queue[key] = hits + 1
                return True
        return False

    def insert(self, key: Key) -> list[Key]:
        """Take in a key that was not kept; those that have to go for it. A kept one is only touched."""
        if self.capacity <= 0 or self.touch(key):
            return []
        gone = self._shrink(self.capacity - 1)
        if key in self._ghosts:
            del self._ghosts[key]
            self._main[key] = 0
        else:
            self._small[key] = 0
        return gone

    def remove(self, key: Key) -> None:
        """Forget a key, if it is there."""
        self._small.pop(key, None)
        self._main.pop(key, None)
        self._ghosts.pop(key, None)

    def resize(self, capacity: int) -> list[Key]:
        """Keep at most so many from now on; those that have to go."""
        self.capacity = max(capacity, 0)
        return self._shrink(self.capacity)

    def state(self) -> FifoState[Key]:
        """The queues as they are, for restore()."""
        return FifoState(list(self._small.items()), list(self._main.items()), list(self._ghosts))

    def restore(self, state: FifoState[Key]) -> list[Key]:
        """Take these queues; of keys there are twice the first counts. Those that have no room."""
        self._small, self._main, self._ghosts = OrderedDict(), OrderedDict(), OrderedDict()
        for kept, queue in ((state.small, self._small), (state.main, self._main)):
            for key, hits in kept:
                if key not in self:
                    queue[key] = min(max(hits, 0), MOST_HITS)
        self._remember(key for key in state.ghosts if key not in self)
        return self._shrink(self.capacity)

    def _shrink(self, count: int) -> list[Key]:
        """Drop keys until there are at most so many."""
        gone: list[Key] = []
        while len(self) > count:
            if len(self._small) >= self._small_size() or not self._main:
                key, hits = self._small.popitem(last=False)
                if hits >= ENOUGH_HITS:
                    self._main[key] = 0
                    continue
                self._remember([key])
            else:
                key, hits = self._main.popitem(last=False)
                if hits > 0:
                    self._main[key] = hits - 1
                    continue
            gone.append(key)
        return gone

    def _small_size(self) -> int:
        return max(1, self.capacity // SMALL_PART)

    def _remember(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._ghosts[key] = None
        while len(self._ghosts) > max(0, self.capacity - self._small_size()):
            self._ghosts.popitem(last=False)
