"""Bytes that somebody else wrote: they are read back or refused, and take no more than their room."""

from __future__ import annotations

import contextlib
import json
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.examples import cases
from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore.attach import attach_store
from zvault.blockstore.format import (
    BLOCK_SIZE,
    FOOTER_SIZE,
    SEGMENT_SLOTS,
    SEGMENT_TABLE,
    SLOT_SIZE,
    ObjectDamaged,
    Segment,
    Superblock,
    decode_segment,
    encode_segment,
    find_key_numbers,
    inflate_bounded,
    list_bad_slots,
    make_segment_key,
)
from zvault.blockstore.known_position import SeenPosition
from zvault.blockstore.log.journal import Journal
from zvault.blockstore.log.journal_format import (
    _FRAME,
    FILE_HEADER_SIZE,
    make_frame_seed,
    pack_frame,
    read_whole_frames,
)
from zvault.blockstore.log_tail import survey_log_tail
from zvault.blockstore.map.map_part import PART_BLOCKS, PART_RUNS, MapPart
from zvault.blockstore.map.read_roots import parse_any_root
from zvault.blockstore.map.root import MAP_REFERENCE, CheckpointRoot, estimate_largest_root
from zvault.blockstore.map.usage import SegmentUsage
from zvault.blockstore.options import EngineOptions
from zvault.blockstore.recovery import WriterEpoch, create_store, read_newest_root, read_superblock
from zvault.core.errors import ZvaultError
from zvault.devices.s3_lease.lease_object import LeaseContent

IDENTITY = bytes(range(16))
KEY = make_segment_key("v", 5, 1)
MIB = 1 << 20
many = settings(max_examples=cases(300), deadline=None, suppress_health_check=list(HealthCheck))

numbers_of_any_kind = st.one_of(
    st.integers(0, 9),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(),
    st.text(max_size=5),
    st.none(),
    st.booleans(),
    st.lists(st.integers(0, 9), max_size=4),
)


def within(most: int, call: Callable[[], object], *errors: type[Exception]) -> None:
    """It takes no more memory than that, and raises nothing but these."""
    tracemalloc.start()
    try:
        with contextlib.suppress(*errors):
            call()
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def segment(table: Any = ((7, 2, 0), (100, 40, 0xFFFF)), slots: int = 2) -> bytes:
    it = Segment(5, 1, 9, slots, np.array([tuple(row) for row in table], SEGMENT_TABLE), 4, 1)
    return bytes(encode_segment(bytearray(it.size), it, IDENTITY))


def resealed(data: bytes) -> bytes:
    """With a footer whose checksum is right."""
    return data[:-8] + xxhash.xxh3_64_digest(data[-FOOTER_SIZE:-8]) if len(data) >= FOOTER_SIZE else data


@many
@given(st.data())
def test_segments(data: st.DataObject) -> None:
    whole_one = bytearray(segment())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(2 * SLOT_SIZE, len(whole_one) - 1))
        whole_one[at] = data.draw(st.integers(0, 255))
    mangled = bytes(whole_one)[data.draw(st.sampled_from([0, 0, 0, 1, SLOT_SIZE])) :]
    if data.draw(st.booleans()):
        mangled = resealed(mangled)

    def read() -> None:
        found = decode_segment(mangled, len(mangled), IDENTITY, KEY)
        if found is not None and len(mangled) == found.size:
            list_bad_slots(mangled, found)

    within(4 * MIB, read, ObjectDamaged)


rows = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 2 * PART_BLOCKS), st.integers(0, (1 << 64) - 1)),
        st.one_of(st.integers(0, 50), st.integers(0, (1 << 32) - 1)),
        st.one_of(st.integers(0, 50), st.just(0xFFFF), st.integers(0, (1 << 32) - 1)),
    ),
    max_size=6,
)


@many
@given(rows, st.integers(0, 60))
def test_tables_of_segments_that_count(table: list[tuple[int, int, int]], slots: int) -> None:
    """Sealed as by a writer: what they say must be possible, or else nothing is taken from them."""
    it = Segment(5, 1, 9, slots, np.array(table, SEGMENT_TABLE), 4, 1)
    data = bytearray(it.size)
    with contextlib.suppress(ValueError):
        encode_segment(data, Segment(5, 1, 9, slots, np.zeros(0, SEGMENT_TABLE), 4, 1), IDENTITY)
    sealed = it.table.tobytes()
    footer = struct.pack(
        "<8s16sQQQQQIIQ",
        b"zvsegm02", IDENTITY, 1, 5, 9, 4, 1, slots, len(table), xxhash.xxh3_64_intdigest(sealed),
    )  # fmt: skip
    body = bytes(slots * SLOT_SIZE) + sealed + footer + xxhash.xxh3_64_digest(footer)
    blocks = 2 * PART_BLOCKS
    try:
        found = decode_segment(body, len(body), IDENTITY, KEY, blocks)
    except ObjectDamaged:
        return
    assert found is not None
    for block, count, slot in found.table.tolist():
        assert 0 < count <= blocks - block
        assert slot == 0xFFFF or slot + count <= slots <= SEGMENT_SLOTS


def test_a_segment_of_nothing_but_zeroes_or_of_no_length() -> None:
    for data in (b"", b"x", bytes(FOOTER_SIZE), bytes(5000)):
        with pytest.raises(ObjectDamaged):
            decode_segment(data, len(data), IDENTITY, KEY)


def root_bytes(head: dict[str, Any], tables: bytes) -> bytes:
    words = json.dumps(head).encode()
    body = struct.pack("<8sII", b"zvroot01", len(words), len(tables)) + words + tables
    return body + xxhash.xxh3_128_digest(body)


def a_root() -> tuple[dict[str, Any], np.ndarray]:
    head = {
        "version": 1, "uuid": IDENTITY.hex(), "number": 3, "epoch": 2, "applied": 9, "frame": 9, "map_number": 1,
        "reigns": [[1, 1, 0], [5, 2, 4]], "maps": [[1, 2, 100]], "counts": {"put": 3}, "tables": [2, 1],
    }  # fmt: skip
    return head, np.zeros(3, MAP_REFERENCE)


@many
@given(st.data())
def test_roots(data: st.DataObject) -> None:
    head, refs = a_root()
    for name in data.draw(st.lists(st.sampled_from(sorted(head)), max_size=3)):
        if data.draw(st.booleans()):
            head[name] = data.draw(numbers_of_any_kind)
        else:
            head.pop(name, None)
    if data.draw(st.booleans()):
        refs["length"] = data.draw(st.integers(0, (1 << 32) - 1))
    tables = zlib.compress(refs.tobytes()[: data.draw(st.sampled_from([72, 72, 71, 0]))])
    body = root_bytes(head, tables)
    if data.draw(st.booleans()):
        body = body[: data.draw(st.integers(0, len(body)))]

    def read() -> None:
        CheckpointRoot.of_bytes(body, IDENTITY, "v/checkpoints/00000002-0000000003")
        parse_any_root(body, "v/checkpoints/00000002-0000000003")

    within(4 * MIB, read, ObjectDamaged)


def test_a_sound_root_is_read() -> None:
    head, refs = a_root()
    found = CheckpointRoot.of_bytes(root_bytes(head, zlib.compress(refs.tobytes())), IDENTITY, "v")
    assert (found.epoch, found.applied, found.maps) == (2, 9, {(1, 2): 100})


@pytest.mark.parametrize(
    "tables", [[1 << 23, 4], [2, 1], [2, 1 << 31], [1 << 40, 0], [0, 0], [-1, 4], [2.0, 1]]
)
def test_a_root_that_becomes_larger_than_it_says(tables: list[int]) -> None:
    head, _ = a_root()
    bomb = zlib.compress(bytes(64 * MIB), 9)
    body = root_bytes({**head, "tables": tables}, bomb)
    most = 48 * MIB if tables[0] == 1 << 23 else 4 * MIB
    if tables[0] == 1 << 23:
        most = 450 * MIB  # as a device of 1 PiB has
    with pytest.raises(ObjectDamaged):
        CheckpointRoot.of_bytes(body, IDENTITY, "v")
    within(most, lambda: CheckpointRoot.of_bytes(body, IDENTITY, "v"), ObjectDamaged)


@pytest.mark.parametrize(
    "size", [0, 1, PART_BLOCKS * PART_RUNS.itemsize, PART_BLOCKS * PART_RUNS.itemsize + 10, 64 * MIB]
)
def test_pages_that_become_large(size: int) -> None:
    """300 KB had become 625 MiB."""
    bomb = zlib.compress(bytes(size), 9)
    for read in (MapPart.of_bytes, lambda data: SegmentUsage().load_page(0, data)):
        within(8 * MIB, lambda read=read: read(bomb), ValueError, zlib.error)
    if size == 64 * MIB:
        with pytest.raises(ValueError, match="more than"):
            MapPart.of_bytes(bomb)
        with pytest.raises(ValueError, match="more than"):
            SegmentUsage().load_page(0, bomb)


@many
@given(st.binary(max_size=200), st.integers(0, 300))
def test_what_is_inflated_is_what_was_deflated_or_refused(data: bytes, most: int) -> None:
    packed = zlib.compress(data)
    if len(data) <= most:
        assert inflate_bounded(packed, most) == data
        for bad in (packed[:-1], packed + b"x"):
            with pytest.raises((ValueError, zlib.error)):
                inflate_bounded(bad, most)
    else:
        with pytest.raises(ValueError, match="more than"):
            inflate_bounded(packed, most)
    with contextlib.suppress(ValueError, zlib.error):
        assert len(inflate_bounded(data, most)) <= most


@many
@given(
    st.lists(
        st.tuples(
            st.integers(0, PART_BLOCKS - 1),
            st.integers(0, 65535),
            st.integers(0, (1 << 32) - 1),
            st.integers(0, 65535),
        ),
        max_size=8,
    )
)
def test_parts_of_the_map(runs: list[tuple[int, int, int, int]]) -> None:
    packed = MapPart(np.array(runs, PART_RUNS)).as_bytes()
    try:
        found = MapPart.of_bytes(packed)
    except ValueError:
        return
    found.dense()
    at = 0
    for low, count, _, slot in found.find(0, PART_BLOCKS):
        assert low == at
        assert slot + count <= 0xFFFF + 1
        at += count
    assert at == PART_BLOCKS


@many
@given(st.binary(max_size=300), st.dictionaries(st.text(max_size=6), numbers_of_any_kind, max_size=4))
def test_words(data: bytes, extra: dict[str, Any]) -> None:
    store = MemoryStore()
    said = {"epoch": 1, "owner": "a", "since": 1.0, "version": 1, "uuid": "00", "size": 4096, "created": 0.0}
    said |= {"digest": "", "host": "h", "bound": 3, "held": True, "address": "", "machine": "", "boot": ""}
    deep = b"[" * 100_000
    for text in (data, json.dumps(said | extra).encode(), json.dumps(extra).encode(), b"[]", b"7", deep):
        store.objects = {"v/store": text, "v/epoch": text}
        for read in (lambda: read_superblock(store, "v"), lambda: WriterEpoch.read(store, "v")):
            with contextlib.suppress(ObjectDamaged):
                read()
        with contextlib.suppress(ValueError, TypeError):
            LeaseContent.of_bytes(text).owner()
        with contextlib.suppress(ObjectDamaged):
            parse_any_root(text, "v")
    assert find_key_numbers(data.decode("latin-1")) >= (-1, -1)


@pytest.mark.parametrize("name", ["epoch", "owner", "since", "root", "bound", "held", "host", "boot"])
@pytest.mark.parametrize("value", [None, -1, 1e400, 1 << 70, "x", [], {}, [1], [1, "x"], True], ids=str)
def test_each_word_of_the_epoch_and_the_lease(name: str, value: object) -> None:
    said = {"epoch": 1, "owner": "a", "since": 1.0, "root": [0, 0]}
    store = MemoryStore()
    store.objects["v/epoch"] = json.dumps({**said, name: value}).encode()
    with contextlib.suppress(ObjectDamaged):
        assert WriterEpoch.read(store, "v").number >= 0
    lease = {"host": "h", "address": "", "machine": "", "boot": "", "since": 1.0, "bound": 3.0, "held": True}
    with contextlib.suppress(ValueError, TypeError):
        found = LeaseContent.of_bytes(json.dumps({**lease, name: value}).encode())
        assert found.owner()
        assert found.bound + 1 > 0


def test_a_superblock_of_an_impossible_size() -> None:
    for size in (0, -4096, 5, 1 << 60):
        with pytest.raises(ObjectDamaged):
            Superblock.of_bytes(Superblock(1, IDENTITY.hex(), size, 0.0).as_bytes())


@many
@given(st.data())
def test_journal_frames(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("j") / "000000000001.journal"
    seed = make_frame_seed(IDENTITY, 1)
    frames = [pack_frame((number, number, 1), 0, bytes([number]) * BLOCK_SIZE, seed) for number in (1, 2, 3)]
    body = bytearray(bytes(FILE_HEADER_SIZE) + b"".join(bytes(piece) for frame in frames for piece in frame))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + 8] = data.draw(st.sampled_from([b"\xff" * 8, bytes(8), b"zvFR\x01\0\0\0", _FRAME.pack(
            b"zvFR", 1, 9, 9, (1 << 63), 0)]))  # fmt: skip
    path.write_bytes(bytes(body[: data.draw(st.integers(0, len(body)))]))

    def read() -> None:
        assert all(frame.number in (1, 2, 3) for frame, _ in read_whole_frames(path, 1, seed))
        with contextlib.suppress(ZvaultError):
            Journal(path.parent, IDENTITY, capacity=MIB, durable=True).close()

    within(8 * MIB, read)


def test_a_frame_beyond_the_device_is_damage(tmp_path: Path) -> None:
    store = MemoryStore()
    create_store(store, "v", PART_BLOCKS * BLOCK_SIZE)
    options = EngineOptions(tmp_path / "journal", uploads=0)
    engine = attach_store(store, "v", options, "test")
    engine.journal.append(engine.log.frame + 1, 5, 1 << 60, None)
    engine.abandon()
    with pytest.raises(ObjectDamaged, match="beyond the end"):
        attach_store(store, "v", options, "test")


@many
@given(st.binary(max_size=128))
def test_positions(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("p")
    (folder / IDENTITY.hex()).write_bytes(data)
    seen = SeenPosition(folder, IDENTITY)
    assert seen.known is None
    seen.close()


def test_objects_that_never_end_are_not_read_to_their_end(tmp_path: Path) -> None:
    store = MemoryStore()
    create_store(store, "v", PART_BLOCKS * BLOCK_SIZE)
    attach_store(store, "v", EngineOptions(tmp_path / "journal", uploads=0), "test").close()
    what = read_superblock(store, "v")
    sound = dict(store.objects)
    large = bytes(estimate_largest_root(what.blocks) + 1)
    for key in ("v/store", "v/epoch", max(key for key in sound if "/checkpoints/" in key)):
        store.objects = {**sound, key: large}
        with pytest.raises(ObjectDamaged):
            attach_store(store, "v", EngineOptions(tmp_path / "journal", uploads=0), "test")
    store.objects = {**sound, make_segment_key("v", 1, 1): bytes(20 * MIB)}
    root = read_newest_root(store, "v", what)
    assert survey_log_tail(store, "v", root, None).trouble is not None
