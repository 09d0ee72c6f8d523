"""How much of each segment is still live: what checkpoints keep so that collecting garbage need not read everything."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import numpy as np

from zvault.blockstore.format import BLOCK_SIZE, inflate_bounded

PAGE_SEGMENTS = 8192
"""Segments a page; a checkpoint writes those that changed."""
_ENTRY, _SHORT = 10, 6
"""Bytes of a segment: live, size, died. Pages of a zvault before 0.1.0 lack the last."""
LARGEST_PAGE = _ENTRY * PAGE_SEGMENTS + 1024
"""Bytes of a page that is deflated, at most."""


class SegmentUsage:
    """Per segment, by its sequence: live slots, and the object's size in bytes, 0 once it is gone.

    ``died``: of a segment of which nothing is live, the number of the first root that says so; 0: not known. Not safe
    for threads by itself.
    """

    def __init__(self) -> None:
        self.live = np.zeros(PAGE_SEGMENTS, np.uint16)
        self.size = np.zeros(PAGE_SEGMENTS, np.uint32)
        self.died = np.zeros(PAGE_SEGMENTS, np.uint32)
        self.changed: set[int] = set()

    def add(self, sequence: int, size: int) -> None:
        """A segment came into the map."""
        self._grow(sequence)
        self.size[sequence] = size
        self.changed.add(sequence // PAGE_SEGMENTS)

    def count(self, before: np.ndarray, after: np.ndarray) -> None:
        """Blocks were in these segments and are in those now, 0 for none."""
        moved = before != after
        for segments, sign in ((before[moved], -1), (after[moved], 1)):
            numbers, times = np.unique(segments[segments != 0], return_counts=True)
            if len(numbers):
                self._grow(int(numbers[-1]))
                self.live[numbers] = (self.live[numbers].astype(np.int64) + sign * times).astype(np.uint16)
                self.changed.update(np.unique(numbers // PAGE_SEGMENTS).tolist())

    def gone(self, sequences: Iterable[int]) -> None:
        """These objects are removed."""
        for sequence in sequences:
            self.size[sequence] = self.died[sequence] = 0
            self.changed.add(sequence // PAGE_SEGMENTS)

    def note_dead(self, root: int) -> None:
        """Note that what is dead, and was not before, is so from the root of this number on."""
        new = np.flatnonzero((self.size > 0) & (self.live == 0) & (self.died == 0))
        self.died[new] = root
        self.changed.update(np.unique(new // PAGE_SEGMENTS).tolist())

    def dead(self) -> list[int]:
        """Segments of which nothing is live."""
        found: list[int] = np.flatnonzero((self.size > 0) & (self.live == 0)).tolist()
        return found

    @property
    def live_bytes(self) -> int:
        """The bytes of data that can be read."""
        return int(self.live.sum(dtype=np.int64)) * BLOCK_SIZE

    @property
    def stored_bytes(self) -> int:
        """The bytes of all segments that are there."""
        return int(self.size.sum(dtype=np.int64))

    @property
    def segments(self) -> int:
        return int(np.count_nonzero(self.size))

    def page_bytes(self, page: int) -> bytes:
        """A page as a checkpoint holds it."""
        part = slice(page * PAGE_SEGMENTS, (page + 1) * PAGE_SEGMENTS)
        columns = (
            self.live[part].astype("<u2"),
            self.size[part].astype("<u4"),
            self.died[part].astype("<u4"),
        )
        return zlib.compress(b"".join(column.tobytes() for column in columns), 1)

    def load_page(self, page: int, data: bytes) -> None:
        """Read back. Raises ValueError, zlib.error."""
        found = inflate_bounded(data, _ENTRY * PAGE_SEGMENTS)
        if len(found) not in (_SHORT * PAGE_SEGMENTS, _ENTRY * PAGE_SEGMENTS):
            raise ValueError(f"{len(found)} bytes are no page")
        self._grow((page + 1) * PAGE_SEGMENTS - 1)
        part = slice(page * PAGE_SEGMENTS, (page + 1) * PAGE_SEGMENTS)
        self.live[part] = np.frombuffer(found, "<u2", PAGE_SEGMENTS)
        self.size[part] = np.frombuffer(found, "<u4", PAGE_SEGMENTS, 2 * PAGE_SEGMENTS)
        if len(found) == _ENTRY * PAGE_SEGMENTS:
            self.died[part] = np.frombuffer(found, "<u4", PAGE_SEGMENTS, 6 * PAGE_SEGMENTS)

    def _grow(self, sequence: int) -> None:
        if sequence >= len(self.live):
            room = (
                -(-(sequence + 1) // PAGE_SEGMENTS) * PAGE_SEGMENTS * 5 // 4 // PAGE_SEGMENTS * PAGE_SEGMENTS
            )
            room = max(room, (sequence // PAGE_SEGMENTS + 1) * PAGE_SEGMENTS)
            for name in ("live", "size", "died"):
                old = getattr(self, name)
                new = np.zeros(room, old.dtype)
                new[: len(old)] = old
                setattr(self, name, new)
