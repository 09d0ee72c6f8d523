"""A checkpoint's root: where every part of the map is, and from where on the log has to be read."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import xxhash

from zvault.blockstore.format import (
    FORMAT_VERSION,
    MAX_BLOCKS,
    MAX_NUMBER,
    PARSE_ERRORS,
    ObjectDamaged,
    inflate_bounded,
)
from zvault.blockstore.kept_moments import KeptMoment
from zvault.blockstore.map.map_part import LARGEST_PART, PART_BLOCKS
from zvault.blockstore.map.usage import LARGEST_PAGE, PAGE_SEGMENTS
from zvault.core.policy.object_lock import LockState
from zvault.object_store.interface import describe_loss

MAP_REFERENCE = np.dtype(
    [("map", "<u4"), ("epoch", "<u4"), ("offset", "<u4"), ("length", "<u4"), ("digest", "<u8")]
)
"""Where a part or a page is: the object of the map by its numbers (0: nowhere, it is blank), and the bytes in it."""

_MAGIC = b"zvroot01"
_HEAD = struct.Struct("<8sII")
_WORDS = 16 << 20
"""Bytes that its JSON has at most."""


@dataclass(frozen=True, slots=True)
class EpochStart:
    """From the segment ``first`` on the log is that of ``epoch``; ``frame`` is the last of its frames before that."""

    first: int
    epoch: int
    frame: int


@dataclass(slots=True)
class CheckpointRoot:
    """The root of a checkpoint. Segments up to ``applied`` are in the map; those after it are read from the log.

    ``frame`` is the last frame of the log up to ``applied``. ``maps`` has the size in bytes of each object that a
    reference points to, by its two numbers; ``counts`` what the store was asked for so far. ``taken`` is when, by its
    writer's clock, in seconds since the epoch; 0: not known. ``past`` has the moments that are kept, the oldest first.
    ``past_maps``: objects of the map that only they need, with their sizes, and the first root that did not need them.
    ``lock``: how far all of that is locked in the store.
    """

    identity: bytes
    number: int
    epoch: int
    applied: int
    frame: int
    map_number: int
    reigns: list[EpochStart]
    parts: np.ndarray
    pages: np.ndarray
    maps: dict[tuple[int, int], int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    taken: float = 0.0
    past: list[KeptMoment] = field(default_factory=list)
    past_maps: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    lock: LockState = field(default_factory=LockState)

    @property
    def moment(self) -> KeptMoment:
        """The moment of which it tells."""
        return KeptMoment(self.epoch, self.number, self.taken, self.applied, self.map_number)

    @classmethod
    def blank(cls, identity: bytes, blocks: int) -> CheckpointRoot:
        """Return the root of a store that nobody wrote to yet."""
        parts = np.zeros(-(-blocks // PART_BLOCKS), MAP_REFERENCE)
        return cls(identity, 0, 0, 0, 0, 0, [], parts, np.zeros(0, MAP_REFERENCE))

    def copy(self) -> CheckpointRoot:
        """One that can be changed."""
        parts, pages = self.parts.copy(), self.pages.copy()
        lists: dict[str, Any] = {
            "maps": dict(self.maps),
            "counts": dict(self.counts),
            "reigns": list(self.reigns),
            "past": list(self.past),
            "past_maps": dict(self.past_maps),
        }
        return replace(self, parts=parts, pages=pages, **lists)

    def epoch_of(self, sequence: int) -> int:
        """Return the epoch whose segment of this number belongs to the log."""
        for reign in reversed(self.reigns):
            if reign.first <= sequence:
                return reign.epoch
        return self.epoch

    def as_bytes(self) -> bytes:
        """As the object holds it."""
        head = {
            "version": FORMAT_VERSION,
            "uuid": self.identity.hex(),
            "number": self.number,
            "epoch": self.epoch,
            "applied": self.applied,
            "frame": self.frame,
            "map_number": self.map_number,
            "reigns": [[one.first, one.epoch, one.frame] for one in self.reigns],
            "maps": [[number, epoch, size] for (number, epoch), size in self.maps.items()],
            "counts": self.counts,
            "tables": [len(self.parts), len(self.pages)],
            "taken": self.taken,
            "past": [[one.epoch, one.number, one.taken, one.applied, one.map_number] for one in self.past],
            "past_maps": [[*key, *told] for key, told in self.past_maps.items()],
            "lock": [self.lock.mode, self.lock.until, self.lock.begun, self.lock.after, self.lock.seen],
        }
        words = json.dumps(head).encode()
        tables = zlib.compress(self.parts.tobytes() + self.pages.tobytes(), 1)
        body = _HEAD.pack(_MAGIC, len(words), len(tables)) + words + tables
        return body + xxhash.xxh3_128_digest(body)

    @classmethod
    def of_bytes(cls, data: bytes, identity: bytes, key: str) -> CheckpointRoot:
        """Read back. Raises ObjectDamaged."""
        try:
            return cls._of_bytes(data, identity)
        except PARSE_ERRORS as error:
            raise ObjectDamaged(
                f"the checkpoint {key} is damaged",
                describe_loss(data) or str(error),
                "run 'zvaultctl blockstore check'",
            ) from error

    @classmethod
    def _of_bytes(cls, data: bytes, identity: bytes) -> CheckpointRoot:
        body, digest = data[:-16], data[-16:]
        if xxhash.xxh3_128_digest(body) != digest:
            raise ValueError("it does not match its checksum")
        magic, words, _ = _HEAD.unpack_from(body)
        head = json.loads(body[_HEAD.size : _HEAD.size + words])
        if magic != _MAGIC or head["version"] != FORMAT_VERSION or bytes.fromhex(head["uuid"]) != identity:
            raise ValueError("it belongs elsewhere")
        applied = _number(head["applied"])
        parts, pages = (_number(one) for one in head["tables"])
        if not 0 < parts <= MAX_PARTS or pages > _most_pages(applied):
            raise ValueError(f"there can be no {parts} parts and {pages} pages")
        tables = inflate_bounded(body[_HEAD.size + words :], (parts + pages) * MAP_REFERENCE.itemsize)
        refs = np.frombuffer(tables, MAP_REFERENCE, parts + pages).copy()
        self = cls(
            identity=identity,
            number=_number(head["number"]),
            epoch=_number(head["epoch"]),
            applied=applied,
            frame=_number(head["frame"], 1 << 62),
            map_number=_number(head["map_number"]),
            reigns=[
                EpochStart(_number(first), _number(epoch), _number(frame, 1 << 62))
                for first, epoch, frame in head["reigns"]
            ],
            parts=refs[:parts],
            pages=refs[parts:],
            maps={
                (_number(number), _number(epoch)): _number(size, 1 << 62)
                for number, epoch, size in head["maps"]
            },
            counts={str(kind): _number(count, 1 << 62) for kind, count in head["counts"].items()},
            # A zvault before 0.1.0 told of none of these.
            taken=_time(head.get("taken", 0.0)),
            past=[
                KeptMoment(_number(epoch), _number(number), _time(taken), _number(last), _number(maps))
                for epoch, number, taken, last, maps in head.get("past", [])
            ],
            past_maps={
                (_number(number), _number(epoch)): (_number(size, 1 << 62), _number(died))
                for number, epoch, size, died in head.get("past_maps", [])
            },
            lock=_lock(head.get("lock")),
        )
        self._see_that_it_can_be()
        return self

    def _see_that_it_can_be(self) -> None:
        """Raises ValueError for what no writer puts."""
        if (self.parts["length"] > LARGEST_PART).any() or (self.pages["length"] > LARGEST_PAGE).any():
            raise ValueError("a part of the map, or a page of the usage, is larger than any can be")
        firsts = [reign.first for reign in self.reigns]
        epochs = [reign.epoch for reign in self.reigns]
        if firsts != sorted(firsts) or epochs != sorted(epochs):
            raise ValueError("its writers did not come one after another")
        order = [(one.epoch, one.number) for one in self.past]
        if order != sorted(set(order)) or (order and order[-1] >= (self.epoch, self.number)):
            raise ValueError("the moments that it keeps did not come one after another, and before it")


MAX_PARTS = MAX_BLOCKS // PART_BLOCKS


def estimate_largest_root(blocks: int = MAX_BLOCKS) -> int:
    """Bytes of a root of a device with so many blocks, at most: its references, and its words."""
    return 32 * (-(-blocks // PART_BLOCKS) + _most_pages(MAX_NUMBER)) + _WORDS


def _most_pages(applied: int) -> int:
    """How many pages of the usage there may be: it grows by more than is needed."""
    return 2 * (applied // PAGE_SEGMENTS + 2)


def _lock(value: object) -> LockState:
    """How far it is locked; not known where there is nothing of that. Raises ValueError."""
    if value is None:
        return LockState()
    if not isinstance(value, list) or len(value) != 5 or not isinstance(value[3], str):
        raise ValueError("how far its objects are locked cannot be read")
    mode, until, begun, after, seen = value
    if mode not in ("", "governance", "compliance"):
        raise ValueError(f"{str(mode)[:40]} is no mode of a lock")
    return LockState(mode, _time(until), _time(begun), after, _time(seen))


def _time(value: object) -> float:
    """Seconds since the epoch, before the year 10000. Raises ValueError."""
    if not isinstance(value, int | float) or not 0 <= value < 253_402_300_800:
        raise ValueError(f"{str(value)[:40]} is no time that can be there")
    return float(value)


def _number(value: object, most: int = MAX_NUMBER) -> int:
    """A whole number from 0 on. Raises ValueError."""
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{str(value)[:40]} is no number that can be there")
    return value
