"""A model of storage behind a network, for nbdkit's Python plugin: a price for each request, so many at a time.

A request takes ``latency`` seconds plus its bytes at ``rate`` bytes a second, a flush one latency, each in the first of
``slots`` that is free; they are taken in meanwhile, as by any server. So an image on erasure-coded disks is few with a
long latency, an object store many with a longer one. What is written is kept in ``file``. A block device is used past
the page cache: filling that took so much of a guest's one processor that it, and not the model, was what was measured.

    nbdkit -t 64 python slots.py file=PATH size=BYTES slots=4 latency=0.035 rate=60e6
"""

from __future__ import annotations

import heapq
import mmap
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbdkit

API_VERSION = 2

LARGEST = 64 << 20
"""Bytes of a request: nbdkit refuses more."""

_set: dict[str, str] = {}
_free: list[float] = []
"""When each slot has done what it was given, by time.monotonic()."""
_lock = threading.Lock()
_storage = -1
_unused: list[mmap.mmap] = []
"""Buffers of whole pages, as what goes past the page cache needs them."""


def config(key: str, value: str) -> None:
    """One parameter; all are needed."""
    _set[key] = value


def config_complete() -> None:
    """See that nothing is missing."""
    if missing := {"file", "size", "slots", "latency", "rate"} - set(_set):
        raise ValueError(f"parameters missing: {', '.join(sorted(missing))}")


def get_ready() -> None:
    """Open the file, before nbdkit goes to the background."""
    global _storage  # noqa: PLW0603 - nbdkit has no other place for it
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


@contextmanager
def _taking(count: int) -> Iterator[memoryview]:
    """A request of so many bytes: room for them, and its end when the first slot that is free has done it."""
    with _lock:
        done = max(time.monotonic(), _free[0]) + float(_set["latency"]) + count / float(_set["rate"])
        heapq.heapreplace(_free, done)
    buffer = _unused.pop() if _unused else mmap.mmap(-1, LARGEST)
    with memoryview(buffer) as view:
        yield view[:count]
    _unused.append(buffer)
    time.sleep(max(0.0, done - time.monotonic()))


def pread(_: int, buffer: bytearray, offset: int, flags: int) -> None:
    """Read."""
    with _taking(len(buffer)) as view:
        os.preadv(_storage, [view], offset)
        buffer[:] = view


def pwrite(_: int, buffer: bytes, offset: int, flags: int) -> None:
    """Write."""
    with _taking(len(buffer)) as view:
        view[:] = buffer
        os.pwritev(_storage, [view], offset)


def flush(_: int, flags: int) -> None:
    """What is acknowledged is kept; a real one would wait for its journal."""
    with _taking(0):
        pass
