"""Keeping a store's objects locked while it is written to, and removing versions that nobody needs any more.

All versions below the store's prefix are listed once a day. What is needed is locked again when that is due
(object_lock.py). Garbage goes once the store lets it go: whether its lock has ended is not remembered, but tried. What
was removed is seen by the listing, whoever did it. What somebody hid, or put over something, is told.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from itertools import islice
from typing import TypeVar

from zvault.blockstore.checkpoint import Checkpoints
from zvault.blockstore.engine_state import EngineState
from zvault.blockstore.format import find_key_numbers, make_map_key, make_segment_key
from zvault.blockstore.map.blockmap import BlockMap
from zvault.blockstore.map.usage import SegmentUsage
from zvault.blockstore.needed_objects import NeededObjects, ObjectVersions, group_versions
from zvault.core.policy.object_lock import LockState, ObjectLock
from zvault.object_store.interface import (
    ListedVersion,
    ObjectDamaged,
    ObjectMissing,
    ObjectStore,
    StoreDenied,
)

VERSION_LISTING_INTERVAL = 86400.0
"""Seconds from one listing of all versions to the next."""
LOCK_RETRY_PAUSE = 3600.0
"""Seconds after which what the store refused is tried again."""
OBJECTS_BETWEEN_STOPS = 500
"""Objects that are looked at between two looks whether the engine is to be closed."""
STORE_CLOCK_SKEW = 900.0
"""Seconds that the store's clock may differ from ours."""

T = TypeVar("T")


class LockKeeper:
    """Keeps the objects of one engine locked.

    ``care`` is held where roots must not change; nothing here is called with ``changed`` held.
    """

    def __init__(  # noqa: PLR0913 - what it works on is passed in
        self,
        state: EngineState,
        blocks: BlockMap,
        usage: SegmentUsage,
        checkpoints: Checkpoints,
        *,
        lock: ObjectLock | None,
        removes: bool,
        care: threading.RLock,
        still_ours: Callable[[], None],
        clock: Callable[[], float],
        pool: Executor | None,
    ) -> None:
        """``still_ours`` raises when another has the store."""
        self.blocks, self.usage = blocks, usage
        self.store: ObjectStore = blocks.store
        self.prefix = blocks.prefix
        self.lock, self.removes = lock, removes
        self.engine_state, self.checkpoints = state, checkpoints
        self.care, self.changed = care, state.changed
        self.still_ours, self.clock = still_ours, clock
        self.pool = pool
        self.trouble: str | None = None
        self.unsaved = False
        """Whether the state has changed since the last root was put."""
        self.renewed = 0
        self._not_before = 0.0

    @property
    def state(self) -> LockState:
        """As the newest root has it, and further."""
        return self.blocks.root.lock

    def due(self) -> bool:
        """True if there is something to do."""
        now = self.clock()
        if now < self._not_before:
            return False
        renew = self.lock is not None and self.state.due(self.lock, now)
        return renew or not 0 <= now - self.state.seen < VERSION_LISTING_INTERVAL

    def tend(self) -> bool:
        """Do what is due; return whether anything was. Raises StoreError, and what ``still_ours`` raises."""
        if not self.due():
            return False
        try:
            _Round(self).go()
        except (StoreDenied, ObjectDamaged) as error:
            # What can be written and read goes on. It is told, and tried again.
            self.trouble = f"what is needed cannot be kept locked: {error}" if self.lock else str(error)
            self._not_before = self.clock() + LOCK_RETRY_PAUSE
        return True

    def needed(self) -> NeededObjects:
        """As of now; ``care`` is held for as long as it is used."""
        return NeededObjects(self.prefix, self.blocks.root, self.usage, self.checkpoints.kept_before)

    def set(self, state: LockState) -> None:
        """Keep this; the next root has it."""
        with self.changed:
            self.unsaved |= state != self.blocks.root.lock
            self.blocks.root.lock = state

    def all(self, call: Callable[[T], object], items: list[T]) -> None:
        """Call it for each, side by side."""
        for _ in map(call, items) if self.pool is None else self.pool.map(call, items):
            pass


class _Round:
    """One listing of all versions, or the rest of one that did not come to its end."""

    def __init__(self, of: LockKeeper) -> None:
        self.of = of
        self.lock = of.lock
        now = of.clock()
        if of.lock is not None:
            of.set(of.state.begin(of.lock, now))
        self.renewing = of.lock is not None and of.state.begun > 0
        self.began = of.state.begun
        self.whole = not (self.renewing and of.state.after)
        """Whether it begins at the beginning: only then it tells what is missing of the map."""
        # What is there for sure before anything is listed.
        with of.care:
            self.applied, self.map_number = of.blocks.root.applied, of.blocks.root.map_number
        self.segment: int | None = 0 if self.whole else None
        """Up to which segment all is looked at; None: not known yet."""
        self.maps: set[tuple[int, int]] = set()
        self.strange: list[str] = []
        self.missing: list[str] = []

    def go(self) -> None:
        of = self.of
        objects = group_versions(of.store.versions(f"{of.prefix}/", of.state.after if self.renewing else ""))
        while some := list(islice(objects, OBJECTS_BETWEEN_STOPS)):
            if of.engine_state.ending:
                return
            self._some(some)
            of.set(of.state.come_to(some[-1].key))
        self._end_of_segments()
        if self.whole:
            self._end_of_maps()
        if self.lock is not None:
            of.set(of.state.done(self.lock, of.clock()))
        else:
            of.set(LockState(seen=of.clock()))
        if self.whole:
            of.trouble = self._told()

    def _some(self, some: list[ObjectVersions]) -> None:
        of = self.of
        keep: list[ListedVersion] = []
        remove: list[ListedVersion] = []
        with of.care:
            needed = of.needed()
            for one in some:
                match needed.verdict(one.key):
                    case "garbage":
                        remove += one.versions
                    case "needed" | "fresh":
                        keep += self._seen(one)
                self._go_on(one.key, needed)
        if self.renewing:
            of.all(self._renew, [one for one in keep if one.modified <= self.began + STORE_CLOCK_SKEW])
        if self.of.removes and remove:
            of.still_ours()
            of.store.delete_versions(remove)

    def _seen(self, one: ObjectVersions) -> list[ListedVersion]:
        """The version that counts. Where there are others somebody put them there; the newest ``epoch`` counts."""
        if one.key == f"{self.of.prefix}/epoch":
            return [version for version in one.versions[:1] if not version.marker]
        if one.strange and not one.same(self.of.store):
            self.strange.append(one.key)
        return [one.genuine] if one.genuine is not None else []

    def _renew(self, one: ListedVersion) -> None:
        if self.lock is None:
            return
        try:
            until = self.of.clock() + self.lock.span
            self.of.store.retain(one.key, one.version, self.lock.mode, until)
        except ObjectMissing:
            return  # it was garbage by now, and removed; else the next listing misses it
        self.of.renewed += 1

    # What is not there any more

    def _go_on(self, key: str, needed: NeededObjects) -> None:
        """The listing has come to this key."""
        kind = key.removeprefix(f"{self.of.prefix}/").partition("/")[0]
        first, second = find_key_numbers(key)
        if kind == "maps":
            self.maps.add((first, second))
        if kind != "segments" or not 0 < first <= self.applied or second != needed.root.epoch_of(first):
            return
        if self.segment is not None:
            self._gone(needed, self.segment, first)
        self.segment = first

    def _end_of_segments(self) -> None:
        if self.segment is not None:
            with self.of.care:
                self._gone(self.of.needed(), self.segment, self.applied + 1)

    def _gone(self, needed: NeededObjects, after: int, before: int) -> None:
        for number, verdict in needed.segments_between(after, before):
            if verdict == "needed":
                self._miss(make_segment_key(self.of.prefix, number, needed.root.epoch_of(number)))
            else:
                with self.of.changed:
                    self.of.usage.gone([number])

    def _end_of_maps(self) -> None:
        of = self.of
        with of.care:
            needed, root = of.needed(), of.blocks.root
            for number, epoch in [*root.maps, *root.past_maps]:
                if (number, epoch) in self.maps or number > self.map_number:
                    continue
                key = make_map_key(of.prefix, number, epoch)
                if needed.verdict(key) == "needed":
                    self._miss(key)
                elif (number, epoch) in root.past_maps:
                    with of.changed:
                        del root.past_maps[number, epoch]

    def _miss(self, key: str) -> None:
        """A listing is not believed alone."""
        try:
            self.of.store.tail(key, 1)
        except ObjectMissing:
            self.missing.append(key)

    def _told(self) -> str | None:
        return describe_tampering(self.strange, self.missing)


def describe_tampering(strange: list[str], missing: list[str]) -> str | None:
    """Say in words what somebody did to a store; None where nobody did anything."""
    said = list(_said(strange, "hidden or put again by somebody else")) + list(_said(missing, "missing"))
    if not said:
        return None
    return (
        f"somebody has been at the bucket: {' and '.join(said)}; see who has its keys, and what"
        " 'zvaultctl blockstore recover' brings back"
    )


def _said(keys: list[str], what: str) -> Iterator[str]:
    if keys:
        many = f"{len(keys)} objects that are needed are" if len(keys) > 1 else "one object that is needed is"
        yield f"{many} {what}, as {keys[0]}"
