"""What a resume token says, decoded from the token itself: ``VERSION-CHECKSUM-LENGTH-ZLIB`` in hexadecimal. Pure.

As libzfs does it (zfs_send_resume_token_to_nvlist), and stricter. What ``zfs send -nvt`` prints of a token is no proof:
it comes from another host, and a name within the token can hold lines that look like fields of it.

core/replication/resume_receive.py decides whether a stream is resumed.
"""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass

from zvault.core.name_rules import check_dataset_name
from zvault.core.names import split_snapshot
from zvault.core.replication.stream_flags import SentFlags
from zvault.zfs.gate.nvlist import BadNvlist, Nvlist, unpack_nvlist

MAX_TOKEN = 64 << 10
"""Characters; without redaction a token has some 600."""

MAX_PACKED = 64 << 10
"""Bytes, once it is unpacked."""

_FORM = re.compile(r"1-([0-9a-f]{1,16})-([0-9a-f]{1,16})-([0-9a-f]+)", re.ASCII)

_SNAPNAME = re.compile(r"[A-Za-z0-9\-_.: ]+")
_NUMBERS = frozenset({"fromguid", "object", "offset", "bytes", "toguid"})
_FLAGS = {"largeblockok": "large_blocks", "compressok": "compressed", "embedok": "embedded", "rawok": "raw"}


class BadToken(Exception):
    """This is no resume token that zvault sends by; the text says why not."""


@dataclass(frozen=True, slots=True)
class ResumeToken:
    """The content of a resume token: which snapshot the stream brings (``to_guid``, ``to_name``), after which (0 is
    none), how.

    ``done`` are the bytes of it that the receiver has.
    """

    to_guid: int
    to_name: str
    from_guid: int
    flags: SentFlags
    done: int


def decode_token(token: str) -> ResumeToken:
    """Decode a token. Raises BadToken."""
    form = _FORM.fullmatch(token) if len(token) <= MAX_TOKEN else None
    if form is None or len(form[3]) % 2:
        raise BadToken("it has not the form of one")
    checksum, length, packed = int(form[1], 16), int(form[2], 16), bytes.fromhex(form[3])
    if _fletcher(packed) != checksum:
        raise BadToken("its checksum is not that of what it holds")
    try:
        return _told(unpack_nvlist(_inflated(packed, length)))
    except BadNvlist as error:
        raise BadToken(f"what it holds cannot be read: {error}") from None


def _fletcher(data: bytes) -> int:
    """The first word of Fletcher-4: the sum of the words of 32 bits; what is left at the end is not in it."""
    words: tuple[int, ...] = struct.unpack_from(f"<{len(data) // 4}I", data)
    return sum(words) & (1 << 64) - 1


def _inflated(packed: bytes, length: int) -> bytes:
    if length > MAX_PACKED:
        raise BadToken("it is larger than any that zvault makes")
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(packed, MAX_PACKED)
    except zlib.error:
        raise BadToken("it cannot be unpacked") from None
    if not unpacking.eof or unpacking.unused_data or len(data) != length:
        raise BadToken("it is not of the length that it tells")
    return data


def _told(fields: Nvlist) -> ResumeToken:
    name = fields.pop("toname", None)
    numbers = {key: fields.pop(key) for key in _NUMBERS & fields.keys()}
    flags = {of: fields.pop(key) for key, of in _FLAGS.items() if key in fields}
    if fields:
        raise BadToken(f"it asks for {', '.join(sorted(map(repr, fields)))}, of which zvault sends nothing")
    if any(type(value) is not int for value in numbers.values()) or any(
        value is not True for value in flags.values()
    ):
        raise BadToken("a field of it has another type")
    if not isinstance(name, str) or not _is_snapshot(name):
        raise BadToken("the name in it is not a snapshot's")
    if not numbers.get("toguid"):
        raise BadToken("it tells no snapshot's GUID")
    told = {key: int(value) for key, value in numbers.items()}  # type: ignore[arg-type]
    return ResumeToken(
        told["toguid"],
        name,
        told.get("fromguid", 0),
        SentFlags(**dict.fromkeys(flags, True)),
        told.get("bytes", 0),
    )


def _is_snapshot(name: str) -> bool:
    dataset, snapname = split_snapshot(name)
    try:
        check_dataset_name(dataset)
    except ValueError:
        return False
    return snapname is not None and _SNAPNAME.fullmatch(snapname) is not None
