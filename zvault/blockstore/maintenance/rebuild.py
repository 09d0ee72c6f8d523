"""Rebuilding parts of the map from the tables of the segments that are there.

The newest entry of a block in the whole log says where it is. Of a block that has data, the segment with that entry is
there, for garbage collection removes only what the map does not point to. But a segment that says only that blocks
became zeroes (or were discarded) is removed too, and then an older entry of such a block seems to be the newest. The
usage tells: it counts the slots that were live in each segment. Where the rebuilt map has just as many, none came back;
where it has none, all that came back is zero. What lies between is *doubtful*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field

import numpy as np

from zvault.blockstore.attach import load_usage
from zvault.blockstore.checkpoint import _change, _split
from zvault.blockstore.format import ObjectDamaged, Segment, find_key_numbers, parse_key_numbers
from zvault.blockstore.log_tail import read_segment
from zvault.blockstore.maintenance.check import StoreCheck
from zvault.blockstore.maintenance.check_report import LOST_SLOT, Progress, map_ordered
from zvault.blockstore.map.map_part import PART_BITS, PART_BLOCKS, DensePart, MapPart
from zvault.blockstore.map.read_roots import read_previous_root
from zvault.blockstore.map.root import CheckpointRoot
from zvault.blockstore.map.usage import SegmentUsage
from zvault.object_store.interface import ObjectMissing, StoreError

PARTS_AT_ONCE = 512
"""Parts in memory at once, 100 MiB."""


@dataclass(slots=True)
class RebuiltParts:
    """Parts as the tables say. ``doubtful``: how many blocks of them may be of before they became zeroes."""

    parts: dict[int, MapPart] = field(default_factory=dict)
    doubtful: int = 0
    unknown: int = 0
    """Blocks of which nothing is known, because a segment's own account is damaged or missing too."""


class MapRebuilder:
    """Rebuilds the parts that a check found damaged; the check's store has no other writer."""

    def __init__(self, checked: StoreCheck, pool: Executor, progress: Progress) -> None:
        self.checked = checked
        self.pool = pool
        self.progress = progress
        root = checked.root
        self.prefix = checked.prefix
        self.bad = sorted(checked.mapped.bad_parts)
        self.blind: list[int] = []
        """Segments whose tables cannot be read, though their objects are there or should be."""
        listed = [key for key in checked.sizes if key.startswith(f"{self.prefix}/segments/")]
        self.keys = sorted(key for key in listed if _in_map(key, checked))
        there = {parse_key_numbers(key)[0] for key in self.keys}
        self.gaps = sorted(set(range(1, root.applied + 1)) - there)
        self.older = read_previous_root(checked.store, self.prefix, root)
        dead = _dead(checked, self.older)
        self.blind += [one for one in self.gaps if not dead(one)]

    def run(self, doubtful: str) -> RebuiltParts:
        """All of them. ``doubtful``: "fail" to have doubtful blocks fail, else they are taken as they are found."""
        out = RebuiltParts()
        older = self.older
        sure: list[int] = []
        rest: list[int] = []
        for part in self.bad:
            ref = None if older is None else older.parts[part]
            (sure if ref is not None and ref != self.checked.root.parts[part] else rest).append(part)
        if older is not None:
            for part in sure:
                dense = self._older(older.parts[part])
                if dense is None:
                    rest.append(part)
                    continue
                self._replay({part: dense}, older.applied)
                out.parts[part] = MapPart.of_dense(dense)
        for at in range(0, len(rest), PARTS_AT_ONCE):
            dense_parts = {part: DensePart.blank() for part in sorted(rest)[at : at + PARTS_AT_ONCE]}
            self._replay(dense_parts, 0)
            self._judge(dense_parts, doubtful, out, whole=len(rest) <= PARTS_AT_ONCE)
            out.parts |= {part: MapPart.of_dense(dense) for part, dense in dense_parts.items()}
        return out

    def _older(self, ref: np.void) -> DensePart | None:
        """A part as the checkpoint before had it: what came after that is in segments that are all there."""
        from zvault.blockstore.map.blockmap import fetch_references

        if ref["map"] == 0:
            return DensePart.blank()
        try:
            return MapPart.of_bytes(fetch_references(self.checked.store, self.prefix, [ref])[0]).dense()
        except (ObjectDamaged, ValueError):
            return None

    def _replay(self, parts: dict[int, DensePart], after: int) -> None:
        keys = [key for key in self.keys if parse_key_numbers(key)[0] > after]
        for number, segment in enumerate(self._segments(keys)):
            self.progress("tables", number, len(keys))
            for part, dense in _touched(segment, parts):
                table, sequences = _split(segment.table, np.full(len(segment.table), segment.sequence))
                mine = (table["block"] >> np.uint64(PART_BITS)) == part
                _change(table[mine], sequences[mine]).apply(dense)

    def _segments(self, keys: Iterable[str]) -> Iterator[Segment]:
        def read(key: str) -> Segment | None:
            try:
                return read_segment(self.checked.store, key, self.checked.root.identity)
            except (ObjectDamaged, ObjectMissing):
                if (sequence := parse_key_numbers(key)[0]) not in self.blind:
                    self.blind.append(sequence)
                return None

        for segment in map_ordered(self.pool, read, keys):
            if segment is not None:
                yield segment

    def _judge(self, parts: dict[int, DensePart], doubtful: str, out: RebuiltParts, *, whole: bool) -> None:
        """Settle what may have come back, by the counts of the usage; see the module's text."""
        found = np.zeros(self.checked.root.applied + 1, np.int64)
        for dense in parts.values():
            np.add.at(found, dense.segment, 1)
        found[0] = 0
        usage = self.checked.mapped.usage.live
        expected = np.full(len(found), -1, np.int64)
        if whole and not self.checked.mapped.bad_pages:
            expected[:] = 0
            expected[: len(usage)] = usage[: len(found)]
            expected -= self.checked.mapped.live
            for part_made in out.parts.values():
                np.subtract.at(
                    expected, part_made.runs["segment"], part_made.runs["less"].astype(np.int64) + 1
                )
        last_gap = max([*self.gaps, *self.blind], default=0)
        numbers = np.arange(len(found))
        right = (expected == found) | (numbers > last_gap)
        back = (expected == 0) & (found > 0)
        unsure = (found > 0) & ~right & ~back
        blind = [one for one in self.blind if expected[one] != 0]
        for part, dense in parts.items():
            size = min(PART_BLOCKS, self.checked.what.blocks - part * PART_BLOCKS)
            dense.slot[back[dense.segment]] = 0
            dense.segment[back[dense.segment]] = 0
            bad = unsure[dense.segment]
            out.doubtful += int(bad.sum())
            none = dense.segment == 0
            none[size:] = False
            out.unknown += int(none.sum()) if blind else 0
            if doubtful == "fail":
                dense.slot[bad] = LOST_SLOT
                if blind:
                    dense.segment[none], dense.slot[none] = blind[0], LOST_SLOT


def _in_map(key: str, checked: StoreCheck) -> bool:
    sequence, epoch = find_key_numbers(key)
    return 0 < sequence <= checked.root.applied and epoch == checked.root.epoch_of(sequence)


def _dead(checked: StoreCheck, older: CheckpointRoot | None) -> Callable[[int], bool]:
    """Whether nothing of a segment that is not there was needed any more, by the usage.

    Where pages of that are lost, as the checkpoint before had them: what it knew as dead is dead for good, and what it
    knew as live, or not at all, had no time to be removed since.
    """
    mapped, root = checked.mapped, checked.root
    # Where a part of the map, the page of the usage and a segment were all lost, the segment passed for one that had
    # been cleared, and its blocks read as zeroes.
    if not mapped.bad_pages:
        return lambda number: _no_slots(mapped.usage, number)
    counts = SegmentUsage()
    try:
        if older is None:
            return lambda _: False
        load_usage(counts, checked.store, checked.prefix, older, None)
    except (ObjectDamaged, StoreError):
        return lambda _: False
    return lambda number: (
        number <= older.applied
        and older.epoch_of(number) == root.epoch_of(number)
        and _no_slots(counts, number)
    )


def _no_slots(usage: SegmentUsage, number: int) -> bool:
    return number >= len(usage.size) or not (usage.size[number] and usage.live[number])


def _touched(segment: Segment, parts: dict[int, DensePart]) -> Iterator[tuple[int, DensePart]]:
    table = segment.table
    first = (table["block"] >> np.uint64(PART_BITS)).astype(np.int64)
    last = ((table["block"] + table["count"] - np.uint64(1)) >> np.uint64(PART_BITS)).astype(np.int64)
    for part, dense in parts.items():
        if ((first <= part) & (part <= last)).any():
            yield part, dense
