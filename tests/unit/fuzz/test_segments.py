"""Segments, their footers and the first object of a block store, as a bucket gives them back."""

from __future__ import annotations

import json

import xxhash

from tests.unit.fuzz.mutation import mutated, seed
from tests.unit.fuzz.target import MIB, target
from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore.format import (
    FOOTER,
    SLOT,
    TABLE,
    Damaged,
    Superblock,
    decode,
    segment_key,
    whole,
)
from zvault.blockstore.recovery import Epoch

STORE = Superblock.of_bytes(seed("segments", "superblock"))
KEY = segment_key("v", 1, 1)
SEGMENT = seed("segments", "segment-0000000001-00000001")
TAIL = SEGMENT[3 * SLOT :]


def read(data: bytes, size: int) -> None:
    found = decode(data, size, STORE.identity, KEY, STORE.blocks)
    if found is not None and len(data) == size == found.size:
        for block, count, slot in found.table.tolist():
            assert 0 < count <= STORE.blocks - block
            assert slot == 0xFFFF or slot + count <= found.slots
        whole(data, found)


def resealed(data: bytes) -> bytes:
    """With the checksums of the table and the footer that it has to have."""
    table, footer = data[:-FOOTER], data[-FOOTER:]
    digest = xxhash.xxh3_64_digest(table[-(len(table) % SLOT) :] if len(table) >= SLOT else table)
    footer = footer[:-16] + digest[::-1] + footer[-8:]
    return table + footer[:-8] + xxhash.xxh3_64_digest(footer[:-8])


def test_the_seed_is_a_segment() -> None:
    found = decode(SEGMENT, len(SEGMENT), STORE.identity, KEY, STORE.blocks)
    assert found is not None
    assert whole(SEGMENT, found) == []
    assert len(TAIL) == len(found.table) * TABLE.itemsize + FOOTER
    assert resealed(SEGMENT) == SEGMENT


@target(mutated([SEGMENT, TAIL]), Damaged, cap=4 * MIB)
def test_segments(data: bytes) -> None:
    """As they come."""
    read(data, len(data))
    read(data, len(SEGMENT))


@target(mutated([SEGMENT, TAIL]), Damaged, cap=4 * MIB)
def test_footers(data: bytes) -> None:
    """Sealed as by a writer: what they say has to be possible."""
    if len(data) > FOOTER:
        read(resealed(data), len(data))
        read(resealed(data), len(SEGMENT))


@target(mutated([seed("segments", "superblock")]), Damaged, cap=4 * MIB)
def test_superblocks(data: bytes) -> None:
    """As they come, and with the digest that they have to have."""
    try:
        Superblock.of_bytes(data)
    except Damaged:
        found = json_or_none(data)
        if isinstance(found, dict):
            said = {name: found.get(name) for name in ("created", "size", "uuid", "version")}
            digest = xxhash.xxh3_64_hexdigest(json.dumps(said, sort_keys=True).encode())
            Superblock.of_bytes(json.dumps({**said, "digest": digest}).encode())


@target(mutated([seed("segments", "epoch")]), Damaged, cap=4 * MIB)
def test_epochs(data: bytes) -> None:
    """Who writes."""
    store = MemoryStore()
    store.objects["v/epoch"] = data
    assert Epoch.read(store, "v").number >= 0


def json_or_none(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
