"""How far a run is and how fast it goes: bytes moved, bytes to come, and the rate of the last seconds. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

RATE_SPAN = 10.0
"""Seconds a rate is taken over: long enough for the bursts of a slow device, short enough to be the present."""


class RecentRate:
    """The rate of a count that grows, over the last ``RATE_SPAN`` seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, now: float, count: int) -> None:
        """Note the count at a time in seconds, on a clock that never goes back."""
        self._seen.append((now, count))
        while len(self._seen) > 2 and self._seen[1][0] <= now - RATE_SPAN:
            self._seen.popleft()

    def rate(self) -> float:
        """A second, between the first and the last time noted in the span; 0 while that says nothing."""
        if len(self._seen) < 2:
            return 0.0
        (began, before), (now, count) = self._seen[0], self._seen[-1]
        return max(0, count - before) / (now - began) if now > began else 0.0


class FillRange:
    """The lowest and the highest value over the last ``RATE_SPAN`` seconds, such as a buffer's fill."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, now: float, value: int) -> None:
        """Note the value at a time in seconds, on a clock that never goes back."""
        self._seen.append((now, value))
        while self._seen[0][0] < now - RATE_SPAN:
            self._seen.popleft()

    def range(self) -> tuple[int, int] | None:
        """Both marks; None while nothing was noted."""
        values = [value for _, value in self._seen]
        return (min(values), max(values)) if values else None


@dataclass(slots=True)
class StreamMeter:
    """A stream under way: the bytes it is thought to have, and those that have moved."""

    size: int
    moved: int = 0


@dataclass
class RunMeter:
    """All streams of a run. What is still to come is an estimate, and gives way to what is seen.

    ``finished`` are the bytes of streams that ended, well or not; ``sent`` counts those that went through.
    """

    finished: int = 0
    sent: int = 0
    outstanding: dict[str, int] = field(default_factory=dict)
    under_way: dict[str, StreamMeter] = field(default_factory=dict)
    pace: RecentRate = field(default_factory=RecentRate)

    def expect(self, sizes: Mapping[str, int]) -> None:
        """The bytes each dataset has still to send."""
        self.outstanding = dict(sizes)

    def begin(self, dataset: str, size: int | None) -> None:
        """A stream begins that is thought to have ``size`` bytes."""
        if not self.under_way:
            self.pace = RecentRate()  # the pause before it says nothing of how fast it goes
        self.outstanding[dataset] = max(0, self.outstanding.get(dataset, 0) - (size or 0))
        self.under_way[dataset] = StreamMeter(size or 0)

    def move(self, now: float, dataset: str, moved: int) -> None:
        """A stream has moved so many bytes since it began."""
        self.under_way[dataset].moved = moved
        self.pace.note(now, self.done)

    def end(self, dataset: str, moved: int | None = None) -> None:
        """A stream ended; where it went through ``moved`` are its bytes, and correct what was seen of it."""
        stream = self.under_way.pop(dataset)
        self.sent += moved is not None
        self.finished += stream.moved if moved is None else moved

    def drop(self, dataset: str) -> None:
        """Nothing more comes of a dataset."""
        self.outstanding.pop(dataset, None)

    @property
    def done(self) -> int:
        """Bytes moved so far, also by streams that broke."""
        return self.finished + sum(stream.moved for stream in self.under_way.values())

    @property
    def total(self) -> int:
        """Bytes there will have been at the end, as far as that is known."""
        coming = sum(max(0, stream.size - stream.moved) for stream in self.under_way.values())
        return self.done + coming + sum(self.outstanding.values())
