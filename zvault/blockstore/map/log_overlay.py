"""What the log says of blocks since the last checkpoint took it into the map."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from zvault.blockstore.format import SLOT_BITS, ZERO_SLOT
from zvault.blockstore.map.map_part import PART_BITS, PART_BLOCKS

_LOW = PART_BLOCKS - 1
ZERO_SPAN_BLOCKS = 64
"""Zeroes of so many blocks are kept as a span, and not block by block."""
MOST_SPANS = 16
"""Spans of a part at most: each lookup goes through them."""


@dataclass(slots=True)
class _Fresh:
    """Of one part: the position of each block; of others, spans of zeroes and the segments that say so.

    ``blank`` is the sequence of the segment that made all the rest zeroes, or 0. A block that is in ``blocks`` was
    written after the spans that it lies in.
    """

    blank: int = 0
    blocks: dict[int, int] = field(default_factory=dict)
    spans: list[tuple[int, int, int]] = field(default_factory=list)

    def zero(self, low: int, number: int, sequence: int) -> None:
        """Blocks of the part read as zeroes."""
        if number < ZERO_SPAN_BLOCKS or len(self.spans) >= MOST_SPANS:
            self.blocks.update(dict.fromkeys(range(low, low + number), sequence << SLOT_BITS | ZERO_SLOT))
            return
        end = low + number
        if len(self.blocks) < number:
            self.blocks = {block: at for block, at in self.blocks.items() if not low <= block < end}
        else:
            for block in range(low, end):
                self.blocks.pop(block, None)
        self.spans.append((low, end, sequence))

    def position(self, block: int) -> int:
        """Return the position of a block; -1: the map says."""
        at = self.blocks.get(block)
        if at is not None:
            return at
        for start, end, sequence in reversed(self.spans):
            if start <= block < end:
                return sequence << SLOT_BITS | ZERO_SLOT
        return self.blank << SLOT_BITS | ZERO_SLOT if self.blank else -1


class LogOverlay:
    """Positions of blocks, newer than those in the map. Not safe for threads by itself."""

    def __init__(self) -> None:
        self._parts: dict[int, _Fresh] = {}

    def put(self, block: int, count: int, position: int) -> None:
        """``count`` blocks are at consecutive positions from here on. Crosses into other parts as it must."""
        while count:
            low = block & _LOW
            number = min(count, PART_BLOCKS - low)
            fresh = self._fresh(block >> PART_BITS)
            if number == 1:
                fresh.blocks[low] = position
            else:
                fresh.blocks.update(
                    zip(range(low, low + number), range(position, position + number), strict=True)
                )
            block, count, position = block + number, count - number, position + number

    def zero(self, block: int, count: int, sequence: int) -> None:
        """``count`` blocks read as zeroes from here on."""
        end = block + count
        while block < end:
            low = block & _LOW
            number = min(end - block, PART_BLOCKS - low)
            if number == PART_BLOCKS:
                self._parts[block >> PART_BITS] = _Fresh(sequence)
            else:
                self._fresh(block >> PART_BITS).zero(low, number, sequence)
            block += number

    def find(self, block: int, count: int) -> Iterator[tuple[int, int, int]]:
        """Runs in a range within one part: (first block in it, blocks, position); position -1: the map says."""
        fresh = self._parts.get(block >> PART_BITS)
        low = block & _LOW
        if fresh is None:
            yield low, count, -1
            return
        look = fresh.position
        start, at = low, look(low)
        for index in range(low + 1, low + count):
            position = look(index)
            if position != _following(at, index - start):
                yield start, index - start, at
                start, at = index, position
        yield start, low + count - start, at

    def settle(self, part: int, upto: int) -> None:
        """The map has all of a part up to the segment ``upto``."""
        fresh = self._parts.get(part)
        if fresh is None:
            return
        if fresh.blank <= upto:
            fresh.blank = 0
        bound = (upto + 1) << SLOT_BITS
        fresh.blocks = {block: position for block, position in fresh.blocks.items() if position >= bound}
        fresh.spans = [span for span in fresh.spans if span[2] > upto]
        if not fresh.blank and not fresh.blocks and not fresh.spans:
            del self._parts[part]

    def _fresh(self, part: int) -> _Fresh:
        found = self._parts.get(part)
        if found is None:
            found = self._parts[part] = _Fresh()
        return found

    def __len__(self) -> int:
        return sum(len(fresh.blocks) + len(fresh.spans) for fresh in self._parts.values())


def _following(position: int, distance: int) -> int:
    """Where a run goes on so many blocks later."""
    if position < 0 or position & ZERO_SLOT == ZERO_SLOT:
        return position
    return position + distance
