"""Which objects of a block store are deleted, and when: dead segments, old maps and checkpoints, after a checkpoint.

An object goes after the second checkpoint that does not need it: a crash at any moment leaves the last root and
everything that it needs. Moments of the past that are kept need objects too (kept_moments.py). Where objects are
locked, lock_keeper.py removes them instead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from zvault.blockstore.format import find_key_numbers, make_checkpoint_key, make_map_key, make_segment_key
from zvault.blockstore.kept_moments import KeptMoment, MomentNeeds
from zvault.blockstore.map.blockmap import BlockMap
from zvault.blockstore.map.usage import SegmentUsage
from zvault.blockstore.recovery import list_checkpoint_keys
from zvault.object_store.interface import ObjectStore


class ObjectRemover:
    """Removes what nothing needs any more. Nothing here is called with the engine's lock held."""

    def __init__(
        self,
        blocks: BlockMap,
        usage: SegmentUsage,
        changed: threading.Condition,
        still_ours: Callable[[], None],
    ) -> None:
        """``still_ours`` raises when another writer has the store."""
        self.blocks = blocks
        self.usage = usage
        self.changed = changed
        self.still_ours = still_ours
        self.store: ObjectStore = blocks.store
        self.prefix = blocks.prefix
        self.dying: list[int] = []
        """Segments of which the last root needs nothing any more, nor a moment that is kept."""
        self.strays: list[str] = []
        """Objects that belong to nothing, found at the start."""

    def remove_dead(self, dead: list[int], past_before: list[KeptMoment], *, first: bool) -> None:
        """Remove, after a checkpoint, what neither it nor the one before it needs. Raises StoreError.

        ``dead`` are the segments without a live block by then, ``past_before`` the moments that the root before it
        kept. The ``first`` of a writer also removes what the writer before it left.
        """
        root = self.blocks.root
        still = set(self._free(dead, MomentNeeds([*past_before, *root.past])))
        self._remove([number for number in self.dying if number in still], past_before, first=first)
        with self.changed:
            dead = [number for number in dead if self.usage.size[number]]
            self.dying = self._free(dead, MomentNeeds(root.past))

    def _free(self, dead: list[int], needs: MomentNeeds) -> list[int]:
        """Of dead segments those that no moment needs."""
        numbers = np.array(dead, np.int64)
        needed = needs.segments(numbers, self.usage.died[numbers])
        free: list[int] = numbers[~needed].tolist()
        return free

    def _remove(self, segments: list[int], past_before: list[KeptMoment], *, first: bool) -> None:
        root = self.blocks.root
        keys = [make_segment_key(self.prefix, number, root.epoch_of(number)) for number in segments]
        keys += self.strays
        needs = MomentNeeds([*past_before, *root.past])
        maps = [
            key
            for key, (_, died) in root.past_maps.items()
            if died < root.number and not needs.map_object(key[0], died)
        ]
        keys += [make_map_key(self.prefix, *key) for key in maps]
        if first:
            keys += self._lost_maps()
        keep = {make_checkpoint_key(self.prefix, root.number - back, root.epoch) for back in (0, 1)}
        keep |= {
            make_checkpoint_key(self.prefix, one.number, one.epoch) for one in (*past_before, *root.past)
        }
        listed = list_checkpoint_keys(self.store, self.prefix)
        mine = make_checkpoint_key(self.prefix, root.number, root.epoch)
        keys += [key for key in listed if key not in keep and key < mine]
        if not keys:
            return
        self.still_ours()
        self.store.delete(keys)
        self.strays = []
        with self.changed:
            self.usage.gone(segments)
            for key in maps:
                del root.past_maps[key]

    def _lost_maps(self) -> list[str]:
        """Objects of the map that a writer before this one left behind."""
        root = self.blocks.root
        known = {make_map_key(self.prefix, *key) for key in (*root.maps, *root.past_maps)}
        mine = make_map_key(self.prefix, root.map_number + 1, 0)
        listed = [found.key for found in self.store.list(f"{self.prefix}/maps/")]
        ours = [key for key in listed if key == make_map_key(self.prefix, *find_key_numbers(key))]
        return [key for key in ours if key not in known and key < mine]
