"""Reading ahead: doubles what is read ahead while a reader is sequential.

Requests that are sent in order arrive in any: nbdkit hands each to a thread. So a read belongs to a reader that is
near it, and a reader is sequential when he has read most of what he went over.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from zvault.blockstore.format import BLOCK_SIZE

MOST_READERS = 16
"""Readers that are told apart."""
LEAST_AHEAD_BLOCKS, USUAL_AHEAD_BLOCKS, MOST_AHEAD_BLOCKS = (
    (256 << 10) // BLOCK_SIZE,
    (8 << 20) // BLOCK_SIZE,
    (32 << 20) // BLOCK_SIZE,
)
"""Blocks read ahead: at first; at most; and at most of a reader who has read as much in order already."""
NEAR_READS = 16
"""Reads, of the size of the one that came, that a reader may be away from where he is expected."""
RECENT_READS = 64
"""Reads, of all readers together, after which one that did not read is not counted among those that share memory."""


@dataclass(slots=True, eq=False)
class _Reader:
    """One reader: where he is, what he had of the way from ``start``, and up to where it was asked for ahead."""

    start: int
    end: int
    had: int
    asked: int
    turn: int
    window: int = 0
    total: int = 0
    """Blocks that he read in order."""


class ReadStreams:
    """Which reads go on where another ended. Safe for threads."""

    def __init__(self, room: int = 2 * MOST_AHEAD_BLOCKS) -> None:
        """``room``: blocks that there is memory for, of all readers together."""
        self._lock = threading.Lock()
        self._readers: list[_Reader] = []
        self._room = room
        self._turn = 0

    def next(self, block: int, count: int) -> tuple[int, int] | None:
        """Return the blocks to read ahead of a read that begins, (first, number), if any."""
        end = block + count
        with self._lock:
            self._turn += 1
            known = self._reader_of(block, count)
            if known is None:
                self._readers.append(_Reader(block, end, count, end, self._turn))
                if len(self._readers) > MOST_READERS:
                    self._readers.remove(min(self._readers, key=lambda one: one.turn))
                return None
            known.turn = self._turn
            known.had += count if block >= known.start else 0
            known.total += count
            if end <= known.end:
                return None
            follows, known.end = block <= known.end, end
            if known.end - known.start - known.had > known.had + NEAR_READS * count:
                # He leaps: what lies between is not wanted.
                known.start, known.had, known.asked, known.window, known.total = block, count, end, 0, 0
                return None
            if follows:
                known.window = min(
                    self._most(),
                    max(USUAL_AHEAD_BLOCKS, known.total),
                    max(LEAST_AHEAD_BLOCKS, known.window * 2),
                )
            return self._wanted(known, count)

    def _reader_of(self, block: int, count: int) -> _Reader | None:
        """Who this read belongs to. Of several that are near, which are one, the others are forgotten."""
        near = [one for one in self._readers if abs(block - one.end) <= max(one.window, NEAR_READS * count)]
        if len(near) < 2:
            return near[0] if near else None
        found = max(near, key=lambda one: one.asked)
        self._readers = [one for one in self._readers if one is found or one not in near]
        return found

    def _wanted(self, known: _Reader, count: int) -> tuple[int, int] | None:
        first, until = max(known.end, known.asked), known.end + known.window
        # Only when half of what was asked for is used up: few long requests, not many short ones.
        if first - known.end > known.window // 2 or until <= first:
            return None
        known.asked = until
        if known.end - known.start > max(known.window, 4 * NEAR_READS * count):
            # What he had long ago counts half: who was sequential may leap one day.
            known.start, known.had = (known.start + known.end) // 2, known.had // 2
        return first, until - first

    def _most(self) -> int:
        """Blocks that one reader may have read ahead: memory is shared among those that read of late."""
        sharing = sum(1 for one in self._readers if one.window and self._turn - one.turn < RECENT_READS)
        return max(LEAST_AHEAD_BLOCKS, min(MOST_AHEAD_BLOCKS, self._room // (2 * max(1, sharing))))
