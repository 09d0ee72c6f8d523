"""In which order the datasets of a run are carried out when several go at once. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush

_Turn = tuple[bool, int, int, str]
"""Whether it has anything to send, the bytes that depend on it (negative), its place and name: the least goes first."""


class RunOrder:
    """Datasets that wait for others, and sizes. What the longest way depends on goes first.

    ``needs`` gives for each dataset those that must be done before it; what is not among the keys is done already.
    ``sizes`` are bytes. A small parent of a big child is as urgent as both, so that the last to end is not one
    that could have begun earlier. What is not in ``sizes`` has nothing to send and goes as soon as it can.
    ``lanes`` are words by dataset, "" for those it lacks: what waits for its turn in one lane holds up none of another.
    """

    def __init__(
        self,
        needs: Mapping[str, Iterable[str]],
        sizes: Mapping[str, int],
        lanes: Mapping[str, str] | None = None,
    ) -> None:
        self._needs = {name: {one for one in wanted if one in needs} for name, wanted in needs.items()}
        self._behind: dict[str, list[str]] = {name: [] for name in needs}
        for name, wanted in self._needs.items():
            for one in wanted:
                self._behind[one].append(name)
        ways = self._ways(sizes)
        self._turn = {name: (name in sizes, -ways[name], place, name) for place, name in enumerate(needs)}
        self._left = set(needs)
        self._lanes = lanes or {}
        self._able: dict[str, list[_Turn]] = {lane: [] for lane in ("", *self._lanes.values())}
        for name, wanted in self._needs.items():
            if not wanted:
                self._able[self._lane(name)].append(self._turn[name])
        for able in self._able.values():
            heapify(able)

    @property
    def lanes(self) -> list[str]:
        """All lanes."""
        return list(self._able)

    def _lane(self, name: str) -> str:
        return self._lanes.get(name, "")

    def _ways(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """For each dataset the bytes of the longest chain that begins with it."""
        open_needs = {name: len(wanted) for name, wanted in self._needs.items()}
        before_others = [name for name, count in open_needs.items() if not count]
        for name in before_others:
            for one in self._behind[name]:
                open_needs[one] -= 1
                if not open_needs[one]:
                    before_others.append(one)
        ways = dict.fromkeys(self._needs, 0)
        for name in reversed(before_others):
            longest = max((ways[one] for one in self._behind[name]), default=0)
            ways[name] = sizes.get(name, 0) + longest
        return ways

    def ready(self) -> bool:
        """True if any can begin."""
        return any(self._able.values())

    def take(self, lane: str = "") -> str | None:
        """The one of a lane to begin now; None while all that are left of it wait for others."""
        if not self._able[lane]:
            return None
        name = heappop(self._able[lane])[-1]
        self._left.discard(name)
        return name

    def done(self, name: str) -> None:
        """One is done: those that only waited for it can begin."""
        for one in self._behind[name]:
            self._needs[one].discard(name)
            if not self._needs[one] and one in self._left:
                heappush(self._able[self._lane(one)], self._turn[one])

    def fail(self, name: str) -> list[tuple[str, str]]:
        """One failed: give up what waits for it, near or far. Returns (given up, for want of), nearest first."""
        lost: list[tuple[str, str]] = []
        failed = [name]
        for cause in failed:
            for one in self._behind[cause]:
                if one in self._left:
                    self._left.discard(one)
                    lost.append((one, cause))
                    failed.append(one)
        return lost

    def stuck(self) -> list[str]:
        """Give up all that are left, and return them: they wait for each other in a cycle."""
        left = sorted(self._left, key=lambda name: self._turn[name])
        self._left.clear()
        return left
