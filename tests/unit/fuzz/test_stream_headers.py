"""Streams that another host sends: the gate passes on what was ordered, and refuses all else."""

from __future__ import annotations

import base64
import contextlib
import io
import zlib
from collections.abc import Iterator

from tests.unit.fuzz.mutation import mutated, seeds
from tests.unit.fuzz.target import KIB, MIB, target
from tests.unit.zfs.gate import real_heads
from tests.unit.zfs.gate.hostile_bytes import contents, header, sub, xdr
from zvault.zfs.gate.check import OrderedSnapshot, StreamCheck, StreamOrder
from zvault.zfs.gate.nvlist import BadNvlist, unpack_nvlist
from zvault.zfs.gate.records import BEGIN, RECORD, BadStream, StreamCutOff, detect_layout
from zvault.zfs.repair.streamed_blocks import pick_streamed_blocks

REAL = [zlib.decompress(base64.b85decode(packed)) for packed in real_heads._PACKED.values()]
MADE = [
    sub("tank/home@s", 7),
    header("tank/home@s", contents("tank/home", {"s": 7})) + sub("tank/home@s", 7),
    header("tank/home@s", contents("tank/home", {"r": 6, "s": 7}), order=">"),
]
STREAMS = mutated([*seeds("stream_headers"), *REAL, *MADE])
ORDERS = (
    StreamOrder("tank/home", 2, 0, (OrderedSnapshot(7, "s"),)),
    StreamOrder(
        "tank/home", 2, 0, (OrderedSnapshot(7, "s"),), package=True, properties=True, may=(1 << 30) - 1
    ),
    StreamOrder(
        "tank/my files", -1, -1, (OrderedSnapshot(1, "small"),), package=True, raw=True, may=(1 << 30) - 1
    ),
)


def records(data: bytes, check: StreamCheck) -> Iterator[int]:
    """Give a stream to a check as the gate does (zvault/zfs/gate/process.py); the bytes of each record."""
    at = 0
    while at < len(data):
        record = data[at : at + RECORD]
        if len(record) < RECORD:
            raise StreamCutOff
        begins, size = check.record(record)
        assert size >= 0
        if at + RECORD + size > len(data):
            raise StreamCutOff
        if begins:
            check.begin(record, data[at + RECORD : at + RECORD + size])
        yield RECORD + size
        at += RECORD + size
    check.ended()


@target(STREAMS, BadStream, cap=8 * MIB)
def test_streams(data: bytes) -> None:
    """Every record is looked at; what passes to its end is of the dataset that was ordered."""
    for order in ORDERS:
        check = StreamCheck(order)
        with contextlib.suppress(BadStream):
            for _ in records(data, check):
                pass
            assert order.dataset.encode() in data
    if len(data) >= RECORD:
        shape = detect_layout(data[:RECORD])
        if shape.kind(data) == BEGIN:
            assert shape.begin(data[:RECORD]).name


@target(STREAMS, BadStream, cap=8 * MIB)
def test_blocks_that_repair(data: bytes) -> None:
    """The blocks that a repair takes out of a stream."""
    for block in pick_streamed_blocks(io.BytesIO(data), {(3, 0), (2, 0), (2, 131072)}):
        assert len(block.data) <= 16 * MIB


LISTS = [xdr(contents("tank/home", {"s": 7}, props={"a": "b", "c": 1, "d": {"e": True}})), xdr({})]


@target(mutated([*LISTS, bytes([0, 1]) + bytes(16)]), BadNvlist, cap=256 * KIB)
def test_lists(data: bytes) -> None:
    """Name-value lists, XDR and native."""
    unpack_nvlist(data)
