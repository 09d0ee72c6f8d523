"""A store as its last checkpoint and the log have it, read only, while another may write to it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from zvault.blockstore.attach import take_in
from zvault.blockstore.blockmap import Absent, BlockMap, Extent
from zvault.blockstore.fetch import Fetcher
from zvault.blockstore.format import BLOCK
from zvault.blockstore.objects import ObjectStore
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
        self.blocks = BlockMap(store, prefix, root, MEMORY)
        self.rest = tail(store, prefix, root, self.pool)
        take_in(self.blocks, self.rest.segments)
        self.fetcher = Fetcher(store, prefix, None, MEMORY // 4, self.pool)
        self._lock = threading.Lock()

    def extents(self, block: int, count: int) -> list[Extent]:
        """Where blocks are. Raises Damaged, StoreError."""
        while True:
            try:
                with self._lock:
                    return self.blocks.resolve(block, count)
            except Absent as error:
                for part in error.parts:
                    loaded, ref = self.blocks.fetch(part)
                    with self._lock:
                        self.blocks.admit(part, loaded, ref)

    def read(self, offset: int, length: int) -> bytes:
        """Any range. Raises Missing, Damaged, StoreError."""
        first, end = offset // BLOCK, -(-(offset + length) // BLOCK)
        extents = self.extents(first, end - first)
        far = [one for one in extents if one.sequence]
        pieces = iter(self.fetcher.read(far, [self.root.epoch_of(one.sequence) for one in far]))
        data = b"".join(
            b"".join(next(pieces)) if one.sequence else bytes(one.count * BLOCK) for one in extents
        )
        return data[offset - first * BLOCK : offset - first * BLOCK + length]

    def close(self) -> None:
        """Let go of its threads."""
        if self.pool is not None:
            self.pool.shutdown(wait=False, cancel_futures=True)
