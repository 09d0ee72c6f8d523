"""The records of a ZFS stream, as far as blocks are looked for in one: what ``zfs send`` writes, without a package.

A record is 312 bytes and, for some types, a payload: ``dmu_replay_record`` and DRR_*_PAYLOAD_SIZE in
include/sys/zfs_ioctl.h.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

RECORD = 312
MAGIC = 0x2F5BACBAC
BEGIN, OBJECT, WRITE, END, SPILL, WRITE_EMBEDDED = 0, 1, 3, 5, 7, 8

_HEAD = struct.Struct("<II")
_MAGIC = struct.Struct("<Q")
_WRITE = struct.Struct("<QI4xQQ")
_U64 = struct.Struct("<Q")
_U32 = struct.Struct("<I")
_UNION = _HEAD.size

CHUNK = 1 << 20
"""Bytes that are skipped at a time."""


class BadStream(Exception):
    """This is no stream, or not all of one; the text says how that shows."""


@dataclass(frozen=True, slots=True)
class StreamedBlock:
    """A block that a stream brings: ``offset`` in its object and ``logical`` size in bytes; ``data`` as it is sent."""

    number: int
    offset: int
    logical: int
    data: bytes


def written(file: BinaryIO, wanted: set[tuple[int, int]]) -> Iterator[StreamedBlock]:
    """The blocks of a stream at these places, given as object and offset in it. Raises BadStream."""
    first = True
    while True:
        record = _exactly(file, RECORD)
        kind, _ = _HEAD.unpack_from(record)
        if first and (kind != BEGIN or _MAGIC.unpack_from(record, _UNION)[0] != MAGIC):
            raise BadStream("it does not begin as a stream of a host with this byte order does")
        first = False
        if kind == END:
            return
        length = _payload(kind, record)
        if kind == WRITE:
            number, _, offset, logical = _WRITE.unpack_from(record, _UNION)
            if (number, offset) in wanted:
                yield StreamedBlock(number, offset, logical, _exactly(file, length))
                continue
        _skip(file, length)


def _payload(kind: int, record: bytes) -> int:
    """How many bytes follow a record."""

    def u64(at: int) -> int:
        return int(_U64.unpack_from(record, _UNION + at)[0])

    def u32(at: int) -> int:
        return int(_U32.unpack_from(record, _UNION + at)[0])

    if kind == BEGIN:
        return int(_HEAD.unpack_from(record)[1])
    if kind == OBJECT:
        return u32(28) or _whole(u32(20))
    if kind == WRITE:
        return u64(88) or u64(24)
    if kind == SPILL:
        return u64(32) or u64(8)
    return _whole(u32(44)) if kind == WRITE_EMBEDDED else 0


def _whole(size: int) -> int:
    return -(-size // 8) * 8


def _exactly(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise BadStream("it ends before its end")
    return data


def _skip(file: BinaryIO, size: int) -> None:
    while size:
        size -= len(_exactly(file, min(size, CHUNK)))
