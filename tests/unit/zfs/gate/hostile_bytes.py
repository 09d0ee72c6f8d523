"""Streams, name-value lists and resume tokens, made by hand: what OpenZFS writes, and what it never would."""

from __future__ import annotations

import struct
import zlib
from typing import Any

from zvault.zfs.gate.records import BEGIN, END, MAGIC, PACKAGE, RAW, SA_SPILL, SUBSTREAM, WRITE

HARMLESS = SA_SPILL
Fields = dict[str, Any]
"""True is a flag without a value; then numbers, texts and lists."""


def xdr(fields: Fields) -> bytes:
    """A list as it stands in the header of a package."""
    return bytes([1, 1, 0, 0]) + _xdr_list(fields)


def _xdr_list(fields: Fields) -> bytes:
    return struct.pack(">II", 0, 1) + b"".join(_xdr_pair(*one) for one in fields.items()) + bytes(8)


def _xdr_text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">I", len(raw)) + raw + bytes(-len(raw) % 4)


def _xdr_pair(name: str, value: Any) -> bytes:
    if value is True:
        kind, count, body = 1, 0, b""
    elif isinstance(value, int):
        kind, count, body = 8, 1, struct.pack(">Q", value)
    elif isinstance(value, str):
        kind, count, body = 9, 1, _xdr_text(value)
    else:
        kind, count, body = 19, 1, _xdr_list(value)
    pair = _xdr_text(name) + struct.pack(">II", kind, count) + body
    return struct.pack(">II", len(pair) + 8, 64) + pair


def native(fields: Fields) -> bytes:
    """A flat list as the kernel packs it for a resume token."""
    packed = bytes([0, 1, 0, 0]) + struct.pack("<iI", 0, 1)
    for name, value in fields.items():
        if value is True:
            kind, count, body = 1, 0, b""
        elif isinstance(value, int):
            kind, count, body = 8, 1, struct.pack("<Q", value)
        else:
            kind, count, body = 9, 1, value.encode() + b"\0"
        raw = name.encode() + b"\0"
        pair = struct.pack("<hhii", len(raw), 0, count, kind) + raw
        pair += bytes(-(len(pair) + 4) % 8)
        pair += body + bytes(-len(body) % 8)
        packed += struct.pack("<i", len(pair) + 4) + pair
    return packed + bytes(4)


def token(data: bytes | Fields, *, length: int | None = None, packed: bytes | None = None) -> str:
    """A resume token with a right checksum, of whatever it holds."""
    plain = data if isinstance(data, bytes) else native(data)
    packed = zlib.compress(plain) if packed is None else packed
    words = struct.unpack_from(f"<{len(packed) // 4}I", packed)
    size = len(plain) if length is None else length
    return f"1-{sum(words) & (1 << 64) - 1:x}-{size:x}-{packed.hex()}"


def record(kind: int, body: bytes = b"", payload: bytes = b"", *, order: str = "<") -> bytes:
    """One record with what comes after it."""
    length = len(payload) if kind == BEGIN else 0
    return struct.pack(f"{order}II", kind, length) + body.ljust(304, b"\0") + payload


def begin(
    name: str,
    to: int,
    base: int = 0,
    *,
    header: int = SUBSTREAM,
    features: int = HARMLESS,
    kind: int = 2,
    flags: int = 12,
    payload: bytes = b"",
    order: str = "<",
) -> bytes:
    """A BEGIN."""
    body = struct.pack(f"{order}QQQIIQQ", MAGIC, features << 2 | header, 1, kind, flags, to, base)
    return record(BEGIN, body + name.encode(), payload, order=order)


def write(size: int = 512, *, order: str = "<") -> bytes:
    """A WRITE of a block that looks like a BEGIN inside."""
    body = struct.pack(f"{order}QI4xQQQ", 3, 19, 0, size, 1)
    return record(WRITE, body, begin("evil@s", 666).ljust(size, b"\1")[:size], order=order)


def sub(name: str, to: int, base: int = 0, *, order: str = "<", **more: Any) -> bytes:
    """One snapshot's stream."""
    return begin(name, to, base, order=order, **more) + write(order=order) + record(END, order=order)


def header(name: str, fields: Fields | None, **more: Any) -> bytes:
    """The beginning of a package."""
    payload = b"" if fields is None else xdr(fields)
    return begin(name, 0, header=PACKAGE, features=0, kind=0, flags=0, payload=payload, **more) + record(
        END, order=more.get("order", "<")
    )


def contents(dataset: str, snapshots: dict[str, int], **more: Any) -> Fields:
    """The header's list of a package of one dataset."""
    of_it = {"name": dataset, "parentfromsnap": 0, "props": {}, "snaps": snapshots, "snapprops": {}, **more}
    return {"tosnap": "s", "not_recursive": True, "fss": {"0x1": of_it}}


END_OF_PACKAGE = record(END)
RAW_FEATURES = HARMLESS | RAW
