"""A store as its last checkpoint and the log have it, or as it was at a moment, read only, while another may write."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from zvault.blockstore.attach import take_in
from zvault.blockstore.format import numbers_of
from zvault.blockstore.history import Moment
from zvault.blockstore.log_tail import LogGap, LogTail, tail
from zvault.blockstore.map.blockmap import BlockMap
from zvault.blockstore.read.fetcher import ChunkCache, Fetcher
from zvault.blockstore.read.reader import Reader
from zvault.blockstore.recovery import checkpoint_keys, newest_root, root_at, superblock
from zvault.core.errors import Busy
from zvault.object_store.interface import ObjectMissing, ObjectStore

MEMORY = 128 << 20
TRIES = 5
"""How often a store is looked at anew whose writer removed what was being read."""


class View:
    """Safe for threads. It takes nothing and hinders nobody; its writer removes what it needs some checkpoints later.

    Reads then raise ObjectMissing (or Damaged because of it): open another. What can be read is of one moment for ever.
    """

    def __init__(
        self,
        store: ObjectStore,
        prefix: str,
        *,
        workers: int = 8,
        cache: ChunkCache | None = None,
        memory: int = MEMORY,
        at: Moment | None = None,
    ) -> None:
        """``memory``: bytes for the map, and a quarter more for data; ``at`` a moment of the past, which is kept.

        Raises NotFound, ObjectMissing, Damaged, StoreError.
        """
        what = superblock(store, prefix)
        self.store = store
        self.prefix = prefix
        self.size = what.size
        self.at = at
        self.root = newest_root(store, prefix, what) if at is None else root_at(store, prefix, what, at)
        self.pool = ThreadPoolExecutor(workers, "view") if workers else None
        self.blocks = BlockMap(store, prefix, self.root, memory, threading.Lock())
        self.fetcher = Fetcher(store, prefix, cache, memory // 4, self.pool)
        self.reader = Reader(self.blocks, self.fetcher, what.blocks, {}, retries=0)
        try:
            self.rest = tail(store, prefix, self.root, self.pool) if at is None else LogTail([], [])
        except BaseException:
            self.close()
            raise
        take_in(self.blocks, self.rest.segments)

    def read(self, offset: int, length: int) -> bytes:
        """Any range. Raises ObjectMissing, Damaged, StoreError."""
        return self.reader.read(offset, length)

    def read_into(self, offset: int, out: memoryview) -> None:
        """The same, into ``out``, as much as that holds."""
        self.reader.read_into(offset, out)

    def later(self) -> tuple[int, int]:
        """The newest checkpoint of now against this one: epochs, and checkpoints, that came since.

        What this one needs is removed by the second checkpoint after it, not before. Raises StoreError.
        """
        keys = checkpoint_keys(self.store, self.prefix)
        epoch, number = numbers_of(keys[-1]) if keys else (0, 0)
        return epoch - self.root.epoch, number - self.root.number

    def kept(self) -> bool:
        """True if the moment that it is of is kept still. Raises NotFound, Damaged, StoreError."""
        return self.at in newest_root(self.store, self.prefix, superblock(self.store, self.prefix)).past

    def close(self) -> None:
        """End the view's threads."""
        if self.pool is not None:
            self.pool.shutdown(wait=False, cancel_futures=True)


def now(
    store: ObjectStore,
    prefix: str,
    *,
    workers: int = 8,
    cache: ChunkCache | None = None,
    memory: int = MEMORY,
) -> View:
    """A view that has all that was in the store when this was called.

    Without this a writer's checkpoints, taken while the log is read, could have it end early. Raises Busy, and as View.
    """
    gap: LogGap | None = None
    for _ in range(TRIES):
        try:
            view = View(store, prefix, workers=workers, cache=cache, memory=memory)
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
    why = f"{TRIES} times its writer removed what was being read"
    raise Busy(what, why, "try again when less is written to it")
