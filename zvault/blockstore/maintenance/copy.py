"""Copying a store to another place, with what is live of it. What is there counts as a store only once all is.

The copy is written anew, as by a server: it has a uuid and a log of its own, without garbage.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from zvault.blockstore.attach import attach_store
from zvault.blockstore.engine import BlockEngine
from zvault.blockstore.format import BLOCK_SIZE
from zvault.blockstore.maintenance.check_report import Progress, map_ordered
from zvault.blockstore.maintenance.repair import quiet_options
from zvault.blockstore.map.map_part import PART_BLOCKS
from zvault.blockstore.options import EngineOptions
from zvault.blockstore.recovery import create_store
from zvault.blockstore.store_view import StoreView
from zvault.core.errors import Busy
from zvault.core.policy.object_lock import LockMode
from zvault.object_store.interface import (
    NO_OBJECT_YET,
    SMALL_OBJECT,
    Buffer,
    ListedObject,
    ListedVersion,
    ObjectMissing,
    ObjectStore,
    StoreError,
)

COPY_BLOCKS = 1024
"""Blocks that are read and written at once, 4 MiB."""
COPY_PIECES_AHEAD = 8
"""Pieces in memory."""


@dataclass(frozen=True, slots=True)
class CopiedStore:
    """The result of a copy, in bytes; of a device of ``size``."""

    size: int
    data: int
    stored: int


class UnfinishedStore:
    """An object store in which a store is made: its first object is put by ``finish``, after all others."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._key = f"{prefix}/store"
        self._first = b""

    def finish(self) -> None:
        """Put the first object: the store is whole now.

        Raises PreconditionFailed where another was made there meanwhile.
        """
        self._store.put(self._key, self._first, NO_OBJECT_YET)

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        return self._store.get(key, start, length)

    def tail(self, key: str, length: int) -> tuple[bytes, int]:
        return self._store.tail(key, length)

    def read(self, key: str, most: int = SMALL_OBJECT) -> tuple[bytes, str]:
        return (
            (self._first, "unfinished") if key == self._key and self._first else self._store.read(key, most)
        )

    def put(self, key: str, data: Buffer, condition: str | None = None) -> str:
        if key != self._key:
            return self._store.put(key, data, condition)
        self._first = bytes(data)
        return "unfinished"

    def list(self, prefix: str, after: str = "") -> Iterator[ListedObject]:
        yield from self._store.list(prefix, after)
        if self._first and self._key.startswith(prefix) and self._key > after:
            yield ListedObject(self._key, len(self._first))

    def delete(self, keys: Sequence[str]) -> None:
        self._store.delete(keys)

    def versions(self, prefix: str, after: str = "") -> Iterator[ListedVersion]:
        return self._store.versions(prefix, after)

    def retain(self, key: str, version: str, mode: LockMode, until: float) -> None:
        self._store.retain(key, version, mode, until)

    def delete_versions(self, versions: Sequence[ListedVersion]) -> Sequence[ListedVersion]:
        return self._store.delete_versions(versions)


def copy_store(  # noqa: PLR0913, PLR0917 - what it does it with
    source: StoreView,
    store: ObjectStore,
    prefix: str,
    options: EngineOptions,
    owner: str,
    pool: Executor,
    progress: Progress = lambda *_: None,
    encrypted: Callable[[ObjectStore], ObjectStore] = lambda store: store,
) -> CopiedStore:
    """Copy what ``source`` sees. Raises Refused where there is something already, Busy where the source was cleared.

    What an interrupted copy leaves is removed, or else no store. ``encrypted``: ``store`` as the copy is kept there.
    """
    unfinished = UnfinishedStore(store, prefix)
    target = encrypted(unfinished)
    create_store(target, prefix, source.size)
    try:
        engine = attach_store(target, prefix, quiet_options(options), owner)
        try:
            written = _write(engine, source, pool, progress)
            engine.flush()
            engine.checkpoint()
            stored = int(engine.status()["stored_bytes"])
            engine.close()
        except BaseException:
            engine.fail(StoreError("the copy was broken off"))
            engine.abandon()
            raise
        unfinished.finish()
    except BaseException:
        with contextlib.suppress(StoreError):
            remove_store(store, prefix)
        raise
    return CopiedStore(source.size, written, stored)


def remove_store(store: ObjectStore, prefix: str) -> int:
    """Remove all objects below a prefix; how many."""
    keys = [one.key for one in store.list(f"{prefix}/")]
    store.delete(keys)
    return len(keys)


def _write(engine: BlockEngine, source: StoreView, pool: Executor, progress: Progress) -> int:
    blocks = source.size // BLOCK_SIZE
    done = written = 0

    def read(piece: tuple[int, int]) -> tuple[int, bytes]:
        block, count = piece
        try:
            return block, source.read(block * BLOCK_SIZE, count * BLOCK_SIZE)
        except ObjectMissing as error:
            raise Busy(
                "the copy would not be one of a single moment",
                f"the store is written to, and {error.what}",
                "take the vault down, or try again when less is written to it",
            ) from error

    for block, data in map_ordered(
        pool, read, _pieces(source, lambda at: progress("copy", at, blocks)), COPY_PIECES_AHEAD
    ):
        engine.write(block * BLOCK_SIZE, data)
        written += len(data)
        done = block
    progress("copy", max(done, blocks), blocks)
    return written


def _pieces(source: StoreView, at: Callable[[int], None]) -> Iterator[tuple[int, int]]:
    """Ranges of blocks that hold something: (block, count)."""
    blocks = source.size // BLOCK_SIZE
    for first in range(0, blocks, PART_BLOCKS):
        at(first)
        start = end = -1
        for extent in source.blocks.locate(first, min(PART_BLOCKS, blocks - first)):
            if extent.sequence == 0:
                continue
            if extent.block != end or end - start >= COPY_BLOCKS:
                yield from _cut(start, end)
                start = extent.block
            end = extent.block + extent.count
        yield from _cut(start, end)


def _cut(start: int, end: int) -> Iterator[tuple[int, int]]:
    for block in range(start, end, COPY_BLOCKS):
        yield block, min(COPY_BLOCKS, end - block)
