"""Lists and hashes what an open snapshot holds: on this host by threads of a child, on another by scripts there.

A slow vault answers many requests side by side, so on this host 32 threads ask (system/file_trees). On another host
nothing of zvault's is installed: there the scripts of system/hash_files.py read one file after another.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from zvault.core.integrity.verification import ContentRange, KeyRange, KeySpread, TreeEntry
from zvault.ops.restore.snapshot_reader import OpenSnapshot, run_script
from zvault.system import hash_files
from zvault.system.file_trees.tree_worker import TreeWorker, start_tree_worker
from zvault.zfs.host import ZfsHost


@dataclass(frozen=True, slots=True)
class HashedBatch:
    """What came of hashing: by piece its hash, without those that cannot be read; why, in words; and in how long."""

    hashes: dict[ContentRange, str]
    unread: list[str]
    seconds: float


class SideReader(Protocol):
    """Reads one open snapshot."""

    @property
    def batch_size(self) -> int:
        """Bytes that are well hashed in one go."""

    async def list_entries(
        self, mix: KeySpread, keys: KeyRange, *, everything: bool, pattern: str = ""
    ) -> list[TreeEntry]:
        """List the files in a range of keys, and all large ones; with ``everything`` folders and links too.

        ``pattern``: what does not match it need not be listed. Raises ToolFailed for all that it could not read.
        """

    async def hash_batch(self, batch: Sequence[ContentRange]) -> HashedBatch:
        """Hash pieces: whole files, or pieces of large ones."""


@dataclass(frozen=True, slots=True)
class ScriptReader:
    """Reads a snapshot on another host."""

    side: OpenSnapshot

    @property
    def batch_size(self) -> int:
        """See SideReader."""
        return hash_files.HASH_BATCH

    async def list_entries(
        self, mix: KeySpread, keys: KeyRange, *, everything: bool, pattern: str = ""
    ) -> list[TreeEntry]:
        """See SideReader."""
        argv = hash_files.list_argv(self.side.root, mix, keys, everything=everything, name=pattern)
        return hash_files.parse_list(await run_script(self.side, argv, hash_files.LIST_FILES_DEADLINE))

    async def hash_batch(self, batch: Sequence[ContentRange]) -> HashedBatch:
        """See SideReader."""
        argv = hash_files.hash_argv(self.side.root, batch)
        size = sum(one.size for one in batch)
        result = await self.side.host.run(argv, deadline=hash_files.estimate_hash_deadline(size), check=False)
        said = hash_files.list_read_complaints(result.stderr)
        if batch[0].length is not None and said and len(batch) > 1:
            # A piece that could not be read to its end has a hash all the same: see which it was.
            each = [await self.hash_batch([one]) for one in batch]
            return HashedBatch(
                {piece: digest for one in each for piece, digest in one.hashes.items()},
                [text for one in each for text in one.unread],
                result.seconds + sum(one.seconds for one in each),
            )
        spoilt = batch[0].length is not None and said
        hashes = {} if spoilt else hash_files.parse_hashes(batch, result.stdout)
        return HashedBatch(hashes, said, result.seconds)


@dataclass(frozen=True, slots=True)
class ThreadedReader:
    """Reads a snapshot on this host. ``device``: the name of a volume's device, which pieces without a path are of."""

    worker: TreeWorker
    device: bytes = b""

    @property
    def batch_size(self) -> int:
        """See SideReader: some pieces of large files at once, and not so much that a backup has to wait for long."""
        return 2 * hash_files.HASH_BATCH

    async def list_entries(
        self, mix: KeySpread, keys: KeyRange, *, everything: bool, pattern: str = ""
    ) -> list[TreeEntry]:
        """See SideReader."""
        return await self.worker.list_entries(mix, keys, everything=everything, pattern=pattern)

    async def hash_batch(self, batch: Sequence[ContentRange]) -> HashedBatch:
        """See SideReader."""
        began = time.monotonic()
        pieces = [(one.path or self.device, one.offset, one.length) for one in batch]
        hashes, unread = await self.worker.hash_pieces(pieces)
        found = {batch[number]: digest for number, digest in hashes.items()}
        return HashedBatch(found, unread, time.monotonic() - began)


@contextlib.asynccontextmanager
async def open_side_reader(side: OpenSnapshot) -> AsyncIterator[SideReader]:
    """Have what reads an open snapshot for a block."""
    if side.host.address is not None:
        yield ScriptReader(side)
        return
    folder, device = (side.root, "") if side.size is None else os.path.split(side.root)
    async with start_tree_worker(folder, folder) as worker:
        yield ThreadedReader(worker, os.fsencode(device))


@contextlib.asynccontextmanager
async def open_shared_reader(host: ZfsHost) -> AsyncIterator[Callable[[OpenSnapshot], SideReader]]:
    """Have what reads the open snapshots of filesystems of one host, one after another, for a block: one child for all
    of them, where a child for each took longer to start than to list a small one.
    """
    if host.address is not None:
        yield ScriptReader
        return
    async with start_tree_worker("", "") as worker:
        yield lambda side: ThreadedReader(worker.read_other_root(side.root))
