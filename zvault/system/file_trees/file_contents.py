"""Reads and writes what files hold, in ranges that several threads work on at once; and remembers its hashes."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import threading
from collections.abc import Iterator

RANGE_SIZE = 16 << 20
"""Bytes of a file that one thread works on: a larger file keeps several busy."""

MOST_RANGES = 4096
"""Ranges of one file: each is a task and a hash in memory. Whoever may write a file may give it a size of 8 EiB."""

COPY_BLOCK_SIZE = 1 << 20
"""Bytes read at a time."""

READ_AHEAD_SIZE = 4 << 20
"""Bytes asked for at once, as many as a profile has OpenZFS merge into one request at most. One such piece is being
read while the next is on its way: 32 threads have 256 MiB of it in memory.
"""

MOST_DIGESTS = 500_000
"""Files whose hashes are remembered: some 150 MB. Of more the comparison reads the snapshot once more."""

READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Digests = tuple[bytes, ...]
"""The hash of each range of a file."""


class DigestNotes:
    """By the number of its inode, what a file of the snapshot held as it was copied."""

    def __init__(self) -> None:
        self._digests: dict[int, Digests] = {}
        self._lock = threading.Lock()

    def note(self, inode: int, digests: Digests) -> None:
        """Remember what was read, while there is room."""
        with self._lock:
            if len(self._digests) < MOST_DIGESTS:
                self._digests[inode] = digests

    def get(self, inode: int) -> Digests | None:
        """What a file held; None where nobody knows."""
        return self._digests.get(inode)


def split_in_ranges(size: int) -> list[tuple[int, int]]:
    """Where each range begins and ends, by the size alone; an empty file has one, too."""
    length = RANGE_SIZE * max(1, -(-size // (MOST_RANGES * RANGE_SIZE)))
    return [(start, min(size, start + length)) for start in range(0, size, length)] or [(0, 0)]


def list_data_blocks(fd: int, start: int, end: int) -> Iterator[tuple[int, int, list[tuple[int, int]]]]:
    """The blocks of a range that are no holes: where each begins and ends, and where in it there is data.

    ``start`` is a multiple of BLOCK. See lseek(2), SEEK_DATA.
    """
    at: int | None = _next_data(fd, start, end)
    while at is not None:
        block = at - at % COPY_BLOCK_SIZE
        stop, extents = min(end, block + COPY_BLOCK_SIZE), []
        while at is not None and at < stop:
            hole = min(stop, os.lseek(fd, at, os.SEEK_HOLE))
            extents.append((at, hole))
            at = _next_data(fd, hole, end)
        yield block, stop, extents


def _next_data(fd: int, at: int, end: int) -> int | None:
    if at >= end:
        return None
    try:
        found = os.lseek(fd, at, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:  # no data from there to the end
            return None
        raise
    return found if found < end else None


class ReadAhead:
    """Asks the kernel for a range of a file ahead of who reads it, see posix_fadvise(2).

    OpenZFS reads 1 MiB at a time for read(2), and merges no more (zfs_vnops_read_chunk_size); what is asked for ahead
    waits in its queue and is merged to what the vault's profile allows.
    """

    def __init__(self, fd: int, start: int, end: int) -> None:
        self._fd, self._end = fd, end
        self._asked = end if end - start <= COPY_BLOCK_SIZE else start

    def advance(self, at: int) -> None:
        """Tell where the next read begins."""
        wanted = min(self._end, at - at % READ_AHEAD_SIZE + 2 * READ_AHEAD_SIZE)
        begin = max(at, self._asked)
        if begin < wanted:
            self._asked = wanted
            with contextlib.suppress(OSError):  # advice; whoever cannot take it is read without
                os.posix_fadvise(self._fd, begin, wanted - begin, os.POSIX_FADV_WILLNEED)


def copy_range(source: int, target: int, start: int, end: int) -> tuple[int, bytes]:
    """Copy a range, holes as holes; returns the bytes that were data, and the hash. Raises OSError."""
    digest, copied, memory = hashlib.blake2b(digest_size=32), 0, bytearray(min(COPY_BLOCK_SIZE, end - start))
    ahead = ReadAhead(source, start, end)
    for block, stop, extents in list_data_blocks(source, start, end):
        ahead.advance(block)
        view = memoryview(memory)[: stop - block]
        _read_all(source, view, block)
        _add_block(digest, block, view)
        for begin, finish in extents:
            done = begin
            while done < finish:
                done += os.pwrite(target, view[done - block : finish - block], done)
            copied += finish - begin
    return copied, digest.digest()


def hash_range(fd: int, start: int, end: int, *, skip_holes: bool = False) -> bytes:
    """The hash of what a range reads as, the same wherever its holes are. Raises OSError.

    Without ``skip_holes`` they are read: of a file that was just written ZFS answers where they are only after the next
    transaction group (zfs_dmu_offset_next_sync in zfs(4)).
    """
    digest, memory = hashlib.blake2b(digest_size=32), bytearray(min(COPY_BLOCK_SIZE, end - start))
    blocks = ((at, min(end, at + COPY_BLOCK_SIZE)) for at in range(start, end, COPY_BLOCK_SIZE))
    if skip_holes:
        blocks = ((block, stop) for block, stop, _ in list_data_blocks(fd, start, end))
    ahead = ReadAhead(fd, start, end)
    for block, stop in blocks:
        ahead.advance(block)
        view = memoryview(memory)[: stop - block]
        _read_all(fd, view, block)
        _add_block(digest, block, view)
    return digest.digest()


_ZEROES = bytes(COPY_BLOCK_SIZE)


def _add_block(digest: hashlib.blake2b, at: int, content: memoryview) -> None:
    """Blocks of zeroes are left out: they may be a hole in the other file."""
    if content != memoryview(_ZEROES)[: len(content)]:
        digest.update(at.to_bytes(8, "big"))
        digest.update(content)


def _read_all(fd: int, view: memoryview, at: int) -> None:
    done = 0
    while done < len(view):
        count = os.preadv(fd, [view[done:]], at + done)
        if not count:
            raise OSError(errno.EIO, "it ended before its size")
        done += count


class SnapshotUnreadable(OSError):
    """The snapshot's side of a comparison cannot be read."""


def _next_data_of_either(snapshot: int, copy: int, at: int, end: int) -> int:
    """Where one of two files has data again; ``end`` where none has."""
    try:
        mine = _next_data(snapshot, at, end)
    except OSError as error:
        raise SnapshotUnreadable(error.errno, error.strerror) from None
    its = _next_data(copy, at, end)
    return min(end if mine is None else mine, end if its is None else its)


def find_first_difference(
    snapshot: int, copy: int, start: int, end: int, *, skip_holes: bool = False
) -> int | None:
    """The first byte of a range that is not the same in both files; None where all is. ``skip_holes``: see hash_range.

    Raises SnapshotUnreadable, or OSError for the copy.
    """
    at, mine, its = start, bytearray(COPY_BLOCK_SIZE), bytearray(COPY_BLOCK_SIZE)
    while at < end:
        if skip_holes and (at := _next_data_of_either(snapshot, copy, at, end)) == end:
            return None
        length = min(COPY_BLOCK_SIZE, end - at)
        try:
            count = os.preadv(snapshot, [memoryview(mine)[:length]], at)
        except OSError as error:
            raise SnapshotUnreadable(error.errno, error.strerror) from None
        found = os.preadv(copy, [memoryview(its)[:length]], at)
        if count != found or mine[:count] != its[:count]:
            most = min(count, found)
            return at + next((n for n in range(most) if mine[n] != its[n]), most)
        if not count:
            return at  # shorter than it was a moment ago
        at += count
    return None
