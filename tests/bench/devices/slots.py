"""A model of storage behind a network, for nbdkit's Python plugin: a price for each request, so many at a time.

A request takes ``latency`` seconds plus its bytes at ``rate`` bytes a second, a flush one latency, each in the first of
``slots`` that is free; they are taken in meanwhile, as by any server. So an image on erasure-coded disks is few with a
long latency, an object store many with a longer one. What is written is kept in ``file``. A block device is used past
the page cache: filling that took so much of a guest's one processor that it, and not the model, was what was measured.

    nbdkit -t 64 python slots.py file=PATH size=BYTES slots=4 latency=0.035 rate=60e6
"""

from __future__ import annotations

import heapq
import math
import mmap
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import nbdkit

API_VERSION = 2

LARGEST = 64 << 20
"""Bytes of a request: nbdkit refuses more."""

_set: dict[str, str] = {}
_free: list[float] = []
"""When each slot has done what it was given, by time.monotonic()."""
_lock = threading.Lock()
_storage = -1
_log: TextIO | None = None
_unused: list[mmap.mmap] = []
"""Buffers of whole pages, as what goes past the page cache needs them."""


def config(key: str, value: str) -> None:
    """One parameter; the first five are needed."""
    _set[key] = value


def config_complete() -> None:
    """See that nothing is missing."""
    if missing := {"file", "size", "slots", "latency", "rate"} - set(_set):
        raise ValueError(f"parameters missing: {', '.join(sorted(missing))}")


def get_ready() -> None:
    """Open the file, before nbdkit goes to the background."""
    global _storage, _log  # noqa: PLW0603 - nbdkit has no other place for them
    if "log" in _set:
        _log = Path(_set["log"]).open("a", encoding="ascii", buffering=1)  # noqa: SIM115 - until the server ends
    _free.extend([0.0] * int(_set["slots"]))
    path = Path(_set["file"])
    if path.is_block_device():
        _storage = os.open(path, os.O_RDWR | os.O_DIRECT)
    else:
        _storage = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(_storage, int(_set["size"]))


def thread_model() -> int:
    """Requests side by side."""
    return int(nbdkit.THREAD_MODEL_PARALLEL)


def open(readonly: bool) -> int:
    """Connections have nothing of their own."""
    return 1


def can_multi_conn(_: int) -> bool:
    """A flush on one connection is one for all."""
    return True


def get_size(_: int) -> int:
    """Bytes."""
    return int(_set["size"])


def _given(offset: int, count: int) -> tuple[float, float]:
    """When a request begins and when it is done, with the slots taken until then; ``_lock`` is held."""
    now, begun, done = time.monotonic(), math.inf, 0.0
    for place, size in _pieces(offset, count):
        start = max(now, _free[0])
        end = start + float(_set["latency"]) + _touched(place, size) / float(_set["rate"])
        heapq.heapreplace(_free, end)
        begun, done = min(begun, start), max(done, end)
    return begun, done


def _pieces(offset: int, count: int) -> Iterator[tuple[int, int]]:
    """Offset and bytes of what the storage works on at a time; a flush is one of no bytes."""
    largest = int(_set.get("largest", LARGEST))
    for start in range(0, max(count, 1), largest):
        yield offset + start, min(largest, count - start)


def _touched(offset: int, count: int) -> int:
    """Bytes of the units that these bytes are in."""
    unit = int(_set.get("unit", 1))
    return (-(-(offset + count) // unit) - offset // unit) * unit


@contextmanager
def _taking(kind: str, offset: int, count: int) -> Iterator[memoryview]:
    """A request of so many bytes: room for them, and its end when the first slot that is free has done it."""
    arrived = time.monotonic()
    with _lock:
        begun, done = _given(offset, count)
    buffer = _unused.pop() if _unused else mmap.mmap(-1, LARGEST)
    with memoryview(buffer) as view:
        yield view[:count]
    _unused.append(buffer)
    time.sleep(max(0.0, done - time.monotonic()))
    if _log is not None:
        print(kind, offset, count, arrived, begun, done, time.monotonic(), file=_log)


def pread(_: int, buffer: bytearray, offset: int, flags: int) -> None:
    """Read."""
    with _taking("read", offset, len(buffer)) as view:
        os.preadv(_storage, [view], offset)
        buffer[:] = view


def pwrite(_: int, buffer: bytes, offset: int, flags: int) -> None:
    """Write."""
    with _taking("write", offset, len(buffer)) as view:
        view[:] = buffer
        os.pwritev(_storage, [view], offset)


def flush(_: int, flags: int) -> None:
    """What is acknowledged is kept; a real one would wait for its journal."""
    with _taking("flush", 0, 0):
        pass


def cleanup() -> None:
    """Leave nothing of the log unwritten."""
    if _log is not None:
        _log.close()
