"""The blocks that a stream brings, for the search for those that are damaged on a vault."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from zvault.zfs.gate.records import END, RECORD, WRITE, BadStream, StreamCutOff, detect_layout

__all__ = ["BadStream", "StreamedBlock", "pick_streamed_blocks"]

SKIP_SIZE = 1 << 20
"""Bytes that are skipped at a time."""


@dataclass(frozen=True, slots=True)
class StreamedBlock:
    """A block that a stream brings: ``offset`` in its object and ``logical`` size in bytes; ``data`` as it is sent."""

    number: int
    offset: int
    logical: int
    data: bytes


def pick_streamed_blocks(file: BinaryIO, wanted: set[tuple[int, int]]) -> Iterator[StreamedBlock]:
    """The blocks of a stream at these places, given as object and offset in it. Raises BadStream."""
    record = _exactly(file, RECORD)
    shape = detect_layout(record)
    while (kind := shape.kind(record)) != END:
        length = shape.payload(record)
        if kind == WRITE:
            number, offset, logical = shape.write(record)
            if (number, offset) in wanted:
                yield StreamedBlock(number, offset, logical, _exactly(file, length))
                length = 0
        _skip(file, length)
        record = _exactly(file, RECORD)


def _exactly(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise StreamCutOff
    return data


def _skip(file: BinaryIO, size: int) -> None:
    while size:
        size -= len(_exactly(file, min(size, SKIP_SIZE)))
