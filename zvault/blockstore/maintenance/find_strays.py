"""What lies below a store's prefix and belongs to nothing: looked for at the end of a check."""

from __future__ import annotations

import time
from typing import Protocol

from zvault.blockstore.format import (
    Superblock,
    find_key_numbers,
    make_checkpoint_key,
    make_keyring_key,
    make_map_key,
    make_segment_key,
    make_superblock_key,
)
from zvault.blockstore.log_tail import LogTail
from zvault.blockstore.maintenance.check_map import CheckedMap
from zvault.blockstore.maintenance.check_report import CheckReport, StoreProblem
from zvault.blockstore.maintenance.past_figures import list_past_objects
from zvault.blockstore.map.read_roots import read_previous_root
from zvault.blockstore.map.root import CheckpointRoot
from zvault.blockstore.map.usage import PAGE_SEGMENTS
from zvault.blockstore.needed_objects import DRILL_FOLDER
from zvault.blockstore.recovery import WriterEpoch, read_newest_root
from zvault.core.policy.object_lock import LockState
from zvault.object_store.interface import ListedObject, ObjectMissing, ObjectStore

OBJECT_FOLDERS = ("segments", "maps", "checkpoints")
KEPT_CHECKPOINTS = 2
"""Checkpoints before the newest that are left in peace: the last writer's last two."""


class CheckedObjects(Protocol):
    """The findings of a check of map and segments, and what it asked for them."""

    store: ObjectStore
    prefix: str
    settle: float
    what: Superblock
    root: CheckpointRoot
    mapped: CheckedMap
    epoch: WriterEpoch
    rest: LogTail
    broken: int | None
    sizes: dict[str, int]
    report: CheckReport


def find_strays(of: CheckedObjects) -> None:
    """Add them to a check's report, and a gap in the log."""
    _Strays(of).find()


class _Strays:
    def __init__(self, of: CheckedObjects) -> None:
        self.of = of

    def find(self) -> None:
        """Find what belongs to nothing. What the writer of now may be about to need is left out."""
        root, mapped = self.of.root, self.of.mapped
        known = self._known(root)
        log = {make_segment_key(self.of.prefix, one.sequence, one.epoch) for one in self.of.rest.segments}
        beyond: list[ListedObject] = []
        for found in self.of.store.list(f"{self.of.prefix}/"):
            kind = found.key.removeprefix(f"{self.of.prefix}/").partition("/")[0]
            self.of.sizes[found.key] = found.size
            if found.key in known or found.key in log:
                continue
            if kind == "segments" and self._is_known_segment(found.key, root, mapped):
                continue
            at = find_key_numbers(found.key)
            young = max(at[0] if kind == "checkpoints" else at[1], 0) >= self.of.epoch.number
            if kind == "segments" and at[0] > root.applied and at[1] == root.epoch:
                beyond.append(found)
            if root.lock != LockState() and (kind in OBJECT_FOLDERS or kind == DRILL_FOLDER.rstrip("/")):
                continue  # its time has not come yet, and then it is removed
            if not young or kind not in OBJECT_FOLDERS or _is_old(kind, at, root):
                self.of.report.strays.append(found)
                self.of.report.stray_bytes += found.size
        if self.of.broken is None and beyond:
            self._gap(root, beyond)

    def _is_known_segment(self, key: str, root: CheckpointRoot, mapped: CheckedMap) -> bool:
        sequence, epoch = find_key_numbers(key)
        if not 0 < sequence <= root.applied or epoch != root.epoch_of(sequence):
            return sequence == self.of.broken and epoch == root.epoch_of(sequence)
        size = mapped.usage.size
        # Without its pages the usage knows of none.
        unknown = sequence // PAGE_SEGMENTS in mapped.bad_pages or bool(mapped.bad_parts)
        return unknown or mapped.live[sequence] > 0 or (sequence < len(size) and size[sequence] > 0)

    def _known(self, root: CheckpointRoot) -> set[str]:
        keys = [
            make_superblock_key(self.of.prefix),
            make_keyring_key(self.of.prefix),
            WriterEpoch.key(self.of.prefix),
            make_checkpoint_key(self.of.prefix, root.number, root.epoch),
        ]
        keys += [problem.key for problem in self.of.report.of("checkpoint")]
        keys += list_past_objects(self.of.prefix, root)
        maps = set(root.maps) | {(int(ref["map"]), int(ref["epoch"])) for ref in (*root.parts, *root.pages)}
        before = root
        for _ in range(KEPT_CHECKPOINTS):
            older = read_previous_root(self.of.store, self.of.prefix, before)
            if older is None:
                break
            before = older
            keys.append(make_checkpoint_key(self.of.prefix, before.number, before.epoch))
            maps |= set(before.maps)
            # What the newest root dropped is removed after the next one.
            keys += list_past_objects(self.of.prefix, before)
        return {*keys, *(make_map_key(self.of.prefix, *key) for key in maps)}

    def _gap(self, root: CheckpointRoot, beyond: list[ListedObject]) -> None:
        """Later segments of the log than one that is not there."""
        missing = root.applied + len(self.of.rest.segments) + 1
        key = make_segment_key(self.of.prefix, missing, root.epoch)
        time.sleep(self.of.settle)
        try:
            self.of.store.tail(key, 1)
            return
        except ObjectMissing:
            newest = read_newest_root(self.of.store, self.of.prefix, self.of.what)
            if (newest.epoch, newest.number) != (root.epoch, root.number):
                return
        size = sum(one.size for one in beyond)
        why = (
            f"it is missing, and {len(beyond)} later segments ({size} bytes) are there: a writer that died leaves them"
            " so, before any flush of them was answered; if none died, what they hold is lost"
        )
        self.of.report.problems.append(StoreProblem("log", key, why, numbers=(missing,)))


def _is_old(kind: str, at: tuple[int, int], root: CheckpointRoot) -> bool:
    """True if even the writer of now has no use for it."""
    if kind == "checkpoints":
        return at < (root.epoch, root.number)
    return at[0] <= (root.applied if kind == "segments" else root.map_number)
