"""A store as its last checkpoint and the log have it, or as it was at a moment, read only, while another may write."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from zvault.blockstore.attach import add_segments
from zvault.blockstore.format import parse_key_numbers
from zvault.blockstore.kept_moments import KeptMoment
from zvault.blockstore.log_tail import LogGap, LogTail, read_log_tail
from zvault.blockstore.map.blockmap import BlockMap
from zvault.blockstore.read.block_reader import BlockReader
from zvault.blockstore.read.slot_fetcher import ChunkCache, SlotFetcher
from zvault.blockstore.recovery import list_checkpoint_keys, read_newest_root, read_root_at, read_superblock
from zvault.core.errors import Busy
from zvault.object_store.interface import ObjectMissing, ObjectStore

VIEW_MEMORY = 128 << 20
VIEW_TRIES = 5
"""How often a store is looked at anew whose writer removed what was being read."""


class StoreView:
    """Safe for threads. It takes nothing and hinders nobody; its writer removes what it needs some checkpoints later.

    Reads then raise ObjectMissing (or ObjectDamaged because of it): open another. What can be read is of one moment
    for ever.
    """

    def __init__(
        self,
        store: ObjectStore,
        prefix: str,
        *,
        workers: int = 8,
        cache: ChunkCache | None = None,
        memory: int = VIEW_MEMORY,
        at: KeptMoment | None = None,
    ) -> None:
        """``memory``: bytes for the map, and a quarter more for data; ``at`` a moment of the past, which is kept.

        Raises NotFound, ObjectMissing, ObjectDamaged, StoreError.
        """
        what = read_superblock(store, prefix)
        self.store = store
        self.prefix = prefix
        self.size = what.size
        self.at = at
        self.root = (
            read_newest_root(store, prefix, what) if at is None else read_root_at(store, prefix, what, at)
        )
        self.pool = ThreadPoolExecutor(workers, "view") if workers else None
        self.blocks = BlockMap(store, prefix, self.root, memory, threading.Lock())
        self.fetcher = SlotFetcher(store, prefix, cache, memory // 4, self.pool)
        self.reader = BlockReader(self.blocks, self.fetcher, what.blocks, {}, retries=0)
        try:
            self.rest = read_log_tail(store, prefix, self.root, self.pool) if at is None else LogTail([], [])
        except BaseException:
            self.close()
            raise
        add_segments(self.blocks, self.rest.segments)

    def read(self, offset: int, length: int) -> bytes:
        """Any range. Raises ObjectMissing, ObjectDamaged, StoreError."""
        return self.reader.read(offset, length)

    def read_into(self, offset: int, out: memoryview) -> None:
        """The same, into ``out``, as much as that holds."""
        self.reader.read_into(offset, out)

    def later(self) -> tuple[int, int]:
        """The newest checkpoint of now against this one: epochs, and checkpoints, that came since.

        What this one needs is removed by the second checkpoint after it, not before. Raises StoreError.
        """
        keys = list_checkpoint_keys(self.store, self.prefix)
        epoch, number = parse_key_numbers(keys[-1]) if keys else (0, 0)
        return epoch - self.root.epoch, number - self.root.number

    def kept(self) -> bool:
        """True if the moment that it is of is kept still. Raises NotFound, ObjectDamaged, StoreError."""
        return (
            self.at
            in read_newest_root(self.store, self.prefix, read_superblock(self.store, self.prefix)).past
        )

    def close(self) -> None:
        """End the view's threads."""
        if self.pool is not None:
            self.pool.shutdown(wait=False, cancel_futures=True)


def view_store_now(
    store: ObjectStore,
    prefix: str,
    *,
    workers: int = 8,
    cache: ChunkCache | None = None,
    memory: int = VIEW_MEMORY,
) -> StoreView:
    """A view that has all that was in the store when this was called.

    Without this a writer's checkpoints, taken while the log is read, could have it end early. Raises Busy, and as
    StoreView.
    """
    gap: LogGap | None = None
    for _ in range(VIEW_TRIES):
        try:
            view = StoreView(store, prefix, workers=workers, cache=cache, memory=memory)
        except ObjectMissing:
            continue  # removed since the listing
        except LogGap as error:
            if gap is not None and gap.key == error.key:
                raise
            gap = error  # or removed since, by two checkpoints
            continue
        epochs, checkpoints = view.later()
        if epochs == 0 and checkpoints <= 1:
            return view
        view.close()
    what = f"the block store {prefix} could not be looked at"
    why = f"{VIEW_TRIES} times its writer removed what was being read"
    raise Busy(what, why, "try again when less is written to it")
