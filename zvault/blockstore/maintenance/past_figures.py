"""The moments of a store's past that are kept: what each holds and costs, and whether all that it needs is there."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from zvault.blockstore.attach import load_usage
from zvault.blockstore.format import (
    BLOCK_SIZE,
    ObjectDamaged,
    Superblock,
    make_checkpoint_key,
    make_map_key,
    make_segment_key,
)
from zvault.blockstore.kept_moments import KeptMoment, count_kept_bytes
from zvault.blockstore.maintenance.check_report import StoreProblem
from zvault.blockstore.map.past_bytes import count_past_bytes
from zvault.blockstore.map.root import CheckpointRoot
from zvault.blockstore.map.usage import SegmentUsage
from zvault.blockstore.recovery import read_newest_root, read_root_at, read_superblock
from zvault.core.errors import NotFound
from zvault.object_store.interface import ObjectMissing, ObjectStore


@dataclass(frozen=True, slots=True)
class MomentFigures:
    """A moment. ``taken`` in seconds since the epoch; ``live_bytes`` the device held then, None where that cannot be
    told; ``alone_bytes`` of the bucket are there for it alone."""

    epoch: int
    checkpoint: int
    taken: float
    live_bytes: int | None
    alone_bytes: int

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class PastFigures:
    """All moments, the oldest first; ``past_bytes`` of segments are there for them and not for the device of now."""

    moments: list[MomentFigures]
    past_bytes: int


def read_past_figures(store: ObjectStore, prefix: str, pool: Executor) -> PastFigures:
    """Return figures of the moments that are kept. Raises NotFound, ObjectDamaged, StoreError."""
    what = read_superblock(store, prefix)
    root, usage = read_newest_root(store, prefix, what), SegmentUsage()
    load_usage(usage, store, prefix, root, pool)
    dead = np.array(usage.dead(), np.int64)
    died = usage.died[dead]
    alone = count_kept_bytes(root.past, usage.size, dead, died)
    figures = [
        MomentFigures(one.epoch, one.number, one.taken, _live(store, prefix, what, one, pool), size)
        for one, size in zip(root.past, alone, strict=True)
    ]
    return PastFigures(figures, count_past_bytes(usage, root.past))


def _live(
    store: ObjectStore, prefix: str, what: Superblock, moment: KeptMoment, pool: Executor
) -> int | None:
    try:
        return int(_usage_at(store, prefix, what, moment, pool)[1].live.sum(dtype=np.int64)) * BLOCK_SIZE
    except (ObjectDamaged, NotFound, ObjectMissing):
        return None


def _usage_at(
    store: ObjectStore, prefix: str, what: Superblock, moment: KeptMoment, pool: Executor
) -> tuple[CheckpointRoot, SegmentUsage]:
    """A moment's root, and what was live in each segment then. Raises NotFound, ObjectMissing, ObjectDamaged,
    StoreError.
    """
    root, usage = read_root_at(store, prefix, what, moment), SegmentUsage()
    load_usage(usage, store, prefix, root, pool)
    return root, usage


def list_past_problems(
    store: ObjectStore, prefix: str, what: Superblock, root: CheckpointRoot, listed: set[str], pool: Executor
) -> Iterator[StoreProblem]:
    """Yield what moments need and the bucket, as ``listed``, lacks. A moment that was dropped meanwhile is passed
    over.
    """
    for moment in root.past:
        why = _wrong(store, prefix, what, moment, listed, pool)
        if why and moment in read_newest_root(store, prefix, what).past:
            yield StoreProblem("past", make_checkpoint_key(prefix, moment.number, moment.epoch), why)


def _wrong(
    store: ObjectStore, prefix: str, what: Superblock, moment: KeptMoment, listed: set[str], pool: Executor
) -> str:
    """What is wrong with a moment that is kept, in words; "" where nothing is."""
    try:
        root, usage = _usage_at(store, prefix, what, moment, pool)
    except (ObjectDamaged, NotFound, ObjectMissing) as error:
        return f"it is kept, and cannot be read: {error.why or error.what}"
    wanted = [make_map_key(prefix, *key) for key in root.maps]
    live = np.flatnonzero(usage.live).tolist()
    wanted += [make_segment_key(prefix, number, root.epoch_of(number)) for number in live]
    missing = [key for key in wanted if key not in listed]
    if not missing:
        return ""
    return (
        f"it is kept, and {len(missing)} of {len(wanted)} objects that it needs are missing, as {missing[0]}"
    )


def list_past_objects(prefix: str, root: CheckpointRoot) -> set[str]:
    """Checkpoints, and objects of the map, that only moments need."""
    moments = {make_checkpoint_key(prefix, one.number, one.epoch) for one in root.past}
    return moments | {make_map_key(prefix, *key) for key in root.past_maps}
