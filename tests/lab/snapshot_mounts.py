"""A snapshot's files, by mount(2): that starts no program."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

MS_RDONLY = 1
LIBC = ctypes.CDLL(None, use_errno=True)


def _mount(call: str, *arguments: object) -> None:
    """A call to the kernel, as mount(8) and umount(8) make: three programs for each snapshot that is looked into."""
    if getattr(LIBC, call)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{call} {arguments}: {os.strerror(number)}")


@contextlib.contextmanager
def mounted(snapshot: str) -> Iterator[Path]:
    """A snapshot's files, wherever it lies."""
    point = Path("/mnt/check")
    point.mkdir(parents=True, exist_ok=True)
    _mount("mount", snapshot.encode(), bytes(point), b"zfs", ctypes.c_ulong(MS_RDONLY), None)
    try:
        yield point
    finally:
        _mount("umount2", bytes(point), 0)
