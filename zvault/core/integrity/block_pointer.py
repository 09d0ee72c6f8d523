"""Block pointers: where a block lies in its pool, and by which checksum its bytes are known. Pure.

A pointer is read as zdb(8) prints it (``snprintf_blkptr`` in module/zfs/spa_misc.c). The checksums are those of
module/zcommon/zfs_fletcher.c and module/zfs/sha2_zfs.c; what is done to them in an encrypted dataset is in
``zio_checksum_handle_crypt`` (module/zfs/zio_checksum.c).
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass

_DVA = re.compile(r"DVA\[\d\]=<([0-9]{1,20}):([0-9a-f]+):[0-9a-f]+>")
_KIND = re.compile(r"\[L(-?[0-9]{1,20}) [^]]*\] (\S+) (\S+) (\S+) (LE|BE) (\S+) ")
_SIZE = re.compile(r" size=([0-9a-f]+)L/([0-9a-f]+)P birth=([0-9]{1,20})L/")
_WORDS = re.compile(r" cksum=([0-9a-f]+):([0-9a-f]+):([0-9a-f]+):([0-9a-f]+)")

ChecksumWords = tuple[int, int, int, int]
"""A checksum: four numbers of 64 bits."""

_WORD = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Dva:
    """A place in a pool: the number of a top-level vdev, and bytes from the end of its front labels."""

    vdev: int
    offset: int


@dataclass(frozen=True, slots=True)
class BlockPointer:
    """``logical`` and ``physical`` in bytes; ``birth`` is the transaction group in which the block was written.

    ``crypt`` is ``unencrypted``, ``encrypted`` or ``authenticated``. ``gang``: its bytes are not where the DVA says,
    but where that block does.
    """

    dvas: tuple[Dva, ...]
    level: int
    checksum: str
    compression: str
    crypt: str
    big_endian: bool
    gang: bool
    logical: int
    physical: int
    birth: int
    words: ChecksumWords

    @property
    def obstacle(self) -> str | None:
        """Why its bytes cannot be told from others, or be put in place; None where they can."""
        if self.gang:
            return "it is in pieces (a gang block)"
        if self.checksum not in _CHECKSUMS:
            return f"its checksum is {self.checksum}, which zvault does not compute"
        return None

    @property
    def is_cryptographic(self) -> bool:
        """True if nobody can make other bytes that fit its checksum: the sums of fletcher tell accidents only."""
        algorithm = _CHECKSUMS.get(self.checksum)
        return algorithm is not None and algorithm.secure

    def fits(self, data: bytes) -> bool:
        """True if these are the block's bytes, as they lie on a disk."""
        if len(data) != self.physical or self.obstacle is not None:
            return False
        algorithm = _CHECKSUMS[self.checksum]
        found = algorithm.words(data, ">" if self.big_endian else "<")
        if self.crypt == "unencrypted":
            return found == self.words
        # The other half is the MAC, which nobody can tell without the key.
        if not algorithm.secure:
            found = (found[0] ^ found[2], found[1] ^ found[3], 0, 0)
        return found[:2] == self.words[:2]

    def pad(self, data: bytes) -> bytes:
        """Return a block's bytes from a stream as they lie on this pool's disks: compressed blocks are filled up with
        zeros to whole sectors, whose size may be another at the source.
        """
        return data.ljust(self.physical, b"\0")


def parse_pointer(text: str) -> BlockPointer | None:
    """A block pointer from a line of zdb's; None for a hole, and for one that holds its data itself."""
    kind, size, words = _KIND.search(text), _SIZE.search(text), _WORDS.search(text)
    dvas = tuple(Dva(int(vdev), int(offset, 16)) for vdev, offset in _DVA.findall(text))
    if not dvas or kind is None or size is None or words is None:
        return None
    one, two, three, four = (int(word, 16) for word in words.groups())
    return BlockPointer(
        dvas,
        int(kind[1]),
        kind[2],
        kind[3],
        kind[4],
        kind[5] == "BE",
        kind[6] == "gang",
        int(size[1], 16),
        int(size[2], 16),
        int(size[3]),
        (one, two, three, four),
    )


def compute_fletcher2(data: bytes, order: str) -> ChecksumWords:
    """Sums and sums of sums of the 64-bit numbers at even and at odd places. ``order`` as struct(3py) has it."""
    a = b = c = d = 0
    for even, odd in struct.iter_unpack(f"{order}QQ", data):
        a += even
        b += odd
        c += a
        d += b
    return a & _WORD, b & _WORD, c & _WORD, d & _WORD


def compute_fletcher4(data: bytes, order: str) -> ChecksumWords:
    """Sums of the 32-bit numbers, of these sums, of those, and of those."""
    a = b = c = d = 0
    for (word,) in struct.iter_unpack(f"{order}I", data):
        a += word
        b += a
        c += b
        d += c
    return a & _WORD, b & _WORD, c & _WORD, d & _WORD


def compute_sha256(data: bytes, _order: str) -> ChecksumWords:
    """SHA-256, whose words are stored with the first byte highest, whatever wrote them."""
    one, two, three, four = struct.unpack(">4Q", hashlib.sha256(data).digest())
    return one, two, three, four


@dataclass(frozen=True, slots=True)
class _Checksum:
    """``secure``: one that OpenZFS lets tell blocks apart (ZCHECKSUM_FLAG_DEDUP)."""

    words: Callable[[bytes, str], ChecksumWords]
    secure: bool


_CHECKSUMS = {
    "fletcher2": _Checksum(compute_fletcher2, secure=False),
    "fletcher4": _Checksum(compute_fletcher4, secure=False),
    "sha256": _Checksum(compute_sha256, secure=True),
}
