"""A simulated object store: conditional puts, latency, requests and answers that are lost or come late, and outages."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.unit.core.sharing.simulation.timeline import Task, Timeline

TIMEOUT = 15.0
"""Seconds after which a client gives a request up; the store may still do it."""
LATEST = 120.0

Key = tuple[str, str]
"""A vault's name, and which of its objects: "lease", "note", "epoch"."""


@dataclass(frozen=True, slots=True)
class Get:
    """Read an object."""

    key: Key


@dataclass(frozen=True, slots=True)
class Put:
    """Replace the object with this ETag; "" where there must be none."""

    key: Key
    said: Any
    etag: str


@dataclass(frozen=True, slots=True)
class Segment:
    """Put a piece of a run's data: without any condition, as blocks are."""

    vault: str
    epoch: int
    run: tuple[str, int]
    part: int


@dataclass(frozen=True, slots=True)
class Answer:
    """``done`` is None for a request without an answer, False for one whose condition was not met."""

    done: bool | None
    said: Any = None
    etag: str = ""
    age: float | None = None


NO_ANSWER = Answer(None)
REFUSED = Answer(False)


@dataclass(frozen=True, slots=True)
class Troubles:
    """How often things go wrong, of 1."""

    lost: float = 0.002
    answer_lost: float = 0.002
    late: float = 0.001


@dataclass
class Stored:
    """One object."""

    said: Any
    etag: str
    written: float


@dataclass
class Bucket:
    """All objects, and what was asked of it."""

    timeline: Timeline
    rng: random.Random
    troubles: Troubles
    objects: dict[Key, Stored] = field(default_factory=dict)
    data: dict[tuple[str, str, int], set[int]] = field(default_factory=dict)
    """By vault, backup and run: the parts that count, put with the epoch that held when they arrived."""
    begun: dict[tuple[str, str, int], float] = field(default_factory=dict)
    """When the snapshot of a run was made, in true time; one that is resumed keeps it."""
    ignored: int = 0
    """Segments of hosts that had been shut out."""
    requests: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """By vault, what was asked (Get or Put), and of which object: those that arrived."""
    out_until: float = 0.0
    etags: int = 0

    def send(self, task: Task, request: Any) -> None:
        """Take a request, and answer it later."""
        now, draw = self.timeline.now, self.rng.random()
        if now < self.out_until or now < getattr(task.owner, "cut_until", 0.0) or draw < self.troubles.lost:
            self.timeline.wake(task, now + TIMEOUT, NO_ANSWER)
            return
        there, back = self.rng.uniform(0.01, 0.3), self.rng.uniform(0.01, 0.3)
        answered = True
        draw -= self.troubles.lost
        if draw < self.troubles.answer_lost:
            answered = False
        elif draw < self.troubles.answer_lost + self.troubles.late:
            there, answered = self.rng.uniform(TIMEOUT, LATEST), False

        def arrive() -> None:
            answer = self._do(request)
            if answered:
                self.timeline.wake(task, self.timeline.now + back, answer)

        self.timeline.call(now + there, arrive)
        if not answered:
            self.timeline.wake(task, now + TIMEOUT, NO_ANSWER)

    def epoch(self, vault: str) -> int:
        """The one that holds now."""
        stored = self.objects.get((vault, "epoch"))
        return stored.said[0] if stored is not None else 0

    def parts(self, vault: str, backup: str, number: int) -> set[int]:
        """What the vault has of a run."""
        return self.data.setdefault((vault, backup, number), set())

    def _count(self, request: Any) -> None:
        if not isinstance(request, Segment):
            vault, what = request.key
            self.requests[vault, type(request).__name__, what] += 1

    def _do(self, request: Any) -> Answer:
        self._count(request)
        if isinstance(request, Segment):
            if request.epoch == self.epoch(request.vault):
                self.parts(request.vault, *request.run).add(request.part)
            else:
                self.ignored += 1
            return Answer(True)
        stored = self.objects.get(request.key)
        if isinstance(request, Put):
            if request.etag != (stored.etag if stored is not None else ""):
                return REFUSED
            self.etags += 1
            self.objects[request.key] = stored = Stored(request.said, str(self.etags), self.timeline.now)
        if stored is None:
            return Answer(True)
        age = float(int(self.timeline.now) - int(stored.written))
        return Answer(True, stored.said, stored.etag, age)
