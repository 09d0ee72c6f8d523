"""Finding the last checkpoint of a store as of a time, by the versions that were there then, with all that it needs."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from zvault.blockstore.as_of import AsOf
from zvault.blockstore.attach import load_usage
from zvault.blockstore.format import Damaged, Superblock, map_key, numbers_of, segment_key
from zvault.blockstore.history import Moment
from zvault.blockstore.map.root import Root
from zvault.blockstore.map.usage import Usage
from zvault.blockstore.recovery import checkpoint_keys, read_root, superblock
from zvault.core.errors import NotFound
from zvault.object_store.interface import ObjectMissing, ObjectStore


@dataclass(frozen=True, slots=True)
class Recoverable:
    """A checkpoint that is whole. ``put``: when, by the store's clock; ``objects`` it needs, of so many ``bytes``.

    ``passed``: later checkpoints that are not whole, with the reason.
    """

    what: Superblock
    moment: Moment
    put: float
    objects: int
    bytes: int
    passed: tuple[tuple[str, str], ...]


def last_whole(store: ObjectStore, then: AsOf, prefix: str, pool: Executor) -> Recoverable:
    """The last checkpoint of which all objects are there, and its maps can be read. Raises NotFound, StoreError.

    ``store``: what is there as of ``then``, as the block store sees its objects.
    """
    try:
        what = superblock(store, prefix)
    except NotFound:
        raise NotFound(
            f"nothing of the block store {prefix} can be brought back as of then",
            f"there was no {prefix}/store: {then.describe_versions()}",
            "give a later time. If the store was there then, its server changes the dates of versions that are hidden:"
            " 'zvaultctl blockstore drill' tells",
        ) from None
    passed: list[tuple[str, str]] = []
    for key in reversed(checkpoint_keys(store, prefix)):
        try:
            root, usage = read_root(store, key, what), Usage()
            load_usage(usage, store, prefix, root, pool)
        except (Damaged, ObjectMissing) as error:
            passed.append((key, error.why or error.what))
            continue
        objects = wanted(prefix, root, usage)
        missing = [one for one in objects if one not in then]
        if not missing:
            size = sum(objects.values())
            return Recoverable(what, root.moment, then.put_at(key), len(objects), size, tuple(passed))
        passed.append(
            (key, f"{len(missing)} of {len(objects)} objects that it needs are missing, as {missing[0]}")
        )
    why = f"there was no checkpoint yet; {then.describe_versions()}"
    if passed:
        why = f"of {len(passed)} checkpoints none is whole; the newest, {passed[0][0]}: {passed[0][1]}"
    what_failed = f"nothing of the block store {prefix} can be brought back as of then"
    raise NotFound(what_failed, why, "give another time")


def wanted(prefix: str, root: Root, usage: Usage) -> dict[str, int]:
    """The objects that a root needs, with their sizes in bytes."""
    found = {map_key(prefix, *key): size for key, size in root.maps.items()}
    for number in np.flatnonzero(usage.live).tolist():
        found[segment_key(prefix, number, root.epoch_of(number))] = int(usage.size[number])
    return found


def moment_of(store: ObjectStore, prefix: str, what: Superblock, epoch: int, number: int) -> Moment:
    """A checkpoint that was found, by its numbers. Raises NotFound, Damaged, StoreError."""
    for key in checkpoint_keys(store, prefix):
        if numbers_of(key) == (epoch, number):
            return read_root(store, key, what).moment
    raise NotFound(f"there was no checkpoint {number} of epoch {epoch} then", "", "give a later time")
