"""Checkpoints: what the log said is taken into the map, and the map's changed parts and root are put into the store.

A crash at any moment leaves the last root and everything that it needs. What two roots in a row do not need is removed
after the second (remove_objects.py), unless a moment of the past needs it that is kept (kept_moments.py).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from zvault.blockstore.format import (
    ZERO_SLOT,
    Segment,
    make_checkpoint_key,
)
from zvault.blockstore.kept_moments import KeptMoment, add_moment, select_kept_moments
from zvault.blockstore.log.log import SegmentLog
from zvault.blockstore.map.blockmap import BlockMap
from zvault.blockstore.map.map_part import PART_BITS, PART_BLOCKS, PartChange
from zvault.blockstore.map.map_writer import MAP_BYTES, MapReference, MapWriter
from zvault.blockstore.map.past_bytes import count_past_bytes
from zvault.blockstore.map.root import MAP_REFERENCE, CheckpointRoot, EpochStart
from zvault.blockstore.map.usage import SegmentUsage
from zvault.blockstore.remove_objects import ObjectRemover
from zvault.core.policy.retention import KeepRules
from zvault.object_store.interface import ObjectStore

MAP_WASTE = 2.0
"""So many bytes of the map may be stored for each that is live, and MAP_BYTES more, before parts are written anew."""


class Checkpoints:
    """Takes checkpoints of one engine, one at a time. Nothing here is called with its lock held."""

    def __init__(  # noqa: PLR0913 - what it works on is passed in
        self,
        blocks: BlockMap,
        usage: SegmentUsage,
        log: SegmentLog,
        changed: threading.Condition,
        still_ours: Callable[[], None],
        history: KeepRules | None = None,
        clock: Callable[[], float] = time.time,
        *,
        remover: ObjectRemover | None = None,
    ) -> None:
        """``still_ours`` raises when another writer has the store. ``history``: see Options.

        ``remover`` removes with each checkpoint what nobody needs; None where that is lock_keeper.py's.
        """
        self.blocks = blocks
        self.usage = usage
        self.log = log
        self.changed = changed
        self.still_ours = still_ours
        self.history = history
        self.clock = clock
        self.remover = remover
        self.kept_before: list[KeptMoment] = []
        """The moments that the root before the newest kept."""
        self.store: ObjectStore = blocks.store
        self.prefix = blocks.prefix
        self.taken = 0

    @property
    def due(self) -> int:
        """Segments that wait to be taken into the map."""
        return self.log.uploaded - self.blocks.root.applied

    @property
    def past_bytes(self) -> int:
        """The bytes of segments that only moments of the past need. With the lock held."""
        return count_past_bytes(self.usage, self.blocks.root.past)

    def begin(self, root: CheckpointRoot, reign: EpochStart) -> None:
        """The first checkpoint of a writer: no more than that from ``reign`` on the log is its own."""
        root.past, root.taken = self._past(root.moment), self.clock()
        root.reigns = [*root.reigns, reign]
        root.epoch = reign.epoch
        root.number += 1
        self._put_root(root)

    def take(self, counts: dict[str, int]) -> None:
        """Take one. Raises StoreError, also ObjectDamaged where a part of the map cannot be read."""
        root = self.blocks.root
        before, past_before = root.moment, root.past
        with self.changed:
            upto = self.log.uploaded
            segments = [self.log.done[number] for number in range(root.applied + 1, upto + 1)]
        writer = MapWriter(self.store, self.prefix, root, root.epoch, self.changed)
        for part, change in self._changes(segments):
            self._apply(part, change, upto, writer)
        writer.flush()
        self._rewrite(writer)
        with self.changed:
            for segment in segments:
                self.usage.add(segment.sequence, segment.size)
        self._pages(writer)
        writer.flush()
        self.still_ours()
        with self.changed:
            root.applied = upto
            root.frame = segments[-1].frame if segments else root.frame
            root.number += 1
            root.counts = counts
            root.reigns = self._reigns(root)
            root.past, root.taken = self._past(before), self.clock()
            maps = self._live_maps(root)
            root.past_maps |= {key: (size, root.number) for key, size in root.maps.items() if key not in maps}
            root.maps = {key: size for key, size in root.maps.items() if key in maps}
        self._put_root(root)
        with self.changed:
            for segment in segments:
                del self.log.done[segment.sequence]
            dead = [number for number in self.usage.dead() if number <= upto]
        self.taken += 1
        self.kept_before = past_before
        if self.remover is not None:
            self.remover.remove_dead(dead, past_before, first=self.taken == 1)

    def _past(self, before: KeptMoment) -> list[KeptMoment]:
        """The moments that are kept from the root after this one on. Without rules they stay, and none is added."""
        past = self.blocks.root.past
        if self.history is None:
            return past
        return (
            []
            if self.history.empty
            else select_kept_moments(add_moment(past, before), self.history, self.clock())
        )

    def _changes(self, segments: Sequence[Segment]) -> Iterator[tuple[int, PartChange]]:
        """What these segments do to each part."""
        rows = [(segment.sequence, segment.table) for segment in segments if len(segment.table)]
        if not rows:
            return
        table = np.concatenate([table for _, table in rows])
        sequences = np.repeat([sequence for sequence, _ in rows], [len(table) for _, table in rows])
        table, sequences = _split(table, sequences)
        parts = table["block"] >> np.uint64(PART_BITS)
        order = np.argsort(parts, kind="stable")
        bounds = np.flatnonzero(np.diff(parts[order])) + 1
        for chosen in np.split(order, bounds):
            yield int(parts[chosen[0]]), _change(table[chosen], sequences[chosen])

    def _apply(self, part: int, change: PartChange, upto: int, writer: MapWriter) -> None:
        with self.changed:
            known = self.blocks.known(part)
        if known is None:
            known, _ = self.blocks.fetch(part)
        dense = known.dense()
        before, after = change.apply(dense)
        made = type(known).of_dense(dense)
        with self.changed:
            self.usage.count(before, after)
            self.blocks.stage(part, made)
            self.blocks.overlay.settle(part, upto)
        writer.add(made.as_bytes(), partial(self.blocks.stored, part))

    def _rewrite(self, writer: MapWriter) -> None:
        """Write parts anew whose objects hold mostly what nobody needs."""
        root = self.blocks.root
        live = self._live_maps(root)
        stored = sum(root.maps.get(key, 0) for key in live)
        if stored <= MAP_WASTE * sum(live.values()) + MAP_BYTES:
            return
        worst = min(live, key=lambda key: live[key] / max(1, root.maps.get(key, 1)))
        for part in np.flatnonzero(
            (root.parts["map"] == worst[0]) & (root.parts["epoch"] == worst[1])
        ).tolist():
            loaded, _ = self.blocks.fetch(part)
            with self.changed:
                self.blocks.stage(part, loaded)
            writer.add(loaded.as_bytes(), partial(self.blocks.stored, part))
        pages = np.flatnonzero((root.pages["map"] == worst[0]) & (root.pages["epoch"] == worst[1]))
        self.usage.changed.update(pages.tolist())

    def _pages(self, writer: MapWriter) -> None:
        with self.changed:
            self.usage.note_dead(self.blocks.root.number + 1)
            changed, self.usage.changed = sorted(self.usage.changed), set()
            pages = [(page, self.usage.page_bytes(page)) for page in changed]
        for page, data in pages:
            writer.add(data, partial(self._point_page, page))

    def _point_page(self, page: int, ref: MapReference) -> None:
        root = self.blocks.root
        missing = page + 1 - len(root.pages)
        if missing > 0:
            root.pages = np.concatenate([root.pages, np.zeros(missing, MAP_REFERENCE)])
        root.pages[page] = ref

    def _live_maps(self, root: CheckpointRoot) -> dict[tuple[int, int], int]:
        """Bytes of each of the map's objects that are needed."""
        live: dict[tuple[int, int], int] = {}
        for table in (root.parts, root.pages):
            used = table[table["map"] != 0]
            keys, inverse = np.unique(used[["map", "epoch"]], return_inverse=True)
            sums = np.bincount(inverse.ravel(), used["length"].astype(np.float64), len(keys)).astype(np.int64)
            for key, size in zip(keys.tolist(), sums.tolist(), strict=True):
                live[key] = live.get(key, 0) + size
        return live

    def _reigns(self, root: CheckpointRoot) -> list[EpochStart]:
        """Those of which there are segments left, and the one of now."""
        ends = [*(reign.first for reign in root.reigns[1:]), None]
        size = self.usage.size
        return [
            reign
            for reign, end in zip(root.reigns, ends, strict=True)
            if end is None or end > root.applied or size[reign.first : end].any()
        ]

    def _put_root(self, root: CheckpointRoot) -> None:
        self.store.put(make_checkpoint_key(self.prefix, root.number, root.epoch), root.as_bytes())
        with self.changed:
            self.log.checkpoint = root.number


def _split(table: np.ndarray, sequences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Have no entry cross from one part into another."""
    first = table["block"] >> np.uint64(PART_BITS)
    last = (table["block"] + table["count"] - np.uint64(1)) >> np.uint64(PART_BITS)
    if (first == last).all():
        return table, sequences
    times = (last - first + np.uint64(1)).astype(np.int64)
    nth = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
    out, whole = np.repeat(table, times), np.repeat(table, times)
    start = np.maximum(
        whole["block"], (np.repeat(first, times) + nth.astype(np.uint64)) << np.uint64(PART_BITS)
    )
    bound = (np.repeat(first, times) + nth.astype(np.uint64) + np.uint64(1)) << np.uint64(PART_BITS)
    end = np.minimum(whole["block"] + whole["count"], bound)
    out["block"], out["count"] = start, end - start
    moved = whole["slot"] + (start - whole["block"]).astype(np.uint32)
    out["slot"] = np.where(whole["slot"] == ZERO_SLOT, ZERO_SLOT, moved)
    return out, np.repeat(sequences, times)


def _change(table: np.ndarray, sequences: np.ndarray) -> PartChange:
    """Entries of one part, in the order of the log, block by block."""
    blank = np.flatnonzero((table["count"] == PART_BLOCKS) & (table["slot"] == ZERO_SLOT))
    if len(blank):
        table, sequences = table[blank[-1] + 1 :], sequences[blank[-1] + 1 :]
    counts = table["count"].astype(np.int64)
    nth = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    blocks = (np.repeat(table["block"], counts) & np.uint64(PART_BLOCKS - 1)).astype(np.int64) + nth
    slots = np.repeat(table["slot"], counts)
    zero = slots == ZERO_SLOT
    segments = np.where(zero, 0, np.repeat(sequences, counts))
    return PartChange(bool(len(blank)), blocks, segments, np.where(zero, 0, slots + nth))
