"""What a check of a store found: troubles by object, the bytes of the device that they cost, and strays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np

from zvault.blockstore.format import BLOCK_SIZE, SEGMENT_SLOTS
from zvault.blockstore.maintenance.log_cut import LogCut
from zvault.object_store.interface import ListedObject

T = TypeVar("T")
R = TypeVar("R")

ProblemKind = Literal[
    "store", "epoch", "checkpoint", "part", "usage", "position", "segment", "slots", "log", "past"
]
"""What is wrong: an object, a part of the map, the counts of live slots, a position of the map, a segment's own
account or some of its slots, the log since the last checkpoint, or a moment of the past that is kept."""

LOST_SLOT = SEGMENT_SLOTS + 7
"""A slot that no segment has: the map's word for a block that is lost. A read of it fails as one of a damaged slot."""

PROBLEM_RUNS = np.dtype([("block", "<u8"), ("count", "<u4"), ("segment", "<u4"), ("slot", "<u2")])
"""Consecutive blocks in consecutive slots."""

Progress = Callable[[str, int, int], None]
"""What is being done, how much of it is done, and how much there is."""

REQUESTS_AHEAD = 16
"""Requests under way at once."""


@dataclass(frozen=True, slots=True)
class StoreProblem:
    """One trouble. ``runs``: the blocks it concerns, of dtype RUNS; ``lost`` whether they cannot be read."""

    kind: ProblemKind
    key: str
    why: str
    runs: np.ndarray = field(default_factory=lambda: np.zeros(0, PROBLEM_RUNS))
    lost: bool = False
    numbers: tuple[int, ...] = ()
    """Parts of the map, pages of the usage, or a segment's sequence."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON; ranges in bytes of the device."""
        ranges = [[start, length] for start, length in merge_ranges([self.runs])] if self.lost else []
        return {"kind": self.kind, "object": self.key, "why": self.why, "lost": ranges}


@dataclass(slots=True)
class CheckReport:
    """Sizes in bytes. ``root`` is the checkpoint that was looked at: its epoch and number."""

    root: tuple[int, int] | None = None
    applied: int = 0
    log: int = 0
    """Segments after the checkpoint."""
    parts: int = 0
    segments: int = 0
    read_segments: int = 0
    """Of which all slots were read."""
    verified_bytes: int = 0
    stray_bytes: int = 0
    problems: list[StoreProblem] = field(default_factory=list)
    strays: list[ListedObject] = field(default_factory=list)
    cut: LogCut | None = None
    """What the end of the log would cost, where it cannot be read to its end."""
    looks: int = 0
    """How often a writer had moved on meanwhile, and its newest checkpoint was looked at."""

    @property
    def well(self) -> bool:
        """True if nothing is wrong; strays only take room."""
        return not self.problems

    @property
    def lost(self) -> list[tuple[int, int]]:
        """The ranges of the device that cannot be read: (offset, length) in bytes, in order."""
        return merge_ranges([problem.runs for problem in self.problems if problem.lost])

    def of(self, *kinds: ProblemKind) -> list[StoreProblem]:
        """Problems of these kinds."""
        return [problem for problem in self.problems if problem.kind in kinds]

    def as_dict(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return {
            "well": self.well,
            "checkpoint": None if self.root is None else {"epoch": self.root[0], "number": self.root[1]},
            "log_segments": self.log,
            "parts": self.parts,
            "segments": self.segments,
            "read_segments": self.read_segments,
            "verified_bytes": self.verified_bytes,
            "problems": [problem.as_dict() for problem in self.problems],
            "lost": [list(one) for one in self.lost],
            "strays": [{"object": one.key, "size": one.size} for one in self.strays],
            "cut": None if self.cut is None else self.cut.as_dict(),
            "stray_bytes": sum(one.size for one in self.strays),
        }


def make_runs(rows: Iterable[tuple[int, int, int, int]]) -> np.ndarray:
    """Rows of (block, count, segment, slot)."""
    return np.array(list(rows), PROBLEM_RUNS)


def merge_ranges(runs: Iterable[np.ndarray]) -> list[tuple[int, int]]:
    """The ranges that these runs cover, in bytes, in order and apart from each other."""
    out: list[tuple[int, int]] = []
    pairs = sorted((int(row["block"]), int(row["count"])) for some in runs for row in some)
    for block, count in pairs:
        start, end = block * BLOCK_SIZE, (block + count) * BLOCK_SIZE
        if out and out[-1][0] + out[-1][1] >= start:
            out[-1] = (out[-1][0], max(out[-1][0] + out[-1][1], end) - out[-1][0])
        else:
            out.append((start, end - start))
    return out


def map_ordered(
    pool: Executor, work: Callable[[T], R], items: Iterable[T], ahead: int = REQUESTS_AHEAD
) -> Iterator[R]:
    """As Executor.map, but with so many under way at most: neither arguments nor answers pile up."""
    waiting: list[Future[R]] = []
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) >= ahead:
                yield waiting.pop(0).result()
        while waiting:
            yield waiting.pop(0).result()
    finally:
        for one in waiting:
            one.cancel()
