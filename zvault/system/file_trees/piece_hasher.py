"""Hashes files, and pieces of them, many at a time: SHA-256, as sha256sum(1) on another host does."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import threading
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from zvault.core.integrity.verification import escape_path
from zvault.system.file_trees.file_contents import COPY_BLOCK_SIZE, READ_FLAGS, ReadAhead
from zvault.system.file_trees.reporter import TreeReporter
from zvault.system.file_trees.task_pool import TaskPool
from zvault.system.open_beneath import open_beneath, open_descriptor

HashedPiece = tuple[bytes, int, int | None]
"""A path below the root, where a piece of it begins, and its length; None is to its end."""


@dataclass
class PieceHasher:
    """Hashes pieces of what lies below a root; what cannot be read has no hash, and is complained of."""

    pool: TaskPool
    reporter: TreeReporter
    root: int
    _hashes: dict[int, str] = field(default_factory=dict)
    _complaints: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def hash_pieces(self, pieces: Sequence[HashedPiece]) -> None:
        """Hash them, and say what came of it: by their number, and in words."""
        for number, piece in enumerate(pieces):
            self._add(number, piece)
        self.pool.run()
        self.reporter.say({"hashes": list(self._hashes.items()), "unread": sorted(self._complaints)})

    def _add(self, number: int, piece: HashedPiece) -> None:
        self.pool.add_file(lambda: self._piece(number, piece))

    def _piece(self, number: int, piece: HashedPiece) -> None:
        path, offset, length = piece
        try:
            with open_descriptor(open_beneath(self.root, path, READ_FLAGS)) as fd:
                digest = hash_piece(fd, offset, length)
        except OSError as error:
            with self._lock:
                self._complaints.append(f"{escape_path(path)}: {error.strerror or error}")
            return
        with self._lock:
            self._hashes[number] = digest
        self.reporter.add(files=1)


def hash_piece(fd: int, offset: int, length: int | None) -> str:
    """The hash of a piece of an open file, in hexadecimal digits; a file may end before the piece does. Raises OSError.

    What is neither a file nor a device is not read: that of a pipe would wait for ever.
    """
    seen = os.fstat(fd)
    mode = seen.st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISBLK(mode)):
        raise OSError(None, "it is no file any more")
    if length is not None and (size := _measure_hole(fd, offset, offset + length)) is not None:
        return _hash_zeroes(size)
    digest, memory, at = hashlib.sha256(), memoryview(bytearray(COPY_BLOCK_SIZE)), offset
    # Of a volume's device the size is 0: nothing is asked for ahead.
    ahead = ReadAhead(fd, offset, seen.st_size if length is None else min(seen.st_size, offset + length))
    while length is None or at < offset + length:
        ahead.advance(at)
        most = COPY_BLOCK_SIZE if length is None else min(COPY_BLOCK_SIZE, offset + length - at)
        count = os.preadv(fd, [memory[:most]], at)
        if not count:
            break
        digest.update(memory[:count])
        at += count
    return digest.hexdigest()


def _measure_hole(fd: int, start: int, end: int) -> int | None:
    """The bytes of a piece that is in a file and has no data; None of any other. lseek(2) has SEEK_DATA."""
    end = min(end, os.fstat(fd).st_size)
    if start >= end:  # a device has no size there
        return None
    try:
        return None if os.lseek(fd, start, os.SEEK_DATA) < end else end - start
    except OSError as error:
        return end - start if error.errno == errno.ENXIO else None


@lru_cache(16)
def _hash_zeroes(size: int) -> str:
    digest = hashlib.sha256()
    for start in range(0, size, COPY_BLOCK_SIZE):
        digest.update(bytes(min(COPY_BLOCK_SIZE, size - start)))
    return digest.hexdigest()


def make_piece_words(path: bytes, offset: int, length: int | None) -> list[object]:
    """A piece as the child is asked for it."""
    return [b64encode(path).decode(), offset, length]
