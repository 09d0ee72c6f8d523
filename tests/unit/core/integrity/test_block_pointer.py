"""Block pointers as zdb(8) of OpenZFS 2.3.9 prints them, and the checksums that they hold."""

from __future__ import annotations

import dataclasses
import hashlib
import struct

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from zvault.core.integrity.block_pointer import Dva, compute_fletcher2, compute_fletcher4, parse_pointer

PLAIN = (
    "           20000  L0 DVA[0]=<0:83000:9000> [L0 ZFS plain file] fletcher4 lz4 unencrypted LE contiguous unique"
    " single size=20000L/9000P birth=7L/7P fill=1"
    " cksum=00000574546d7e2f:005a7d0108e92e30:f887a5b3c9684b3e:f918a44ce8d1e530"
)
SECRET = (
    "               0  L0 DVA[0]=<1:10c000:a000> DVA[1]=<0:ff000:a000> salt=475ed9835207c48f"
    " iv=590e5f1ee0fb48fa:651ba18c [L0 ZFS plain file] fletcher4 lz4 encrypted LE contiguous unique double"
    " size=20000L/9200P birth=12L/14P fill=1"
    " cksum=d70ae74e389da757:455ac4c34895be65:9a45e6e53a178b32:7acee2fb3bdb2cfb"
)


def pointer(line: str = PLAIN, **changes):
    found = parse_pointer(line)
    assert found is not None
    return dataclasses.replace(found, **changes)


def test_a_pointer_is_read():
    found = pointer()
    assert (found.dvas, found.level, found.birth) == ((Dva(0, 0x83000),), 0, 7)
    assert (found.checksum, found.compression, found.crypt) == ("fletcher4", "lz4", "unencrypted")
    assert (found.logical, found.physical, found.gang, found.big_endian) == (1 << 17, 0x9000, False, False)
    assert found.words[0] == 0x574546D7E2F
    assert found.obstacle is None


def test_of_a_block_with_two_copies_both_places_are_read():
    found = pointer(SECRET)
    assert found.dvas == (Dva(1, 0x10C000), Dva(0, 0xFF000))
    assert (found.crypt, found.birth, found.physical) == ("encrypted", 12, 0x9200)


@pytest.mark.parametrize(
    "line",
    [
        "               0 L0 HOLE [L0 unallocated] size=20000L birth=7L",
        "               0 L0 EMBEDDED [L0 ZFS plain file] et=0 lz4 size=200L/30P birth=7L",
        "",
    ],
)
def test_what_lies_nowhere_has_none(line):
    assert parse_pointer(line) is None


def test_sums_by_hand():
    words = struct.pack("<4I", 1, 2, 3, 4)
    assert compute_fletcher4(words, "<") == (10, 20, 35, 56)
    assert compute_fletcher2(struct.pack("<4Q", 1, 2, 3, 4), "<") == (4, 6, 5, 8)
    assert compute_fletcher4(b"\xff" * 64, "<")[0] == 16 * (2**32 - 1)


@given(st.binary(min_size=512, max_size=512), st.integers(0, 511), st.integers(1, 255))
def test_a_changed_byte_does_not_fit(data, at, change):
    changed = bytearray(data)
    changed[at] ^= change
    sums, others = compute_fletcher4(data, "<"), compute_fletcher4(bytes(changed), "<")
    # Half of a sum is kept with encryption, and it is the same for some: for zeroes and any last word, say.
    assume((sums[0] ^ sums[2], sums[1] ^ sums[3]) != (others[0] ^ others[2], others[1] ^ others[3]))
    digest = struct.unpack(">4Q", hashlib.sha256(data).digest())
    mac = (0x9A45E6E53A178B32, 0x7ACEE2FB3BDB2CFB)
    for found in (
        pointer(physical=512, words=sums),
        pointer(physical=512, words=compute_fletcher4(data, ">"), big_endian=True),
        pointer(physical=512, words=compute_fletcher2(data, "<"), checksum="fletcher2"),
        pointer(physical=512, words=digest, checksum="sha256"),
        pointer(SECRET, physical=512, words=(sums[0] ^ sums[2], sums[1] ^ sums[3], *mac)),
        pointer(SECRET, physical=512, words=(*digest[:2], *mac), checksum="sha256"),
    ):
        assert found.fits(data)
        assert not found.fits(bytes(changed))
        assert not found.fits(data[:-1])


def test_what_cannot_be_told_from_others_fits_nothing():
    data = bytes(0x9000)
    for found in (pointer(checksum="blake3"), pointer(words=(0, 0, 0, 0), gang=True)):
        assert found.obstacle is not None
        assert not found.fits(data)


def test_a_stream_has_compressed_blocks_without_what_fills_the_last_sector():
    assert pointer(physical=1024).pad(b"x" * 600) == b"x" * 600 + bytes(424)
