"""Which ranges of a device hold something: for whoever copies it, and would read terabytes of zeroes."""

from __future__ import annotations

from collections.abc import Iterator

from zvault.blockstore.format import BLOCK_SIZE
from zvault.blockstore.map.blockmap import BlockExtent, BlockMap
from zvault.blockstore.map.map_part import PART_BLOCKS

PARTS = 64
"""Parts of the map that one answer covers, 8 GiB: each may have to be read from the store."""


def find_extents(blocks: BlockMap, size: int, offset: int, length: int) -> list[tuple[int, int, bool]]:
    """Ranges of a device of ``size`` bytes: (offset, length, whether it reads as zeroes), in order.

    They begin at ``offset`` and end at ``offset + length``, or before that after PARTS. Raises ObjectDamaged,
    StoreError.
    """
    end = min(offset + length, size)
    first, last = offset // BLOCK_SIZE, -(-end // BLOCK_SIZE)
    last = min(last, (first // PART_BLOCKS + PARTS) * PART_BLOCKS)
    found: list[tuple[int, int, bool]] = []
    for extent in _locate_by_parts(blocks, first, last):
        begin = max(extent.block * BLOCK_SIZE, offset)
        stop = min((extent.block + extent.count) * BLOCK_SIZE, end)
        is_hole = extent.sequence == 0
        if found and found[-1][2] == is_hole:
            found[-1] = (found[-1][0], stop - found[-1][0], is_hole)
        elif stop > begin:
            found.append((begin, stop - begin, is_hole))
    return found


def _locate_by_parts(blocks: BlockMap, first: int, last: int) -> Iterator[BlockExtent]:
    """Where these blocks are. Parts that memory has no room for together would be loaded again and again."""
    while first < last:
        end = min(last, (first // PART_BLOCKS + 1) * PART_BLOCKS)
        yield from blocks.locate(first, end - first)
        first = end
