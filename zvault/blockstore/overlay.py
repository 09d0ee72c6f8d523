"""What the log says of blocks since the last checkpoint took it into the map."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from zvault.blockstore.format import SLOT_BITS, ZERO
from zvault.blockstore.parts import PART, PART_BITS

_LOW = PART - 1


@dataclass(slots=True)
class _Fresh:
    """Of one part: the position of each block, and the sequence of the segment that made all others zeroes, or 0."""

    blank: int = 0
    blocks: dict[int, int] = field(default_factory=dict)


class Overlay:
    """Positions of blocks, newer than those in the map. Not safe for threads by itself."""

    def __init__(self) -> None:
        self._parts: dict[int, _Fresh] = {}

    def put(self, block: int, count: int, position: int) -> None:
        """``count`` blocks are at consecutive positions from here on. Crosses into other parts as it must."""
        while count:
            low = block & _LOW
            number = min(count, PART - low)
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
        end, nothing = block + count, sequence << SLOT_BITS | ZERO
        while block < end:
            low = block & _LOW
            number = min(end - block, PART - low)
            if number == PART:
                self._parts[block >> PART_BITS] = _Fresh(sequence)
            else:
                self._fresh(block >> PART_BITS).blocks.update(
                    dict.fromkeys(range(low, low + number), nothing)
                )
            block += number

    def find(self, block: int, count: int) -> Iterator[tuple[int, int, int]]:
        """Runs in a range within one part: (first block in it, blocks, position); position -1: the map says."""
        fresh = self._parts.get(block >> PART_BITS)
        low = block & _LOW
        if fresh is None:
            yield low, count, -1
            return
        other = fresh.blank << SLOT_BITS | ZERO if fresh.blank else -1
        get = fresh.blocks.get
        start, at = low, get(low, other)
        for index in range(low + 1, low + count):
            position = get(index, other)
            if position != _following(at, index - start):
                yield start, index - start, at
                start, at = index, position
        yield start, low + count - start, at

    def blanked(self, part: int) -> bool:
        """Whether nothing of the map counts any more in a part."""
        fresh = self._parts.get(part)
        return fresh is not None and fresh.blank > 0

    def settle(self, part: int, upto: int) -> None:
        """The map has all of a part up to the segment ``upto``."""
        fresh = self._parts.get(part)
        if fresh is None:
            return
        if fresh.blank <= upto:
            fresh.blank = 0
        bound = (upto + 1) << SLOT_BITS
        fresh.blocks = {block: position for block, position in fresh.blocks.items() if position >= bound}
        if not fresh.blank and not fresh.blocks:
            del self._parts[part]

    def _fresh(self, part: int) -> _Fresh:
        found = self._parts.get(part)
        if found is None:
            found = self._parts[part] = _Fresh()
        return found

    def __len__(self) -> int:
        return sum(len(fresh.blocks) for fresh in self._parts.values())


def _following(position: int, distance: int) -> int:
    """Where a run goes on so many blocks later."""
    if position < 0 or position & ZERO == ZERO:
        return position
    return position + distance
