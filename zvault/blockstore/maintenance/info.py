"""What a handful of requests tell of a store: its newest root, the pages of its usage, and a listing of its log."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from zvault.blockstore.attach import load_usage
from zvault.blockstore.format import BLOCK, SLOT, numbers, segment_key
from zvault.blockstore.map.past_bytes import past_bytes
from zvault.blockstore.map.root import Root
from zvault.blockstore.map.usage import Usage
from zvault.blockstore.recovery import Epoch, newest_root, superblock
from zvault.core.cost.prices import Prices
from zvault.object_store.interface import ObjectStore
from zvault.object_store.metered import KINDS


@dataclass(frozen=True, slots=True)
class Info:
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


def info(store: ObjectStore, prefix: str, pool: Executor, prices: Prices | None = None) -> Info:
    """Ask for what is told. Raises NotFound, Damaged, StoreError."""
    what = superblock(store, prefix)
    epoch = Epoch.read(store, prefix)
    root = newest_root(store, prefix, what)
    usage = Usage()
    load_usage(usage, store, prefix, root, pool)
    log = _log(store, prefix, root)
    live = int(usage.live.sum(dtype=np.int64))
    stored, past = usage.stored_bytes, past_bytes(usage, root.past)
    return Info(
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
        live_bytes=live * BLOCK,
        stored_bytes=stored + sum(log),
        dead_bytes=max(0, stored - live * SLOT - past),
        moments=len(root.past),
        past_bytes=past,
        lock_mode=root.lock.mode,
        locked_until=root.lock.until,
        log_segments=len(log),
        log_bytes=sum(log),
        map_objects=len(root.maps),
        map_bytes=sum(root.maps.values()),
        requests={kind: int(root.counts.get(kind, 0)) for kind in KINDS},
        cost=None if prices is None else cost(root.counts, prices),
    )


def _log(store: ObjectStore, prefix: str, root: Root) -> list[int]:
    """Sizes of the segments after the checkpoint, up to the first number that is missing."""
    sizes: list[int] = []
    for found in store.list(f"{prefix}/segments/", after=segment_key(prefix, root.applied, 0xFFFFFFFF)):
        sequence, epoch = numbers(found.key)
        if sequence == root.applied + len(sizes) + 1 and epoch == root.epoch_of(sequence):
            sizes.append(found.size)
    return sizes


def cost(counts: dict[str, int], prices: Prices) -> float:
    """Return the cost of these requests."""
    return prices.of_requests(counts.get("put", 0) + counts.get("list", 0), counts.get("get", 0))
