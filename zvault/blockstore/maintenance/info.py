"""What a handful of requests tell of a store: its newest root, the pages of its usage, and a listing of its log."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from zvault.api.blockstore import REQUEST_KINDS
from zvault.blockstore.attach import load_usage
from zvault.blockstore.format import BLOCK_SIZE, SLOT_SIZE, find_key_numbers, make_segment_key
from zvault.blockstore.map.past_bytes import count_past_bytes
from zvault.blockstore.map.root import CheckpointRoot
from zvault.blockstore.map.usage import SegmentUsage
from zvault.blockstore.recovery import WriterEpoch, read_newest_root, read_superblock
from zvault.core.cost.prices import StorePrices
from zvault.object_store.interface import ObjectStore


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """Sizes in bytes, times in seconds since the epoch. ``requests`` are those of all its writers, by kind.

    ``past_bytes`` are stored for the ``moments`` that are kept alone, and are no garbage. All that is needed is locked
    by ``lock_mode`` until ``locked_until``; "" and 0: nothing is, as far as its writer knows. ``journal``: the one
    that may have what the store lacks (epoch, host, folder, since); None: all is in the store.
    """

    uuid: str
    size: int
    created: float
    epoch: int
    owner: str
    since: float
    journal: dict[str, Any] | None
    checkpoint_epoch: int
    checkpoint: int
    segments: int
    live_bytes: int
    stored_bytes: int
    dead_bytes: int
    moments: int
    past_bytes: int
    lock_mode: str
    locked_until: float
    log_segments: int
    log_bytes: int
    map_objects: int
    map_bytes: int
    requests: dict[str, int]
    cost: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for JSON."""
        return asdict(self)


def read_store_info(
    store: ObjectStore, prefix: str, pool: Executor, prices: StorePrices | None = None
) -> StoreInfo:
    """Ask for what is told. Raises NotFound, ObjectDamaged, StoreError."""
    what = read_superblock(store, prefix)
    epoch = WriterEpoch.read(store, prefix)
    root = read_newest_root(store, prefix, what)
    usage = SegmentUsage()
    load_usage(usage, store, prefix, root, pool)
    log = _log(store, prefix, root)
    live = int(usage.live.sum(dtype=np.int64))
    stored, past = usage.stored_bytes, count_past_bytes(usage, root.past)
    return StoreInfo(
        uuid=what.uuid,
        size=what.size,
        created=what.created,
        epoch=epoch.number,
        owner=epoch.owner,
        since=epoch.since,
        journal=epoch.journal.as_data() if epoch.journal is not None else None,
        checkpoint_epoch=root.epoch,
        checkpoint=root.number,
        segments=usage.segments + len(log),
        live_bytes=live * BLOCK_SIZE,
        stored_bytes=stored + sum(log),
        dead_bytes=max(0, stored - live * SLOT_SIZE - past),
        moments=len(root.past),
        past_bytes=past,
        lock_mode=root.lock.mode,
        locked_until=root.lock.until,
        log_segments=len(log),
        log_bytes=sum(log),
        map_objects=len(root.maps),
        map_bytes=sum(root.maps.values()),
        requests={kind: int(root.counts.get(kind, 0)) for kind in REQUEST_KINDS},
        cost=None if prices is None else price_requests(root.counts, prices),
    )


def _log(store: ObjectStore, prefix: str, root: CheckpointRoot) -> list[int]:
    """Sizes of the segments after the checkpoint, up to the first number that is missing."""
    sizes: list[int] = []
    for found in store.list(f"{prefix}/segments/", after=make_segment_key(prefix, root.applied, 0xFFFFFFFF)):
        sequence, epoch = find_key_numbers(found.key)
        if sequence == root.applied + len(sizes) + 1 and epoch == root.epoch_of(sequence):
            sizes.append(found.size)
    return sizes


def price_requests(counts: dict[str, int], prices: StorePrices) -> float:
    """Return the cost of these requests."""
    return prices.of_requests(counts.get("put", 0) + counts.get("list", 0), counts.get("get", 0))
