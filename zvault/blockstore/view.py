"""A store as its last checkpoint and the log have it, read only, while another may write to it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from zvault.blockstore.attach import take_in
from zvault.blockstore.blockmap import BlockMap
from zvault.blockstore.fetch import Fetcher
from zvault.blockstore.objects import ObjectStore
from zvault.blockstore.reading import Reader
from zvault.blockstore.recovery import newest_root, superblock, tail

MEMORY = 128 << 20


class View:
    """Safe for threads. It takes nothing and hinders nobody; its writer removes what it needs some checkpoints later.

    Reads then raise Missing: open another.
    """

    def __init__(self, store: ObjectStore, prefix: str, *, workers: int = 8) -> None:
        """Raises NotFound, Damaged, StoreError."""
        what = superblock(store, prefix)
        root = newest_root(store, prefix, what)
        self.size = what.size
        self.root = root
        self.pool = ThreadPoolExecutor(workers, "view") if workers else None
        self.blocks = BlockMap(store, prefix, root, MEMORY, threading.Lock())
        self.rest = tail(store, prefix, root, self.pool)
        take_in(self.blocks, self.rest.segments)
        fetcher = Fetcher(store, prefix, None, MEMORY // 4, self.pool)
        self.reader = Reader(self.blocks, fetcher, what.blocks, {})

    def read(self, offset: int, length: int) -> bytes:
        """Any range. Raises Missing, Damaged, StoreError."""
        return self.reader.read(offset, length)

    def close(self) -> None:
        """Let go of its threads."""
        if self.pool is not None:
            self.pool.shutdown(wait=False, cancel_futures=True)
