"""A model of storage behind a network, for nbdkit's Python plugin: a price for each request, so many at a time.

A request takes ``latency`` seconds plus its bytes at ``rate`` bytes a second, a flush one latency; how many at a time
is nbdkit's ``-t``. So an image on erasure-coded disks is few with a long latency, an object store many with a longer
one. What is written is kept in ``file``.

    nbdkit -t 4 python slots.py file=PATH size=BYTES latency=0.035 rate=60e6
"""

from __future__ import annotations

import os
import time

import nbdkit

API_VERSION = 2

_set: dict[str, str] = {}
_storage = -1


def config(key: str, value: str) -> None:
    """One parameter; all are needed."""
    _set[key] = value


def config_complete() -> None:
    """See that nothing is missing."""
    if missing := {"file", "size", "latency", "rate"} - set(_set):
        raise ValueError(f"parameters missing: {', '.join(sorted(missing))}")


def get_ready() -> None:
    """Open the file, before nbdkit goes to the background."""
    global _storage  # noqa: PLW0603 - nbdkit has no other place for it
    _storage = os.open(_set["file"], os.O_RDWR | os.O_CREAT, 0o600)
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


def _take(count: int) -> None:
    time.sleep(float(_set["latency"]) + count / float(_set["rate"]))


def pread(_: int, buffer: bytearray, offset: int, flags: int) -> None:
    """Read."""
    _take(len(buffer))
    os.preadv(_storage, [buffer], offset)


def pwrite(_: int, buffer: bytes, offset: int, flags: int) -> None:
    """Write."""
    _take(len(buffer))
    os.pwrite(_storage, buffer, offset)


def flush(_: int, flags: int) -> None:
    """What is acknowledged is kept; a real one would wait for its journal."""
    _take(0)
