"""The local cache: chunks of segments in one file on this host's disk. What it has is gone without harm.

The file ``frames`` is frames of FRAME bytes: a header (_HEAD, and a digest of it and the data together, seeded with
the store) and a chunk. So a frame tells by itself whose chunk it is and whether it is whole, and the rest may be wrong:
``index`` only says where to look. It has a header, the queues as they were, and then a record of each change
since, which are written some at a time: a killed process forgets a few chunks, and nothing waits for the disk.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from xxhash import xxh3_64_digest, xxh3_64_intdigest

from zvault.blockstore.folder_lock import lock_folder
from zvault.blockstore.format import CHUNK_SLOTS, SEGMENT_SLOTS, SLOT_SIZE
from zvault.blockstore.read.s3fifo import FifoState, S3Fifo
from zvault.object_store.interface import Buffer, StoreError

CHUNK_BYTES = CHUNK_SLOTS * SLOT_SIZE
SEGMENT_CHUNKS = -(-SEGMENT_SLOTS // CHUNK_SLOTS)
"""Chunks of a segment."""
_HEAD = struct.Struct("<4sIQ")  # magic, bytes of the chunk, key
_HEAD_MAGIC = b"zvCH"
_HEAD_SIZE = _HEAD.size + 8
_PAGE = 4096
CACHE_FRAME_SIZE = -(-(_HEAD_SIZE + CHUNK_BYTES) // _PAGE) * _PAGE
"""Bytes of a frame. Whole pages are written, so that the kernel need not read any."""
_INDEX = struct.Struct("<8sII16s")  # magic, version, bytes of a frame, identity
_INDEX_MAGIC, _VERSION = b"zvCINDEX", 1
_RECORD = np.dtype([("key", "<u8"), ("frame", "<u4"), ("queue", "<u2"), ("hits", "<u2")])
_SMALL, _MAIN, _GHOST, _DROPPED = range(4)
_KEY_BITS = 16
"""A key is ``segment << _KEY_BITS | chunk``."""
_AT_ONCE = 64
"""Records that are written together."""


class CacheFailed(StoreError):
    """The cache's folder cannot be used."""

    reason = "cache"


class DiskCache:
    """Chunks by segment and number in the segment. Safe for threads; get and put never raise.

    ``hits`` and ``misses`` count gets, ``failures`` what the disk did not do or gave back damaged; ``used`` and
    ``size`` are in bytes of the disk.
    """

    def __init__(self, folder: Path, identity: bytes, *, size: int) -> None:
        """Take the folder, for the store whose uuid is ``identity`` (16 bytes); another store's chunks are dropped.

        Raises Busy when another process has it, CacheFailed.
        """
        self.folder, self.size = folder, size
        self.hits = self.misses = self.failures = 0
        self._identity, self._seed = identity, xxh3_64_intdigest(identity)
        self._lock = threading.Lock()
        self._quiet = threading.Condition(self._lock)
        self._limit = size // (CACHE_FRAME_SIZE + 5 * _RECORD.itemsize)
        self._policy: S3Fifo[int] = S3Fifo(self._limit)
        self._where: dict[int, int] = {}
        self._writing: set[int] = set()
        self._free: list[int] = []
        self._grown = 0  # frames of the file
        self._records: list[tuple[int, int, int, int]] = []
        self._recorded = 0
        self._closed = False
        remedy = "stop the other server, or give this one a folder of its own"
        with _told(folder), lock_folder(folder, "the cache", remedy) as self._folder:
            flags = os.O_RDWR | os.O_CREAT
            self._data = os.open(folder / "frames", flags, 0o600)
            self._index = os.open(folder / "index", flags | os.O_APPEND, 0o600)
            self._load()

    def _load(self) -> None:
        """Read the index; begin anew where it is another store's, or no index."""
        with open(self._index, "rb", closefd=False) as file:
            head, records = file.read(_INDEX.size), file.read()
        size = os.fstat(self._data).st_size
        count = len(records) // _RECORD.itemsize
        good = head == self._index_head()
        if good:
            self._understand(np.frombuffer(records, _RECORD, count))
            self._grown = min(-(-size // CACHE_FRAME_SIZE), self._limit)
        if size != self._grown * CACHE_FRAME_SIZE:
            os.ftruncate(self._data, self._grown * CACHE_FRAME_SIZE)
        lost = [key for key, frame in self._where.items() if frame >= self._grown]
        for key in lost:
            self._policy.remove(key)
            del self._where[key]
        taken = set(self._where.values())
        self._free = [frame for frame in range(self._grown) if frame not in taken]
        self._recorded = count
        if lost or not good or len(records) % _RECORD.itemsize or self._recorded > self._most_records():
            try:
                self._compact()
            except OSError:
                self.failures += 1  # a full disk: it goes on without

    def _understand(self, records: np.ndarray[tuple[int], np.dtype[np.void]]) -> None:
        """Make the queues from the records: the last one of a frame, and of a key, is what counts."""
        last = _last(records["key"])
        framed = records["queue"] < _GHOST
        newest = np.zeros(len(records), bool)
        newest[np.flatnonzero(framed)[_last(records["frame"][framed])]] = True
        kept = records[last & (newest | (records["queue"] == _GHOST))]
        queues = [kept[kept["queue"] == queue] for queue in (_SMALL, _MAIN, _GHOST)]
        small, main = (
            list(zip(rows["key"].tolist(), rows["hits"].tolist(), strict=True)) for rows in queues[:2]
        )
        self._policy.restore(FifoState(small, main, queues[_GHOST]["key"].tolist()))
        rows = kept[kept["queue"] < _GHOST]
        pairs = zip(rows["key"].tolist(), rows["frame"].tolist(), strict=True)
        self._where = {key: frame for key, frame in pairs if key in self._policy}

    def _index_head(self) -> bytes:
        return _INDEX.pack(_INDEX_MAGIC, _VERSION, CACHE_FRAME_SIZE, self._identity)

    @property
    def used(self) -> int:
        """Bytes of the disk that chunks have."""
        return len(self._where) * CACHE_FRAME_SIZE

    def get(self, segment: int, chunk: int) -> bytes | None:
        """A chunk as it was put; None if it is not here."""
        key = _key(segment, chunk)
        with self._lock:
            frame = self._where.get(key)
            if frame is None or self._closed:
                self.misses += 1
                return None
            self._policy.touch(key)
        data = self._read(key, frame)
        with self._lock:
            if data is None and self._where.get(key) == frame and not self._closed:
                # The frame may have been another chunk's meanwhile; who has the lock can tell.
                data = self._read(key, frame)
                if data is None:
                    self.failures += 1
                    self._drop(key)
            if data is None:
                self.misses += 1
            else:
                self.hits += 1
        return data

    def _read(self, key: int, frame: int) -> bytes | None:
        """The chunk in a frame; None if it is not this key's, or not as it was put."""
        try:
            found = os.pread(self._data, CACHE_FRAME_SIZE, frame * CACHE_FRAME_SIZE)
        except OSError:
            return None
        if len(found) < _HEAD_SIZE:
            return None
        magic, length, owner = _HEAD.unpack_from(found)
        if magic != _HEAD_MAGIC or owner != key or length > len(found) - _HEAD_SIZE:
            return None
        data = found[_HEAD_SIZE : _HEAD_SIZE + length]
        return data if self._digest(found[: _HEAD.size], data) == found[_HEAD.size : _HEAD_SIZE] else None

    def _digest(self, head: bytes, data: Buffer) -> bytes:
        return xxh3_64_digest(data, xxh3_64_intdigest(head, self._seed))

    def put(self, segment: int, chunk: int, data: Buffer) -> None:
        """Keep a chunk, of at most CHUNK_BYTES, if it is not here yet."""
        if len(data) > CHUNK_BYTES:
            raise ValueError(f"{len(data)} bytes are more than a chunk")
        key = _key(segment, chunk)
        if not (0 <= segment < 1 << 64 - _KEY_BITS and 0 <= chunk < SEGMENT_CHUNKS):
            raise ValueError(f"there is no chunk {chunk} of segment {segment}")
        with self._lock:
            frame = self._room(key)
            if frame is None:
                return
            self._writing.add(key)
        failed: OSError | None = None
        try:
            self._write(key, frame, data)
        except OSError as error:
            failed = error
        with self._lock:
            self._writing.discard(key)
            if failed is not None:
                self._cannot(key, frame, failed)
            elif key in self._policy and frame < self._limit:
                self._where[key] = frame
                self._record(key, frame, _SMALL)
            else:
                self._policy.remove(key)
                self._give_back(frame)
            self._quiet.notify_all()

    def _room(self, key: int) -> int | None:
        """A frame for a chunk, maybe of another one that has to go; None if it is here, or there is none."""
        if self._closed or key in self._where or key in self._writing:
            return None
        self._evict(self._policy.insert(key))
        if self._free:
            return self._free.pop()
        if self._grown < self._limit:
            self._grown += 1
            return self._grown - 1
        # Those that are being written have the rest.
        self._policy.remove(key)
        return None

    def _evict(self, keys: Iterable[int]) -> None:
        for key in keys:
            frame = self._where.pop(key, None)
            if frame is not None:
                self._give_back(frame)

    def _give_back(self, frame: int) -> None:
        if frame < self._limit:
            self._free.append(frame)

    def _write(self, key: int, frame: int, data: Buffer) -> None:
        head = _HEAD.pack(_HEAD_MAGIC, len(data), key)
        size = _HEAD_SIZE + len(data)
        pieces = [head, self._digest(head, data), data, bytes(-size % _PAGE)]
        if os.pwritev(self._data, pieces, frame * CACHE_FRAME_SIZE) != size + -size % _PAGE:
            raise OSError(errno.ENOSPC, "the disk took only a part of it")

    def _cannot(self, key: int, frame: int, error: OSError) -> None:
        """A chunk could not be written. On a full disk what there is has to do."""
        self.failures += 1
        self._policy.remove(key)
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        if full and (frame + 1) * CACHE_FRAME_SIZE > os.fstat(self._data).st_size:
            self._limit = min(self._limit, frame)
            self._grown = min(self._grown, self._limit)
            self._free = [one for one in self._free if one < self._limit]
            for old in [old for old, one in self._where.items() if one >= self._limit]:
                self._drop(old)
            self._evict(self._policy.resize(self._limit))
            with contextlib.suppress(OSError):
                os.ftruncate(self._data, self._limit * CACHE_FRAME_SIZE)
        else:
            self._give_back(frame)

    def drop(self, segment: int, chunk: int) -> None:
        """Forget a chunk: what was given back was not right."""
        with self._lock:
            self._drop(_key(segment, chunk))

    def forget(self, segment: int) -> None:
        """Forget every chunk of a segment."""
        with self._lock:
            for chunk in range(SEGMENT_CHUNKS):
                self._drop(_key(segment, chunk))

    def _drop(self, key: int) -> None:
        self._policy.remove(key)
        frame = self._where.pop(key, None)
        if frame is not None:
            self._give_back(frame)
            self._record(key, 0, _DROPPED)

    def _record(self, key: int, frame: int, queue: int) -> None:
        self._records.append((key, frame, queue, 0))
        if len(self._records) < _AT_ONCE or self._closed:
            return
        try:
            if self._recorded > self._most_records():
                self._compact()
            else:
                os.write(self._index, np.array(self._records, _RECORD).tobytes())
                self._recorded += len(self._records)
        except OSError:
            self.failures += 1
        self._records.clear()

    def _most_records(self) -> int:
        return 4 * self._limit + 16 * _AT_ONCE

    def _compact(self) -> None:
        """Write the index anew: the queues in their order. Raises OSError; the old one may be left."""
        state = self._policy.state()
        where = self._where
        rows = [
            (key, where[key], queue, hits)
            for queue, keys in ((_SMALL, state.small), (_MAIN, state.main))
            for key, hits in keys
            if key in where
        ]
        rows += [(key, 0, _GHOST, 0) for key in state.ghosts]
        new = self.folder / "index.new"
        new.write_bytes(self._index_head() + np.array(rows, _RECORD).tobytes())
        fd = os.open(new, os.O_RDWR | os.O_APPEND)
        try:
            new.rename(self.folder / "index")
        except OSError:
            os.close(fd)
            raise
        os.close(self._index)
        self._index, self._recorded = fd, len(rows)
        self._records.clear()

    def close(self) -> None:
        """Write the index, and let the folder go."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            # Their file must not be closed: its descriptor may be another file's by then.
            self._quiet.wait_for(lambda: not self._writing)
            try:
                self._compact()
            except OSError:
                self.failures += 1
            for fd in (self._data, self._index, self._folder):
                os.close(fd)


def _last(values: np.ndarray[tuple[int], np.dtype[Any]]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which of them do not come again later."""
    mask = np.zeros(len(values), bool)
    mask[len(values) - 1 - np.unique(values[::-1], return_index=True)[1]] = True
    return mask


def _key(segment: int, chunk: int) -> int:
    return segment << _KEY_BITS | chunk


@contextlib.contextmanager
def _told(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = f"the cache in {folder} cannot be used"
        raise CacheFailed(what, str(error), "see to the folder, or go without a cache") from error
