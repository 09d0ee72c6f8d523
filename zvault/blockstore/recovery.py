"""Opening a store: whose it is, its newest checkpoint, and the log since then."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, replace

from zvault.blockstore.format import (
    BLOCK,
    TAIL,
    VERSION,
    Damaged,
    Segment,
    Superblock,
    decode,
    numbers_of,
    segment_key,
)
from zvault.blockstore.map.root import Root
from zvault.core.errors import Busy, NotFound, Refused
from zvault.object_store.interface import NEW, ObjectMissing, ObjectStore, PreconditionFailed

MAX_SIZE = 1 << 50
"""Bytes: 1 PiB, far from what 32 bits of segments can hold."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """Who writes: the object ``PREFIX/epoch`` as it was put, with its ETag."""

    number: int
    owner: str
    since: float
    etag: str = ""

    @staticmethod
    def key(prefix: str) -> str:
        """Its name."""
        return f"{prefix}/epoch"

    @classmethod
    def read(cls, store: ObjectStore, prefix: str) -> Epoch:
        """The one of now; number 0 where nobody wrote yet. Raises Damaged, StoreError."""
        try:
            data, etag = store.read(cls.key(prefix))
        except ObjectMissing:
            return cls(0, "", 0.0)
        try:
            found = json.loads(data)
            return cls(int(found["epoch"]), str(found["owner"]), float(found["since"]), etag)
        except (ValueError, TypeError, KeyError) as error:
            why = f"it cannot be read: {error}"
            raise Damaged(
                f"{cls.key(prefix)} does not say who writes", why, "see what the bucket holds there"
            ) from error

    def taken_by(self, store: ObjectStore, prefix: str, owner: str, after: int = 0) -> Epoch:
        """The next one, and after ``after``, taken in the place of this one. Raises Busy when another was faster."""
        mine = replace(self, number=max(self.number, after) + 1, owner=owner, since=time.time())
        said = {"epoch": mine.number, "owner": owner, "since": mine.since, "mark": uuid.uuid4().hex}
        text = json.dumps(said).encode()
        try:
            etag = store.put(self.key(prefix), text, self.etag or NEW)
        except PreconditionFailed as error:
            there, etag = store.read(self.key(prefix))
            if there == text:  # it was put, and again after an answer that was lost
                return replace(mine, etag=etag)
            what = f"the block store {prefix} could not be taken"
            raise Busy(
                what, "another writer took it at the same moment", "see who it is, and try again"
            ) from error
        return replace(mine, etag=etag)


def create(store: ObjectStore, prefix: str, size: int) -> Superblock:
    """Make a store of ``size`` bytes. Raises Refused for a size that cannot be, and where there is one already."""
    if size <= 0 or size % BLOCK or size > MAX_SIZE:
        why = f"a block store has a multiple of {BLOCK} bytes, at most 1 PiB"
        raise Refused(f"there can be no block store of {size} bytes", why, "give another size")
    made = Superblock(VERSION, uuid.uuid4().hex, size, time.time())
    key, left = f"{prefix}/store", next(iter(store.list(f"{prefix}/")), None)
    try:
        if left is not None:
            raise PreconditionFailed(left.key)
        store.put(key, made.as_bytes(), NEW)
    except PreconditionFailed:
        if left is None and store.read(key)[0] == made.as_bytes():
            return made  # it was put, and again after an answer that was lost
        raise Refused(
            f"there is no new block store made at {prefix}",
            "something is there already: a store, or what is left of one"
            + (f" ({left.key})" if left else ""),
            "use it as it is, choose another key, or remove what is there",
        ) from None
    return made


def superblock(store: ObjectStore, prefix: str) -> Superblock:
    """What a store is. Raises NotFound where there is none."""
    try:
        data, _ = store.read(f"{prefix}/store")
    except ObjectMissing as error:
        what = f"there is no block store at {prefix}"
        raise NotFound(
            what, f"{prefix}/store is missing", "make one with 'zvaultctl blockstore create'"
        ) from error
    return Superblock.of_bytes(data)


def newest_root(store: ObjectStore, prefix: str, what: Superblock) -> Root:
    """The newest checkpoint that can be read. Raises Damaged where that would not tell all.

    One that is damaged is passed over for the one before it of the same epoch, which says the same together with a
    longer log: what it needs is removed two checkpoints later only. That of another epoch knows nothing of this one's.
    """
    keys = [found.key for found in store.list(f"{prefix}/checkpoints/")]
    failure: Damaged | None = None
    for key in reversed(keys):
        if failure is not None and numbers_of(key)[0] != numbers_of(keys[-1])[0]:
            break
        try:
            data, _ = store.read(key)
            root = Root.of_bytes(data, what.identity, key)
            if (root.epoch, root.number) != numbers_of(key):
                raise Damaged(f"the checkpoint {key} is another", "", "run 'zvaultctl blockstore check'")
            return root
        except ObjectMissing:
            continue  # removed since the listing
        except Damaged as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return Root.blank(what.identity, what.blocks)


@dataclass(slots=True)
class LogTail:
    """The log after a checkpoint: its segments in order, and objects that lie there and are not of it."""

    segments: list[Segment]
    strays: list[str]


def tail(store: ObjectStore, prefix: str, root: Root, pool: Executor | None) -> LogTail:
    """Read the log after a checkpoint: up to the first number that is missing. Raises Damaged, StoreError.

    What lies beyond a gap was never acknowledged: a flush waits for all before it.
    """
    wanted, strays, sequence = [], [], root.applied
    for found in store.list(f"{prefix}/segments/", after=segment_key(prefix, root.applied, 0xFFFFFFFF)):
        at, epoch = numbers_of(found.key)
        if at == sequence + 1 and epoch == root.epoch_of(at):
            wanted.append(found.key)
            sequence = at
        else:
            strays.append(found.key)

    def look(key: str) -> Segment:
        return read_segment(store, key, root.identity)

    every: Iterable[Segment] = map(look, wanted) if pool is None else pool.map(look, wanted)
    return LogTail(list(every), strays)


def read_segment(store: ObjectStore, key: str, identity: bytes) -> Segment:
    """A segment's own account, without its blocks. Raises Missing, Damaged, StoreError."""
    length = TAIL
    while True:
        data, size = store.tail(key, length)
        found = decode(data, size, identity, key)
        if found is not None:
            return found
        if length > size:
            raise Damaged(
                f"the segment {key} is damaged",
                "its table does not fit into it",
                "run 'zvaultctl blockstore check'",
            )
        length = length * 8
