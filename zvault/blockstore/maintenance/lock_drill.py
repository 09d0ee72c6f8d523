"""Trying what an attacker with the writer's key would: on an object that is made for it, so that nothing can be hurt.

What the store needs is only looked at: whether it is locked, and for how long.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import islice

import numpy as np

from zvault.blockstore.attach import load_usage
from zvault.blockstore.format import make_checkpoint_key, make_map_key, make_segment_key
from zvault.blockstore.map.usage import SegmentUsage
from zvault.blockstore.needed_objects import DRILL_FOLDER, ObjectVersions, group_versions
from zvault.blockstore.recovery import read_newest_root, read_superblock
from zvault.core.errors import ZvaultError
from zvault.core.policy.object_lock import ObjectLock
from zvault.core.units import format_duration
from zvault.object_store.interface import ObjectMissing, ObjectStore, StoreDenied, StoreError, join_version
from zvault.object_store.s3 import S3Store

HOUR_SECONDS = 3600.0
DRILL_LOCK_TIME = HOUR_SECONDS
"""Seconds that the object of a drill is locked for: it stays for so long."""
APART = 2.0
"""Seconds between the put of a drill's object and what hides it: a date that moves with the hiding is told by them."""
SAME_DATE = 1.0
"""Seconds that two dates of one version may differ: some listings have whole seconds."""
DRILL_SAMPLE = 20
"""Objects of the store that are looked at."""


@dataclass(frozen=True, slots=True)
class DrillAttempt:
    """One thing that was tried. ``well`` None: it could not be told."""

    what: str
    well: bool | None
    came: str


def drill_locks(
    store: S3Store,
    objects: ObjectStore,
    prefix: str,
    lock: ObjectLock,
    *,
    pool: Executor,
    sleep: Callable[[float], object] = time.sleep,
) -> list[DrillAttempt]:
    """Try all of it, with the keys of ``store``, which puts with a lock of SHORT. Raises NotFound, StoreError.

    ``objects``: the same bucket as the block store sees its objects.
    """
    made = _Made(store, f"{prefix}/{DRILL_FOLDER}{uuid.uuid4().hex}", lock)
    return [*made.tries(sleep), *_looks(store, objects, prefix, lock, pool)]


class _Made:
    """The object of a drill."""

    def __init__(self, store: S3Store, key: str, lock: ObjectLock) -> None:
        self.store, self.key, self.lock = store, key, lock
        self.body = f"made by 'zvaultctl blockstore drill' at {store.now():.0f}".encode()

    def tries(self, sleep: Callable[[float], object]) -> list[DrillAttempt]:
        self.store.put(self.key, self.body)
        versions = self._versions()
        if versions is None or versions.genuine is None:
            return [
                DrillAttempt("list the versions of an object", False, "the object that was put is not listed")
            ]
        version = versions.genuine.version
        if version == "null":
            why = "the bucket keeps no versions: whatever is put again, or removed, is gone"
            return [DrillAttempt("keep versions", False, why)]
        self.version = version
        self.put_at = versions.genuine.modified
        lock = self.store.lock_of(self.key, version)
        now = self.store.now()
        locked = None if lock is None else lock.until > now and lock.mode == self.lock.mode
        told = "the store does not say whether it is" if lock is None else f"{lock.mode}, for an hour"
        tried = [DrillAttempt("put an object that is locked", locked, told)]
        tried.append(self._refused("remove a version of it", self._remove))
        tried.append(self._refused("have it locked for a shorter time", self._shorten))
        tried.append(self._refused("remove it as one who may bypass a lock", self._bypass))
        sleep(APART)
        tried.append(
            self._stays("put other contents over it", lambda: self.store.put(self.key, b"overwritten"))
        )
        tried.append(self._stays("put a delete marker before it", lambda: self.store.delete([self.key])))
        tried.append(self._found_as_of_before())
        return tried

    def _found_as_of_before(self) -> DrillAttempt:
        """Whether ``recover --before`` would still choose what was put first: the oldest version, of its old date.

        VersityGW gives a version a new date when it is hidden: it kept every version, and recover found nothing.
        """
        what = "find it by its date once it is hidden"
        versions = self._versions()
        listed = [] if versions is None else [one for one in versions.versions if not one.marker]
        mine = next((one for one in listed if one.version == self.version), None)
        if mine is None:
            return DrillAttempt(what, False, "the version that was put first is not listed any more")
        moved = mine.modified - self.put_at
        if abs(moved) > SAME_DATE:
            by = f"{format_duration(abs(moved))} {'later' if moved > 0 else 'earlier'}"
            came = (
                f"its version has another date now, {by}: 'recover --before' cannot find what was there then"
            )
            return DrillAttempt(what, False, came)
        if listed[-1].version != self.version:
            return DrillAttempt(what, False, "a version that was put later is listed as the oldest")
        return DrillAttempt(what, True, "the oldest version is the one that was put first, and has its date")

    def _versions(self) -> ObjectVersions | None:
        return next(group_versions(self.store.versions(self.key)), None)

    def _remove(self) -> None:
        versions = self._versions()
        genuine = versions.genuine if versions is not None else None
        if genuine is not None and self.store.delete_versions([genuine]):
            raise StoreDenied("it was not removed", "the store refuses it", "")

    def _shorten(self) -> None:
        self.store.retain(self.key, self.version, self.lock.mode, self.store.now() + DRILL_LOCK_TIME / 2)

    def _bypass(self) -> None:
        self.store.bypass(self.key, self.version)

    def _refused(self, what: str, call: Callable[[], object]) -> DrillAttempt:
        """What has to be refused, and has to have done nothing."""
        try:
            call()
        except StoreDenied as error:
            return self._there(what, f"refused: {error.why}")
        except ObjectMissing:
            return DrillAttempt(what, False, "the version is gone")
        return DrillAttempt(what, False, "it was done")

    def _stays(self, what: str, call: Callable[[], object]) -> DrillAttempt:
        """What may be done, as long as the version stays."""
        try:
            call()
        except StoreDenied as error:
            return self._there(what, f"refused: {error.why}")
        return self._there(what, "done, and the version below can be read")

    def _there(self, what: str, came: str) -> DrillAttempt:
        try:
            same = self.store.read(join_version(self.key, self.version))[0] == self.body
        except ObjectMissing:
            same = False
        return DrillAttempt(what, same, came if same else f"{came}; and what was put first is gone")


def _looks(
    store: S3Store, objects: ObjectStore, prefix: str, lock: ObjectLock, pool: Executor
) -> list[DrillAttempt]:
    """Whether what the newest checkpoint needs is locked for as long as it should be."""
    what = f"see how {DRILL_SAMPLE} objects that are needed are locked"
    try:
        keys = _needed(objects, prefix, pool)
        found = [(key, _lock(store, key)) for key in keys]
    except (StoreError, ZvaultError) as error:
        return [DrillAttempt(what, None, str(error))]
    gone = [key for key, until in found if until == _GONE]
    if gone:
        return [DrillAttempt(what, False, f"{len(gone)} of {len(found)} are missing, as {gone[0]}")]
    known = [(key, until) for key, until in found if until is not None]
    if len(known) < len(found):
        some = (
            f"the store says nothing of {len(found) - len(known)} of {len(found)}, as {_first(found, known)}"
        )
        return [DrillAttempt(what, False if known else None, some)]
    shortest = min(known, key=lambda one: one[1])
    left = shortest[1] - store.now()
    long = f"all for {format_duration(max(0.0, left))} at least, {shortest[0]} for the shortest time"
    return [DrillAttempt(what, left >= lock.seconds - HOUR_SECONDS, long)]


def _first(found: list[tuple[str, float | None]], known: list[tuple[str, float]]) -> str:
    have = {key for key, _ in known}
    return next(key for key, _ in found if key not in have)


_GONE = 0.0
"""The end of the lock of an object that has no version: a server's power took it, or whoever may remove locked ones."""


def _lock(store: S3Store, key: str) -> float | None:
    versions = next((one for one in group_versions(store.versions(key)) if one.key == key), None)
    if versions is None or versions.genuine is None:
        return _GONE
    lock = store.lock_of(key, versions.genuine.version)
    return None if lock is None else lock.until


def _needed(store: ObjectStore, prefix: str, pool: Executor) -> list[str]:
    what = read_superblock(store, prefix)
    root, usage = read_newest_root(store, prefix, what), SegmentUsage()
    load_usage(usage, store, prefix, root, pool)
    live = np.flatnonzero(usage.live).tolist()
    some = random.sample(live, min(DRILL_SAMPLE, len(live)))
    keys = [f"{prefix}/store", make_checkpoint_key(prefix, root.number, root.epoch)]
    keys += [make_map_key(prefix, *key) for key in islice(root.maps, DRILL_SAMPLE)]
    keys += [make_segment_key(prefix, number, root.epoch_of(number)) for number in some]
    return keys if root.number else keys[:1]
