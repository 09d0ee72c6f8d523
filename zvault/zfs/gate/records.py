"""The records of a ZFS stream: their layout, and how many bytes come after each. Pure.

A record is 312 bytes and, for some types, a payload: ``dmu_replay_record`` and DRR_*_PAYLOAD_SIZE in
include/sys/zfs_ioctl.h.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

RECORD = 312
MAGIC = 0x2F5BACBAC
BEGIN, OBJECT, FREEOBJECTS, WRITE, FREE, END, _WRITE_BYREF, SPILL, WRITE_EMBEDDED, OBJECT_RANGE, REDACT = (
    range(11)
)
WITHOUT_PAYLOAD = frozenset({FREEOBJECTS, FREE, END, OBJECT_RANGE})

MAX_BLOCK = 16 << 20
"""Bytes of the largest block there is (SPA_MAXBLOCKSIZE)."""

MAX_HEADER = 32 << 20
"""Bytes of the largest payload of a BEGIN that is taken: a package of 100,000 snapshots has some 15 MiB."""

PACKAGE, SUBSTREAM = 2, 1
"""Header types: DMU_COMPOUNDSTREAM and DMU_SUBSTREAM."""

FILESYSTEM, VOLUME = 2, 3
"""DMU_OST_ZFS and DMU_OST_ZVOL."""

CLONE = 1
"""DRR_FLAG_CLONE."""

SA_SPILL, EMBED_DATA, LZ4 = 1 << 2, 1 << 16, 1 << 17
LARGE_BLOCKS, RESUMING, REDACTED, COMPRESSED = 1 << 19, 1 << 20, 1 << 21, 1 << 22
LARGE_DNODE, RAW, ZSTD, HOLDS = 1 << 23, 1 << 24, 1 << 25, 1 << 26
SWITCH_TO_LARGE_BLOCKS, LONGNAME, LARGE_MICROZAP = 1 << 27, 1 << 28, 1 << 29


class BadStream(Exception):
    """This is no stream, or not all of one; the text says how that shows."""


class StreamCutOff(BadStream):
    """The stream is not all there, and as far as it is, nothing is wrong with it."""

    def __init__(self) -> None:
        super().__init__("it ends before its end")


class BeginRecord(NamedTuple):
    """A BEGIN record. ``name`` is the snapshot's name on the sender, ``features`` and ``flags`` are bits."""

    header: int
    features: int
    kind: int
    flags: int
    to_guid: int
    from_guid: int
    name: str


class RecordLayout:
    """The layout of numbers in a stream of one byte order."""

    def __init__(self, order: str) -> None:
        self._head = struct.Struct(f"{order}II")
        self._begin = struct.Struct(f"{order}QQQIIQQ")
        self._u64 = struct.Struct(f"{order}Q")
        self._u32 = struct.Struct(f"{order}I")
        self._write = struct.Struct(f"{order}QI4xQQ")

    def kind(self, record: bytes, at: int = 0) -> int:
        """Return a record's type."""
        return int(self._u32.unpack_from(record, at)[0])

    def begin(self, record: bytes) -> BeginRecord:
        """Read what a BEGIN says. Raises BadStream."""
        _, version, _, kind, flags, to_guid, from_guid = self._begin.unpack_from(record, self._head.size)
        name, nul, _ = record[self._head.size + self._begin.size :].partition(b"\0")
        try:
            text = name.decode() if nul else ""
        except UnicodeDecodeError:
            text = ""
        if not text:
            raise BadStream("the snapshot's name in it is not one")
        # Above the 30 bits of the features are reserved ones, which are 0: whoever sets one asks for what nobody knows.
        return BeginRecord(version & 3, version >> 2, kind, flags, to_guid, from_guid, text)

    def write(self, record: bytes) -> tuple[int, int, int]:
        """The object, the offset in it and the logical size of a WRITE."""
        number, _, offset, logical = self._write.unpack_from(record, self._head.size)
        return number, offset, logical

    def payload(self, record: bytes, at: int = 0) -> int:
        """Return how many bytes come after the record that begins there. Raises BadStream."""
        kind, length = self._head.unpack_from(record, at)
        if kind in WITHOUT_PAYLOAD:
            return 0
        union = at + self._head.size
        if kind == BEGIN:
            size, most = int(length), MAX_HEADER
        elif kind == WRITE:
            compressed = record[union + 42]
            size, most = self._at64(record, union + (88 if compressed else 24)), MAX_BLOCK
        elif kind == OBJECT:
            size = self._at32(record, union + 28) or _whole(self._at32(record, union + 20))
            most = MAX_BLOCK
        elif kind == SPILL:
            size = self._at64(record, union + 32) or self._at64(record, union + 8)
            most = MAX_BLOCK
        elif kind == WRITE_EMBEDDED:
            size, most = _whole(self._at32(record, union + 44)), MAX_BLOCK
        else:
            raise BadStream(f"it has a record of type {kind}, which has no place in it")
        if size > most:
            raise BadStream(f"it has a record of type {kind} with {size} bytes")
        return size

    def _at64(self, record: bytes, at: int) -> int:
        return int(self._u64.unpack_from(record, at)[0])

    def _at32(self, record: bytes, at: int) -> int:
        return int(self._u32.unpack_from(record, at)[0])


def detect_layout(record: bytes) -> RecordLayout:
    """The layout of a stream with this first record. Raises BadStream."""
    for order in "<>":
        kind, _, magic = struct.unpack_from(f"{order}IIQ", record)
        if kind == BEGIN and magic == MAGIC:
            return RecordLayout(order)
    raise BadStream("it does not begin as a stream does")


def _whole(size: int) -> int:
    return -(-size // 8) * 8
