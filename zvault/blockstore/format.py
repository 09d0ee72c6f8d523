"""How the block store lies in a bucket: names of objects, and segments byte by byte.

See docs/reference/blockstore-format.md. All numbers are little-endian. A format that changes gets another VERSION, and
the code that reads the old one.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import xxhash

from zvault.core.errors import Refused
from zvault.object_store.interface import Buffer, describe_loss
from zvault.object_store.interface import ObjectDamaged as ObjectDamaged  # noqa: PLC0414 - here it is looked for

FORMAT_VERSION = 1
ENCRYPTED_VERSION = 2
"""Of a store whose objects are those of version 1, encrypted: see encryption/."""
BLOCK_SIZE = 4096
"""Bytes of a block, the unit of everything: what ZFS writes with ashift=12 is whole blocks."""
CHECKSUM_SIZE = 8
SLOT_SIZE = BLOCK_SIZE + CHECKSUM_SIZE
"""Bytes of a slot: a block and its checksum, so that any run of slots can be fetched and verified by itself."""
SEGMENT_SLOTS = 2040
"""At most so many slots a segment, which makes 8 MiB objects."""
CHUNK_SLOTS = 16
"""Slots a chunk, the unit of the cache: blocks that were written together are read together."""
MOST_TABLE_ENTRIES = 8192
"""At most so many entries in a segment's table."""
ZERO_SLOT = 0xFFFF
"""In the place of a slot: these blocks read as zeroes."""
SLOT_BITS = 16
"""A position is ``sequence << SLOT_BITS | slot``."""

PARSE_ERRORS = (
    ValueError,
    TypeError,
    KeyError,
    OverflowError,
    AttributeError,
    RecursionError,
    struct.error,
    zlib.error,
)
"""What reading bytes that somebody else wrote may raise."""

SEGMENT_TABLE = np.dtype([("block", "<u8"), ("count", "<u4"), ("slot", "<u4")])
_FOOTER = struct.Struct("<8s16sQQQQQIIQQ")
_MAGIC = b"zvsegm02"
_OLD_FOOTER = struct.Struct("<8s16sQQQIIQQ")
_OLD_MAGIC = b"zvsegm01"
"""A footer without ``safe`` and ``checkpoint``."""
_NUMBERS = struct.Struct("<QQ")
_NAME = re.compile(r"([0-9a-f]{8,16})-([0-9a-f]{8,16})")
MAX_SIZE = 1 << 50
"""Bytes of a device: 1 PiB, far from what 32 bits of segments can hold."""
MAX_BLOCKS = MAX_SIZE // BLOCK_SIZE
FOOTER_SIZE = _FOOTER.size
LARGEST_SEGMENT = SEGMENT_SLOTS * SLOT_SIZE + MOST_TABLE_ENTRIES * SEGMENT_TABLE.itemsize + FOOTER_SIZE
"""Bytes."""
MAX_NUMBER = (1 << 32) - 1
"""Of a segment, an epoch, a checkpoint, an object of the map."""
SEGMENT_TAIL_SIZE = FOOTER_SIZE + 16 * SEGMENT_SLOTS // 4
"""Bytes to ask of a segment's end: its footer, and the table of one that was not written block by block."""


@dataclass(frozen=True, slots=True)
class Superblock:
    """The facts of a store that never change: ``PREFIX/store``.

    ``size`` in bytes, ``created`` in seconds since the epoch.
    """

    version: int
    uuid: str
    size: int
    created: float

    def as_bytes(self) -> bytes:
        """As the object holds it."""
        return json.dumps({**asdict(self), "digest": self._digest()}, indent=1).encode()

    def _digest(self) -> str:
        return xxhash.xxh3_64_hexdigest(json.dumps(asdict(self), sort_keys=True).encode())

    @classmethod
    def of_bytes(cls, data: bytes) -> Superblock:
        """Read back. Raises ObjectDamaged, also for a version that is not ours; Refused for one that is encrypted."""
        try:
            found = json.loads(data)
            version = int(found["version"])
            if version == FORMAT_VERSION:
                self = cls(version, str(found["uuid"]), int(found["size"]), float(found["created"]))
                if found["digest"] != self._digest() or len(self.identity) != 16:
                    raise ValueError("it does not match its checksum")
                if not 0 < self.size <= MAX_SIZE or self.size % BLOCK_SIZE:
                    raise ValueError(f"there can be no device of {self.size} bytes")
                return self
        except PARSE_ERRORS as error:
            raise ObjectDamaged(
                "the store's first object cannot be read",
                describe_loss(data) or str(error),
                "'zvaultctl blockstore check PLACE --repair' makes it anew from a checkpoint",
            ) from error
        if version == ENCRYPTED_VERSION:
            raise Refused(
                "the block store is encrypted",
                "no key to it is given",
                "give it by encryption-key=/path or encryption-credential=NAME",
            )
        raise ObjectDamaged(
            f"the store is of version {version}",
            f"this zvault reads version {FORMAT_VERSION}",
            "use the zvault that wrote it",
        )

    @property
    def identity(self) -> bytes:
        """16 bytes."""
        return bytes.fromhex(self.uuid)

    @property
    def blocks(self) -> int:
        return self.size // BLOCK_SIZE


def make_superblock_key(prefix: str) -> str:
    """``PREFIX/store``, the first object."""
    return f"{prefix}/store"


def make_keyring_key(prefix: str) -> str:
    """``PREFIX/keys``: of an encrypted store, a copy of its first object, which has its keys."""
    return f"{prefix}/keys"


def make_segment_key(prefix: str, sequence: int, epoch: int) -> str:
    """``PREFIX/segments/SSSSSSSSSS-EEEEEEEE``: listed in the order of the log."""
    return f"{prefix}/segments/{sequence:010x}-{epoch:08x}"


def make_map_key(prefix: str, number: int, epoch: int) -> str:
    """Return the key under which a checkpoint puts changed parts of the map."""
    return f"{prefix}/maps/{number:010x}-{epoch:08x}"


def make_checkpoint_key(prefix: str, number: int, epoch: int) -> str:
    """Ordered by epoch first: what a writer that was shut out still puts comes before the first of its successor."""
    return f"{prefix}/checkpoints/{epoch:08x}-{number:010x}"


def parse_key_numbers(key: str) -> tuple[int, int]:
    """The two numbers in a key of one of these forms, as they stand there. Raises ValueError."""
    match = _NAME.fullmatch(key.rpartition("/")[2])
    if match is None:
        raise ValueError(f"{key} is no name of the block store's")
    return int(match[1], 16), int(match[2], 16)


def find_key_numbers(key: str) -> tuple[int, int]:
    """The same; both -1 where the name is not one that the block store gives."""
    try:
        return parse_key_numbers(key)
    except ValueError:
        return -1, -1


def make_slot_seed(sequence: int, epoch: int, block: int) -> int:
    """Return the seed of a slot's checksum: neither the right bytes in the wrong place pass, nor another epoch's.

    That of the next block is the next number.
    """
    return (xxhash.xxh3_64_intdigest(_NUMBERS.pack(sequence, epoch)) >> 1) + block


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment's own account of itself. ``frame`` is the last frame of the log that is wholly in it or before it."""

    sequence: int
    epoch: int
    frame: int
    slots: int
    table: np.ndarray
    """Of dtype TABLE, in the order of the log; ``slot`` is ZERO for blocks that read as zeroes from here on."""
    safe: int | None = None
    """All segments up to this one were in the store before this one was put; None: it does not say (zvsegm01)."""
    checkpoint: int = 0
    """Number of the newest checkpoint that its writer had put by then; 0: none, or it does not say."""

    @property
    def footer(self) -> int:
        """Bytes of its footer."""
        return _OLD_FOOTER.size if self.safe is None else FOOTER_SIZE

    @property
    def size(self) -> int:
        """The size of the object, in bytes."""
        return self.slots * SLOT_SIZE + self.table.nbytes + self.footer


def encode_segment(slots: bytearray | memoryview, segment: Segment, identity: bytes) -> memoryview:
    """Put checksums, table and footer into the buffer of a segment's slots; the object's bytes.

    ``slots`` has room for ``segment.size`` bytes; blocks stand at the beginnings of their slots. ``segment.safe`` is
    known.
    """
    if segment.safe is None:
        raise ValueError("a segment says what is in the store before it")
    view = memoryview(slots)
    for block, count, slot in segment.table.tolist():
        if slot == ZERO_SLOT:
            continue
        run = view_slot_rows(view, slot, count)
        run[:, BLOCK_SIZE:] = compute_slot_sums(
            view, slot, range(block, block + count), segment.sequence, segment.epoch
        )
    end = segment.slots * SLOT_SIZE
    table = segment.table.tobytes()
    view[end : end + len(table)] = table
    fields = (
        _MAGIC,
        identity,
        segment.epoch,
        segment.sequence,
        segment.frame,
        segment.safe,
        segment.checkpoint,
        segment.slots,
        len(segment.table),
    )
    sealed = _FOOTER.pack(*fields, xxhash.xxh3_64_intdigest(table), 0)[:-CHECKSUM_SIZE]
    view[end + len(table) : segment.size - CHECKSUM_SIZE] = sealed
    view[segment.size - CHECKSUM_SIZE : segment.size] = xxhash.xxh3_64_digest(sealed)
    return view[: segment.size]


def decode_segment(
    tail: bytes, size: int, identity: bytes, key: str, blocks: int = MAX_BLOCKS
) -> Segment | None:
    """A segment from the last bytes of its object, which has ``size``; None if more of them are needed.

    ``blocks``: of the device, at most. Raises ObjectDamaged, also for a segment of another store or under another's
    name.
    """
    read = _footer(tail)
    if read is None:
        loss = describe_loss(tail)
        raise _damaged(key, loss or "its footer does not match its checksum, or it is too short")
    kind, (_, uuid, epoch, sequence, frame, *said, slots, entries, digest, _) = read
    safe, checkpoint = said or (None, 0)
    if uuid != identity or find_key_numbers(key) != (sequence, epoch):
        raise _damaged(key, "it belongs elsewhere")
    length = entries * SEGMENT_TABLE.itemsize
    if (
        slots > SEGMENT_SLOTS
        or entries > MOST_TABLE_ENTRIES
        or slots * SLOT_SIZE + length + kind.size != size
    ):
        raise _damaged(key, f"it has {size} bytes")
    if len(tail) < length + kind.size:
        return None
    sealed = tail[-kind.size - length : -kind.size]
    if xxhash.xxh3_64_intdigest(sealed) != digest:
        raise _damaged(key, "its table does not match its checksum")
    table = np.frombuffer(sealed, SEGMENT_TABLE)
    if not _possible(table, slots, blocks):
        raise _damaged(key, "its table says what cannot be")
    return Segment(sequence, epoch, frame, slots, table, safe, checkpoint)


def _footer(tail: bytes) -> tuple[struct.Struct, tuple[Any, ...]] | None:
    """The fields of a footer of either form; None where neither matches its checksum."""
    for kind, magic in ((_FOOTER, _MAGIC), (_OLD_FOOTER, _OLD_MAGIC)):
        sealed = tail[-kind.size : -CHECKSUM_SIZE]
        if len(tail) < kind.size or xxhash.xxh3_64_digest(sealed) != tail[-CHECKSUM_SIZE:]:
            continue
        fields = kind.unpack(sealed + bytes(CHECKSUM_SIZE))
        if fields[0] == magic:
            return kind, fields
    return None


def _possible(table: np.ndarray, slots: int, blocks: int) -> bool:
    """True if entries lie within a device of so many blocks, and within so many slots."""
    block, count, slot = (table[name].astype(np.uint64) for name in ("block", "count", "slot"))
    data = slot != ZERO_SLOT
    return bool(
        (count > 0).all()
        and (block < blocks).all()
        and (count <= blocks - block).all()
        and (slot[data] + count[data] <= slots).all()
    )


def list_bad_slots(data: Buffer, segment: Segment) -> list[int]:
    """Slots of a whole segment's bytes that do not match their checksums."""
    bad = []
    for block, count, slot in segment.table.tolist():
        if slot != ZERO_SLOT:
            mark = make_slot_seed(segment.sequence, segment.epoch, block)
            bad += [
                slot + index for index in range(count) if not is_slot_good(data, slot + index, mark + index)
            ]
    return bad


def is_slot_good(slots: Buffer, index: int, mark: int) -> bool:
    """True if the ``index``-th of these slots holds what belongs there; see seed."""
    at = index * SLOT_SIZE
    view = memoryview(slots)[at : at + SLOT_SIZE]
    return len(view) == SLOT_SIZE and xxhash.xxh3_64_digest(view[:BLOCK_SIZE], mark) == view[BLOCK_SIZE:]


def view_slot_rows(slots: Buffer, first: int, count: int) -> np.ndarray:
    """So many slots from the ``first`` of these on, as an array of bytes with a row for each."""
    return np.frombuffer(slots, np.uint8, count * SLOT_SIZE, first * SLOT_SIZE).reshape(count, SLOT_SIZE)


def compute_slot_sums(
    slots: memoryview, first: int, blocks: Sequence[int], sequence: int, epoch: int
) -> np.ndarray:
    """Return what the checksums of consecutive slots, beginning with the ``first`` of these, have to be: a row for
    each.
    """
    digest, base = xxhash.xxh3_64_digest, make_slot_seed(sequence, epoch, 0)
    begins = range(first * SLOT_SIZE, (first + len(blocks)) * SLOT_SIZE, SLOT_SIZE)
    found = [
        digest(slots[at : at + BLOCK_SIZE], base + block) for at, block in zip(begins, blocks, strict=True)
    ]
    return np.frombuffer(b"".join(found), np.uint8).reshape(len(blocks), CHECKSUM_SIZE)


def copy_verified_slots(
    slots: Buffer, first: int, blocks: Sequence[int], sequence: int, epoch: int, out: memoryview
) -> bool:
    """Put blocks of consecutive slots, beginning with the ``first`` of these, into ``out``; False unless all are right.

    ``slots`` must not change meanwhile.
    """
    count = len(blocks)
    if len(slots) < (first + count) * SLOT_SIZE:
        return False
    rows = view_slot_rows(slots, first, count)
    if not np.array_equal(
        rows[:, BLOCK_SIZE:], compute_slot_sums(memoryview(slots), first, blocks, sequence, epoch)
    ):
        return False
    np.frombuffer(out, np.uint8).reshape(count, BLOCK_SIZE)[:] = rows[:, :BLOCK_SIZE]
    return True


def take_verified_slots(
    slots: Buffer, first: int, blocks: Sequence[int], sequence: int, epoch: int
) -> list[memoryview] | None:
    """Blocks of consecutive slots, beginning with the ``first`` of these; None unless all match their checksums."""
    view = memoryview(slots)
    if len(view) < (first + len(blocks)) * SLOT_SIZE:
        return None
    out = []
    at, digest, mark = first * SLOT_SIZE, xxhash.xxh3_64_digest, make_slot_seed(sequence, epoch, 0)
    for block in blocks:
        data = view[at : at + BLOCK_SIZE]
        if digest(data, mark + block) != view[at + BLOCK_SIZE : at + SLOT_SIZE]:
            return None
        out.append(data)
        at += SLOT_SIZE
    return out


def inflate_bounded(data: Buffer, most: int) -> bytes:
    """Inflate what was deflated, at most so many bytes. Raises ValueError, zlib.error."""
    it = zlib.decompressobj()
    out = it.decompress(data, most + 1)
    if len(out) > most:
        raise ValueError(f"it becomes more than {most} bytes when it is inflated")
    if not it.eof or it.unused_data:
        raise ValueError("it is cut off, or more comes after it")
    return out


def _damaged(key: str, why: str) -> ObjectDamaged:
    return ObjectDamaged(f"the segment {key} is damaged", why, "run 'zvaultctl blockstore check'")
