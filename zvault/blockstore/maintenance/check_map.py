"""Reading the whole map of a checkpoint: every part and page verified, its runs put on disk by segment and counted."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import IO

import numpy as np
import xxhash

from zvault.blockstore.format import SEGMENT_SLOTS, make_map_key
from zvault.blockstore.maintenance.check_report import (
    LOST_SLOT,
    PROBLEM_RUNS,
    Progress,
    StoreProblem,
    map_ordered,
)
from zvault.blockstore.map.map_part import PART_BLOCKS, MapPart
from zvault.blockstore.map.root import CheckpointRoot
from zvault.blockstore.map.usage import SegmentUsage
from zvault.object_store.interface import ObjectMissing, ObjectStore

WINDOW_SEGMENTS = 2048
"""Segments whose runs are in memory at once, at least: at most 72 MiB of runs."""
MOST_SPOOL_FILES = 256
"""Windows at most; those of a store of more than 4 TiB are larger."""
MAP_OBJECTS_AT_ONCE = 4
"""Objects of the map in memory at once, of 8 MiB."""


class CheckpointMoved(Exception):
    """A writer has removed what an older checkpoint needed: begin again with the newest."""


class RunSpool:
    """All runs of a map, in files without names, one for so many segments each: a window at a time is in memory."""

    def __init__(self, applied: int) -> None:
        self._span = max(WINDOW_SEGMENTS, -(-applied // MOST_SPOOL_FILES))
        self._files: dict[int, IO[bytes]] = {}

    def add(self, rows: np.ndarray) -> None:
        """Keep rows of dtype RUNS."""
        window = rows["segment"] // self._span
        order = np.argsort(window, kind="stable")
        for some in np.split(rows[order], np.flatnonzero(np.diff(window[order])) + 1) if len(rows) else []:
            number = int(some[0]["segment"]) // self._span
            if number not in self._files:
                file = tempfile.TemporaryFile(prefix="zvault-check-")  # noqa: SIM115 - closed by close()
                self._files[number] = file
            self._files[number].write(some.tobytes())

    def windows(self) -> Iterator[np.ndarray]:
        """All rows, ordered by segment and slot, in pieces that hold all of each of their segments."""
        for _, file in sorted(self._files.items()):
            file.seek(0)
            rows = np.frombuffer(file.read(), PROBLEM_RUNS)
            ordered_rows: np.ndarray = rows[np.lexsort((rows["slot"], rows["segment"]))]
            yield ordered_rows

    def close(self) -> None:
        """Give the disk's space back."""
        for file in self._files.values():
            file.close()


@dataclass(slots=True)
class CheckedMap:
    """A map that was read. ``live``: slots of each segment that it points to."""

    root: CheckpointRoot
    live: np.ndarray
    usage: SegmentUsage
    problems: list[StoreProblem]
    spool: RunSpool
    lost: list[np.ndarray] = field(default_factory=list)
    """Runs of blocks that an earlier repair gave up."""
    bad_parts: list[int] = field(default_factory=list)
    bad_pages: list[int] = field(default_factory=list)

    def wrong_counts(self) -> list[int]:
        """Segments of which the usage tells another number of live slots than the map."""
        size = max(len(self.live), len(self.usage.live))
        one, other = np.zeros(size, np.int64), np.zeros(size, np.int64)
        one[: len(self.live)] = self.live
        other[: len(self.usage.live)] = self.usage.live
        found: list[int] = np.flatnonzero(one != other).tolist()
        return found


def read_map(
    store: ObjectStore, prefix: str, root: CheckpointRoot, blocks: int, pool: Executor, progress: Progress
) -> CheckedMap:
    """Read every part and page. Raises CheckpointMoved where an object is gone, StoreError."""
    found = CheckedMap(root, np.zeros(root.applied + 1, np.int64), SegmentUsage(), [], RunSpool(root.applied))
    wanted = _by_object(root)

    def fetch(key: tuple[int, int]) -> bytes | None:
        try:
            return store.get(make_map_key(prefix, *key))
        except ObjectMissing:
            return None

    keys = sorted(wanted)
    for number, (key, data) in enumerate(
        zip(keys, map_ordered(pool, fetch, keys, MAP_OBJECTS_AT_ONCE), strict=True)
    ):
        progress("map", number, len(keys))
        name = make_map_key(prefix, *key)
        if data is None:
            raise CheckpointMoved(name)
        _take_object(found, name, data, wanted[key], blocks)
    return found


def list_missing_map_objects(found: CheckpointRoot, prefix: str, store: ObjectStore) -> set[tuple[int, int]]:
    """Objects of the map that a root needs and that are not there."""
    there = {one.key for one in store.list(f"{prefix}/maps/")}
    return {key for key in _by_object(found) if make_map_key(prefix, *key) not in there}


def drop_map_objects(
    root: CheckpointRoot, keys: set[tuple[int, int]]
) -> tuple[CheckpointRoot, list[int], list[int]]:
    """A root that does not need these objects; and the parts and pages that it then lacks."""
    less = root.copy()
    lacking: list[list[int]] = []
    for table in (less.parts, less.pages):
        bad = [index for index, ref in enumerate(table) if (int(ref["map"]), int(ref["epoch"])) in keys]
        table[bad] = 0
        lacking.append(bad)
    return less, lacking[0], lacking[1]


def _by_object(root: CheckpointRoot) -> dict[tuple[int, int], list[tuple[bool, int]]]:
    wanted: dict[tuple[int, int], list[tuple[bool, int]]] = {}
    for is_part, table in ((True, root.parts), (False, root.pages)):
        for index in np.flatnonzero(table["map"]).tolist():
            key = (int(table[index]["map"]), int(table[index]["epoch"]))
            wanted.setdefault(key, []).append((is_part, index))
    return wanted


def _take_object(
    found: CheckedMap, name: str, data: bytes, wanted: list[tuple[bool, int]], blocks: int
) -> None:
    bad: dict[bool, list[int]] = {True: [], False: []}
    why = ""
    for is_part, index in wanted:
        ref = (found.root.parts if is_part else found.root.pages)[index]
        start = int(ref["offset"])
        piece = data[start : start + int(ref["length"])]
        try:
            if xxhash.xxh3_64_intdigest(piece) != int(ref["digest"]):
                raise ValueError("it does not match its checksum")
            if is_part:
                _take_part(found, index, MapPart.of_bytes(piece), blocks)
            else:
                found.usage.load_page(index, piece)
        except (ValueError, zlib.error) as error:
            bad[is_part].append(index)
            why = str(error)
    if bad[True]:
        found.bad_parts += bad[True]
        found.problems.append(make_part_problem(name, bad[True], why, blocks))
    if bad[False]:
        found.bad_pages += bad[False]
        found.problems.append(make_page_problem(name, bad[False], why))


def make_part_problem(name: str, parts: list[int], why: str, blocks: int) -> StoreProblem:
    """Parts of the map are not what they should be."""
    rows = [(part * PART_BLOCKS, min(PART_BLOCKS, blocks - part * PART_BLOCKS), 0, 0) for part in parts]
    what = f"{len(parts)} of its parts of the map cannot be used: {why}"
    return StoreProblem("part", name, what, np.array(rows, PROBLEM_RUNS), True, tuple(parts))


def make_page_problem(name: str, pages: list[int], why: str) -> StoreProblem:
    """Pages of the usage are not what they should be."""
    return StoreProblem(
        "usage", name, f"how much of segments is live cannot be read: {why}", numbers=tuple(pages)
    )


def _take_part(found: CheckedMap, index: int, part: MapPart, blocks: int) -> None:
    runs = part.runs
    start, count = runs["start"].astype(np.int64), runs["less"].astype(np.int64) + 1
    slots = np.where(runs["slot"] == LOST_SLOT, 0, runs["slot"].astype(np.int64) + count)
    in_order = (start[1:] >= (start + count)[:-1]).all()
    inside = (start + count <= min(PART_BLOCKS, blocks - index * PART_BLOCKS)).all() and (
        slots <= SEGMENT_SLOTS
    ).all()
    if not in_order or not inside or (runs["segment"] > found.root.applied).any():
        raise ValueError("it says what cannot be")
    rows = np.zeros(len(runs), PROBLEM_RUNS)
    rows["block"], rows["count"] = start + index * PART_BLOCKS, count
    rows["segment"], rows["slot"] = runs["segment"], runs["slot"]
    np.add.at(found.live, runs["segment"], count)
    lost = runs["slot"] == LOST_SLOT
    if lost.any():
        found.lost.append(rows[lost])
    found.spool.add(rows[~lost])
