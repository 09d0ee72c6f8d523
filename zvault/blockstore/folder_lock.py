"""A folder on this host's disk that belongs to one process of the block store."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zvault.core.errors import Busy


@contextmanager
def lock_folder(folder: Path, what: str, remedy: str) -> Iterator[int]:
    """Make it where it is not there, and lock it: its descriptor, which whoever gets it closes in the end.

    Where the block fails it is closed and free again. ``what`` is in the folder and ``remedy`` what to do where
    another process has it. Raises Busy then, OSError.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"{what} in {folder} is in use", "another process has it", remedy) from None
        os.fchmod(descriptor, 0o700)
        yield descriptor
    except BaseException:
        os.close(descriptor)
        raise
