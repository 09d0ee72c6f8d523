"""How a journal's files look, and how they are read after a crash.

A file is named for the number of its first frame, in twelve digits, with ".journal". It is a header (_FILE, and its
digest) and frames. A frame is a header (_FRAME), a digest of eight bytes, and its blocks' data, or nothing where they
became zeroes. The digest is xxh3_64 of the data, seeded with that of the header, which is seeded with the store and the
epoch: so nothing that another store, another epoch or a journal inside the device left on the disk passes for a frame.

Each frame carries a *mark*: the last frame that was flushed, or no longer needed, when it was appended.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from xxhash import xxh3_64_digest, xxh3_64_intdigest

from zvault.blockstore.format import BLOCK_SIZE
from zvault.object_store.interface import Buffer

_VERSION = 1
_FILE = struct.Struct("<8sII16sQQ")  # magic, version, 1 if durable, identity, epoch, first frame
_FILE_MAGIC = b"zvJOURNL"
_FRAME = struct.Struct("<4sIQQQQ")  # magic, kind, number, block, count of blocks, mark
_FRAME_MAGIC = b"zvFR"
_DATA, _ZERO = 1, 2
FILE_HEADER_SIZE = _FILE.size + 8
"""Bytes of a file's header."""
FRAME_HEAD_SIZE = _FRAME.size + 8
"""Bytes of a frame beside its data."""
_READ = 1 << 20


@dataclass(frozen=True, slots=True)
class JournalFrame:
    """One write: ``count`` blocks from ``block`` on; no ``data`` where they became zeroes."""

    number: int
    block: int
    count: int
    data: bytes | None


@dataclass(frozen=True, slots=True)
class JournalHeader:
    """The header of a journal file; ``identity`` is the store's uuid in 16 bytes."""

    version: int
    identity: bytes
    epoch: int
    known: bool


def name_journal_file(first: int) -> str:
    """The name of the file that begins with this frame."""
    return f"{first:012d}.journal"


def make_frame_seed(identity: bytes, epoch: int) -> int:
    """Return the seed of the digests of an epoch's frames."""
    return xxh3_64_intdigest(identity + epoch.to_bytes(8, "little"))


def make_file_header(identity: bytes, epoch: int, first: int, *, durable: bool) -> bytes:
    """HEADER bytes for a file that begins with frame ``first``."""
    head = _FILE.pack(_FILE_MAGIC, _VERSION, durable, identity, epoch, first)
    return head + xxh3_64_digest(head)


def read_file_header(path: Path) -> JournalHeader | None:
    """A file's header; None where it has no whole one. Raises OSError."""
    with path.open("rb") as one:
        head, digest = one.read(_FILE.size), one.read(8)
    if len(head) != _FILE.size or xxh3_64_digest(head) != digest:
        return None
    magic, version, _, identity, epoch, _ = _FILE.unpack(head)
    return JournalHeader(version, identity, epoch, magic == _FILE_MAGIC and version == _VERSION)


def pack_frame(
    frame: tuple[int, int, int], mark: int, data: Buffer | None, seed: int
) -> tuple[bytes, bytes, Buffer]:
    """The three pieces of a frame (number, block, count) as they are written: header, digest, data."""
    head = _FRAME.pack(_FRAME_MAGIC, _ZERO if data is None else _DATA, *frame, mark)
    body = b"" if data is None else data
    return head, xxh3_64_digest(body, xxh3_64_intdigest(head, seed)), body


def read_whole_frames(path: Path, first: int, seed: int) -> Iterator[tuple[JournalFrame, int]]:
    """Every frame in a file that is whole, with its mark, whatever lies between them. Raises OSError."""
    with path.open("rb", buffering=_READ) as one:
        size = one.seek(0, 2)
        at = FILE_HEADER_SIZE
        while at + FRAME_HEAD_SIZE <= size:
            found = _parse(one, at, size - at - FRAME_HEAD_SIZE, seed)
            if found is None or found[0].number < first:
                at = _next_magic(one, at + 1, size)
                continue
            yield found
            at += FRAME_HEAD_SIZE + len(found[0].data or b"")


def _parse(one: BinaryIO, at: int, room: int, seed: int) -> tuple[JournalFrame, int] | None:
    """The frame at this place with at most ``room`` bytes of data; None if there is none."""
    one.seek(at)
    head, digest = one.read(_FRAME.size), one.read(8)
    magic, kind, number, block, count, mark = _FRAME.unpack(head)
    if magic != _FRAME_MAGIC or kind not in (_DATA, _ZERO) or (kind == _DATA and count * BLOCK_SIZE > room):
        return None
    data = one.read(count * BLOCK_SIZE) if kind == _DATA else None
    if xxh3_64_digest(data or b"", xxh3_64_intdigest(head, seed)) != digest:
        return None
    return JournalFrame(number, block, count, data), mark


def _next_magic(one: BinaryIO, at: int, size: int) -> int:
    """Where the next frame may begin; ``size`` if nowhere."""
    one.seek(at)
    while piece := one.read(_READ):
        found = piece.find(_FRAME_MAGIC)
        if found >= 0:
            return at + found
        if len(piece) < _READ:
            break
        at += _READ - len(_FRAME_MAGIC) + 1
        one.seek(at)
    return size
