"""Waits until what was copied is on the disks of the file systems that it was copied to, and finds what is not.

A write is answered as soon as it is in memory. Where the disk fails or is full only afterwards, as with delayed
allocation, NFS or an image on a full file system, a comparison still reads the copy from memory and finds it equal;
the kernel reports the loss to who asks for it (syncfs(2), since Linux 5.8).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class TargetDisks:
    """The file systems that are copied to: by st_dev an open folder of each, opened before anything was copied to it.

    The kernel reports the errors since that folder was opened, and earlier ones that nobody was told of.
    """

    folders: dict[int, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, folder: int) -> None:
        """Remember the file system of an open folder that will be copied to. Raises OSError."""
        device = os.fstat(folder).st_dev
        with self.lock:
            if device not in self.folders:
                self.folders[device] = os.dup(folder)

    def write_out(self) -> None:
        """Wait until all that was copied is on disk. Raises OSError where the kernel could not write some of it."""
        for folder in self.folders.values():
            if _libc.syncfs(ctypes.c_int(folder)) == -1:
                code = ctypes.get_errno()
                raise OSError(code, f"what was copied could not be written to disk: {os.strerror(code)}")

    def close(self) -> None:
        """Close the folders."""
        for folder in self.folders.values():
            os.close(folder)


@contextlib.contextmanager
def keep_target_disks() -> Iterator[TargetDisks]:
    """Keep the file systems that are copied to for a block."""
    disks = TargetDisks()
    try:
        yield disks
    finally:
        disks.close()
