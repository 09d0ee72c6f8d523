"""An nbdkit plugin: a disk with a volatile cache, so that a power cut loses what was not flushed.

Writes stay in this process's memory, which the cut takes with it, until a flush puts them on the file. A few reach the
file at once, out of order, as a real disk's cache does as it likes; and when more than ``CACHE`` bytes wait, the disk
makes room by writing out some of them at random. Flushes (and FUA, which nbdkit emulates by them) are kept to the
letter: whoever waited for one finds its data again.

    nbdkit python tests/lab/crash_disk.py file=/dev/ubda
"""

from __future__ import annotations

import os
import random
from typing import Any

API_VERSION = 2
BLOCK = 4096
CACHE = 8 << 20
EARLY = 0.3
"""The share of writes that the disk makes at once."""

_file: list[int] = []
_waiting: dict[int, bytes] = {}


def config(key: str, value: str) -> None:
    """``file`` is what lies below."""
    if key != "file":
        raise RuntimeError(f"unknown parameter {key}")
    _file.append(os.open(value, os.O_RDWR))


def thread_model() -> int:
    """One request at a time."""
    import nbdkit

    return int(nbdkit.THREAD_MODEL_SERIALIZE_ALL_REQUESTS)


def open(readonly: bool) -> int:
    """Every connection sees the one disk."""
    return 1


def get_size(handle: int) -> int:
    """Bytes."""
    return os.lseek(_file[0], 0, os.SEEK_END)


def can_multi_conn(handle: int) -> bool:
    """A flush on one connection covers the writes of all."""
    return True


def _block(number: int) -> bytes:
    found = _waiting.get(number)
    return found if found is not None else os.pread(_file[0], BLOCK, number * BLOCK)


def pread(handle: int, buffer: Any, offset: int, flags: int) -> None:
    """What was written last, whether or not it is on the file."""
    length = len(buffer)
    data = bytearray(os.pread(_file[0], length, offset))
    for number in range(offset // BLOCK, -(-(offset + length) // BLOCK)):
        if (block := _waiting.get(number)) is not None:
            start = number * BLOCK - offset
            low, high = max(start, 0), min(start + BLOCK, length)
            data[low:high] = block[low - start : high - start]
    buffer[:] = data


def pwrite(handle: int, buffer: Any, offset: int, flags: int) -> None:
    """Into the cache; sometimes onto the disk at once."""
    data, end = bytes(buffer), offset + len(buffer)
    for number in range(offset // BLOCK, -(-end // BLOCK)):
        start = number * BLOCK
        low, high = max(start, offset), min(start + BLOCK, end)
        new = data[low - offset : high - offset]
        if len(new) != BLOCK:
            old = _block(number)
            new = old[: low - start] + new + old[high - start :]
        _waiting[number] = new
    if random.random() < EARLY:
        _write_out(list(range(offset // BLOCK, -(-end // BLOCK))))
    elif len(_waiting) * BLOCK > CACHE:
        _write_out(random.sample(sorted(_waiting), len(_waiting) // 2))


def _write_out(numbers: list[int]) -> None:
    for number in numbers:
        os.pwrite(_file[0], _waiting.pop(number), number * BLOCK)


def flush(handle: int, flags: int) -> None:
    """All that was written is kept from now on."""
    _write_out(list(_waiting))
    os.fsync(_file[0])
