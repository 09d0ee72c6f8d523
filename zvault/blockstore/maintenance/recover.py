"""Finding the last checkpoint of a store as of a time, by the versions that were there then, with all that it needs."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from zvault.blockstore.attach import load_usage
from zvault.blockstore.bucket_as_of import BucketAsOf
from zvault.blockstore.format import (
    ObjectDamaged,
    Superblock,
    make_map_key,
    make_segment_key,
    parse_key_numbers,
)
from zvault.blockstore.kept_moments import KeptMoment
from zvault.blockstore.map.root import CheckpointRoot
from zvault.blockstore.map.usage import SegmentUsage
from zvault.blockstore.recovery import list_checkpoint_keys, read_root, read_superblock
from zvault.core.errors import NotFound
from zvault.object_store.interface import ObjectMissing, ObjectStore


@dataclass(frozen=True, slots=True)
class RecoverableCheckpoint:
    """A checkpoint that is whole. ``put``: when, by the store's clock; ``objects`` it needs, of so many ``bytes``.

    ``passed``: later checkpoints that are not whole, with the reason.
    """

    what: Superblock
    moment: KeptMoment
    put: float
    objects: int
    bytes: int
    passed: tuple[tuple[str, str], ...]


def find_last_whole(
    store: ObjectStore, then: BucketAsOf, prefix: str, pool: Executor
) -> RecoverableCheckpoint:
    """The last checkpoint of which all objects are there, and its maps can be read. Raises NotFound, StoreError.

    ``store``: what is there as of ``then``, as the block store sees its objects.
    """
    try:
        what = read_superblock(store, prefix)
    except NotFound:
        raise NotFound(
            f"nothing of the block store {prefix} can be brought back as of then",
            f"there was no {prefix}/store: {then.describe_versions()}",
            "give a later time. If the store was there then, its server changes the dates of versions that are hidden:"
            " 'zvaultctl blockstore drill' tells",
        ) from None
    passed: list[tuple[str, str]] = []
    for key in reversed(list_checkpoint_keys(store, prefix)):
        try:
            root, usage = read_root(store, key, what), SegmentUsage()
            load_usage(usage, store, prefix, root, pool)
        except (ObjectDamaged, ObjectMissing) as error:
            passed.append((key, error.why or error.what))
            continue
        objects = list_needed_objects(prefix, root, usage)
        missing = [one for one in objects if one not in then]
        if not missing:
            size = sum(objects.values())
            return RecoverableCheckpoint(
                what, root.moment, then.put_at(key), len(objects), size, tuple(passed)
            )
        passed.append(
            (key, f"{len(missing)} of {len(objects)} objects that it needs are missing, as {missing[0]}")
        )
    why = f"there was no checkpoint yet; {then.describe_versions()}"
    if passed:
        why = f"of {len(passed)} checkpoints none is whole; the newest, {passed[0][0]}: {passed[0][1]}"
    what_failed = f"nothing of the block store {prefix} can be brought back as of then"
    raise NotFound(what_failed, why, "give another time")


def list_needed_objects(prefix: str, root: CheckpointRoot, usage: SegmentUsage) -> dict[str, int]:
    """The objects that a root needs, with their sizes in bytes."""
    found = {make_map_key(prefix, *key): size for key, size in root.maps.items()}
    for number in np.flatnonzero(usage.live).tolist():
        found[make_segment_key(prefix, number, root.epoch_of(number))] = int(usage.size[number])
    return found


def read_found_moment(
    store: ObjectStore, prefix: str, what: Superblock, epoch: int, number: int
) -> KeptMoment:
    """A checkpoint that was found, by its numbers. Raises NotFound, ObjectDamaged, StoreError."""
    for key in list_checkpoint_keys(store, prefix):
        if parse_key_numbers(key) == (epoch, number):
            return read_root(store, key, what).moment
    raise NotFound(f"there was no checkpoint {number} of epoch {epoch} then", "", "give a later time")
