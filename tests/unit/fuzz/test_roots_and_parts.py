"""Checkpoints' roots, parts of the map and pages of the usage, as a bucket gives them back."""

from __future__ import annotations

import json
import struct
import zlib

import xxhash
from hypothesis import strategies as st

from tests.unit.fuzz.mutation import mutated, seed, seeds
from tests.unit.fuzz.target import MIB, target
from zvault.blockstore.format import ObjectDamaged, Superblock
from zvault.blockstore.map.map_part import PART_BLOCKS, MapPart
from zvault.blockstore.map.read_roots import parse_any_root
from zvault.blockstore.map.root import CheckpointRoot
from zvault.blockstore.map.usage import PAGE_SEGMENTS, SegmentUsage

FAMILY = "roots_and_parts"
STORE = Superblock.of_bytes(seed("segments", "superblock"))
ROOTS = [one for one in seeds(FAMILY) if one.startswith(b"zvroot01")]
PARTS = [seed(FAMILY, "part")]
COLUMNS = [zlib.decompress(one) for one in PARTS]
PAGES = [bytes(6 * PAGE_SEGMENTS), bytes([1, 0] * PAGE_SEGMENTS + [0, 16, 0, 0] * PAGE_SEGMENTS)]
HEAD = struct.Struct("<8sII")
BOMB = zlib.compress(bytes(32 << 20), 9)


def resealed(data: bytes) -> bytes:
    """With the checksum that it has to have."""
    return data[:-16] + xxhash.xxh3_128_digest(data[:-16])


def test_the_seeds_are_read() -> None:
    assert len(ROOTS) == 2
    for data in ROOTS:
        assert CheckpointRoot.of_bytes(data, STORE.identity, "v").epoch <= 1
        assert resealed(data) == data
    for data in PARTS:
        assert len(MapPart.of_bytes(data).runs)


@target(mutated(ROOTS), ObjectDamaged, cap=4 * MIB)
def test_roots(data: bytes) -> None:
    """As they come."""
    CheckpointRoot.of_bytes(data, STORE.identity, "v")
    parse_any_root(data, "v")


@target(mutated(ROOTS), ObjectDamaged, cap=16 * MIB)
def test_roots_that_are_sealed(data: bytes) -> None:
    """With the checksum of a writer."""
    parse_any_root(resealed(data), "v")


def _words(data: bytes) -> bytes:
    size = HEAD.unpack_from(data)[1]
    return data[HEAD.size : HEAD.size + size]


def _tables(data: bytes) -> bytes:
    return data[HEAD.size + len(_words(data)) : -16]


@target(
    st.tuples(mutated([_words(one) for one in ROOTS]), mutated([*map(_tables, ROOTS), BOMB])).map(
        b"\0\0\0".join
    ),
    ObjectDamaged,
    cap=64 * MIB,
)
def test_what_a_root_says(data: bytes) -> None:
    """Its words and its tables, put together and sealed as by a writer."""
    words, _, tables = data.partition(b"\0\0\0")
    body = HEAD.pack(b"zvroot01", len(words), len(tables)) + words + tables
    found = CheckpointRoot.of_bytes(body + xxhash.xxh3_128_digest(body), STORE.identity, "v")
    assert 0 <= found.applied < 1 << 32
    assert json.loads(words)["tables"] == [len(found.parts), len(found.pages)]


@target(mutated([*PARTS, BOMB]), ValueError, zlib.error, cap=8 * MIB)
def test_parts(data: bytes) -> None:
    """As they come."""
    MapPart.of_bytes(data).dense()


@target(mutated(COLUMNS), ValueError, zlib.error, cap=8 * MIB)
def test_what_a_part_says(data: bytes) -> None:
    """Its runs lie beside each other and within a segment."""
    found = MapPart.of_bytes(zlib.compress(data))
    at = 0
    for low, count, _, slot in found.find(0, PART_BLOCKS):
        assert low == at
        assert slot + count <= 0x10000
        at += count
    assert at == PART_BLOCKS
    found.dense()


@target(mutated([*map(zlib.compress, PAGES), BOMB]), ValueError, zlib.error, cap=8 * MIB)
def test_pages(data: bytes) -> None:
    """Pages of the usage."""
    usage = SegmentUsage()
    usage.load_page(0, data)
    assert usage.live_bytes >= 0
    usage.dead()
