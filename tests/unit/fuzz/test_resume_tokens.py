"""Resume tokens lie with the receiver: each is decoded to what zvault sends by, or refused."""

from __future__ import annotations

import struct
import zlib

from tests.unit.fuzz.mutation import mutated, seeds
from tests.unit.fuzz.target import KIB, MIB, target
from zvault.zfs.gate.resume_token import BadToken, decode_token

REAL = seeds("resume_tokens")
PLAIN = [zlib.decompress(bytes.fromhex(one.decode().rpartition("-")[2])) for one in REAL]


def token(packed: bytes, length: int) -> str:
    """With the checksum that it has to have."""
    words = struct.unpack_from(f"<{len(packed) // 4}I", packed)
    return f"1-{sum(words) & (1 << 64) - 1:x}-{length:x}-{packed.hex()}"


def test_the_seeds_are_tokens() -> None:
    assert [decode_token(one.decode()).to_guid > 0 for one in REAL] == [True] * len(REAL)


@target(mutated(REAL), BadToken, cap=1 * MIB)
def test_tokens(data: bytes) -> None:
    """As they come."""
    found = decode_token(data.decode(errors="replace"))
    assert "@" in found.to_name


@target(mutated(PLAIN), BadToken, cap=1 * MIB)
def test_what_a_token_holds(data: bytes) -> None:
    """Sealed as by ZFS: what is in it has to be possible."""
    found = decode_token(token(zlib.compress(data), len(data)))
    assert found.to_guid > 0
    assert found.to_name.isprintable()


@target(
    mutated([zlib.compress(one) for one in PLAIN] + [zlib.compress(bytes(8 << 20), 9)]),
    BadToken,
    cap=512 * KIB,
)
def test_what_a_token_becomes(data: bytes) -> None:
    """Packed otherwise, or into far less than it becomes."""
    decode_token(token(data, len(data)))
    decode_token(token(data, 64 << 10))
