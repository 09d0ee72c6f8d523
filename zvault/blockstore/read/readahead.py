"""Reading ahead: who reads on where he stopped is given more each time."""

from __future__ import annotations

import threading
from collections import OrderedDict

from zvault.blockstore.format import BLOCK

STREAMS = 16
"""Readers that are told apart."""
LEAST, MOST = (256 << 10) // BLOCK, (8 << 20) // BLOCK
"""Blocks read ahead, at first and at most."""


class Streams:
    """Which reads go on where another ended. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: OrderedDict[int, tuple[int, int]] = OrderedDict()
        """By the block expected next: the window, and the end of what was asked for ahead."""

    def next(self, block: int, count: int) -> tuple[int, int] | None:
        """After a read: which blocks to read ahead, (first, number), if any."""
        end = block + count
        with self._lock:
            known = self._next.pop(block, None)
            window, asked = (min(MOST, max(LEAST, known[0] * 2)), known[1]) if known is not None else (0, end)
            first = max(end, asked)
            # Only when half of what was asked for is used up: few long requests, not many short ones.
            wanted = window > 0 and first - end <= window // 2
            until = end + window if wanted else asked
            self._next[end] = (window, max(first, until) if wanted else first)
            while len(self._next) > STREAMS:
                self._next.popitem(last=False)
            return (first, until - first) if wanted and until > first else None
