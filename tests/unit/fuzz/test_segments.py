"""Segments, their footers and the first object of a block store, as a bucket gives them back."""

from __future__ import annotations

import json

import xxhash

from tests.unit.fuzz.mutation import mutated, seed
from tests.unit.fuzz.target import MIB, target
from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore.format import (
    FOOTER_SIZE,
    SEGMENT_TABLE,
    SLOT_SIZE,
    ObjectDamaged,
    Superblock,
    decode_segment,
    list_bad_slots,
    make_segment_key,
)
from zvault.blockstore.recovery import WriterEpoch

STORE = Superblock.of_bytes(seed("segments", "superblock"))
KEY = make_segment_key("v", 1, 1)
SEGMENT = seed("segments", "segment-0000000001-00000001")
TAIL = SEGMENT[3 * SLOT_SIZE :]


def read(data: bytes, size: int) -> None:
    found = decode_segment(data, size, STORE.identity, KEY, STORE.blocks)
    if found is not None and len(data) == size == found.size:
        for block, count, slot in found.table.tolist():
            assert 0 < count <= STORE.blocks - block
            assert slot == 0xFFFF or slot + count <= found.slots
        list_bad_slots(data, found)


def resealed(data: bytes) -> bytes:
    """With the checksums of the table and the footer that it has to have."""
    table, footer = data[:-FOOTER_SIZE], data[-FOOTER_SIZE:]
    digest = xxhash.xxh3_64_digest(table[-(len(table) % SLOT_SIZE) :] if len(table) >= SLOT_SIZE else table)
    footer = footer[:-16] + digest[::-1] + footer[-8:]
    return table + footer[:-8] + xxhash.xxh3_64_digest(footer[:-8])


def test_the_seed_is_a_segment() -> None:
    found = decode_segment(SEGMENT, len(SEGMENT), STORE.identity, KEY, STORE.blocks)
    assert found is not None
    assert list_bad_slots(SEGMENT, found) == []
    assert len(TAIL) == len(found.table) * SEGMENT_TABLE.itemsize + FOOTER_SIZE
    assert resealed(SEGMENT) == SEGMENT


@target(mutated([SEGMENT, TAIL]), ObjectDamaged, cap=4 * MIB)
def test_segments(data: bytes) -> None:
    """As they come."""
    read(data, len(data))
    read(data, len(SEGMENT))


@target(mutated([SEGMENT, TAIL]), ObjectDamaged, cap=4 * MIB)
def test_footers(data: bytes) -> None:
    """Sealed as by a writer: what they say has to be possible."""
    if len(data) > FOOTER_SIZE:
        read(resealed(data), len(data))
        read(resealed(data), len(SEGMENT))


@target(mutated([seed("segments", "superblock")]), ObjectDamaged, cap=4 * MIB)
def test_superblocks(data: bytes) -> None:
    """As they come, and with the digest that they have to have."""
    try:
        Superblock.of_bytes(data)
    except ObjectDamaged:
        found = json_or_none(data)
        if isinstance(found, dict):
            said = {name: found.get(name) for name in ("created", "size", "uuid", "version")}
            digest = xxhash.xxh3_64_hexdigest(json.dumps(said, sort_keys=True).encode())
            Superblock.of_bytes(json.dumps({**said, "digest": digest}).encode())


@target(mutated([seed("segments", "epoch")]), ObjectDamaged, cap=4 * MIB)
def test_epochs(data: bytes) -> None:
    """Who writes."""
    store = MemoryStore()
    store.objects["v/epoch"] = data
    assert WriterEpoch.read(store, "v").number >= 0


def json_or_none(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
