"""What the journal asks of its disk, and how that may fail."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from zvault.object_store.interface import Buffer, StoreError

SPARE_FILE_ENDING = ".spare"
"""The end of a spare file's name."""


class JournalFailed(StoreError):
    """The journal's disk did not do what it was asked."""

    reason = "journal"


class JournalDiskFull(JournalFailed):
    """The journal's disk is full. What was appended before is whole; appending goes on once there is room."""

    retryable = True


class JournalFull(JournalFailed):
    """The journal has no room until frames are released."""

    retryable = True


@dataclass(slots=True, eq=False)
class JournalFile:
    """One file; ``size`` in bytes. ``secure``: its header and its name would be there after a power cut."""

    path: Path
    first: int
    size: int
    fd: int = -1
    dirty: bool = False
    secure: bool = False

    def close(self) -> None:
        """Close its descriptor, if it has one."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class SpareFiles:
    """Files of a journal in memory that are no longer needed, to be written over: what is new there costs more.

    Their old frames have lower numbers than the file that one becomes, and do not count there.
    """

    def __init__(self, folder: Path, most: int) -> None:
        """Keep at most so many. Removes those that a killed process left. Raises OSError."""
        self._folder, self._most = folder, most
        self._kept: list[Path] = []
        self._number = 0
        self._lock = threading.Lock()
        for path in folder.glob(f"*{SPARE_FILE_ENDING}"):
            path.unlink()

    def keep(self, path: Path) -> None:
        """Take a file, which is open nowhere, or remove it. Raises OSError."""
        with self._lock:
            if len(self._kept) >= self._most:
                path.unlink(missing_ok=True)
                return
            self._number += 1
            spare = self._folder / f"{self._number}{SPARE_FILE_ENDING}"
            # A file that somebody had removed could not be released.
            with contextlib.suppress(FileNotFoundError):
                path.rename(spare)
                self._kept.append(spare)

    def take(self) -> Path | None:
        """One of them, if there is one."""
        with self._lock:
            return self._kept.pop() if self._kept else None

    def drop(self) -> None:
        """Give their room back. Raises OSError."""
        with self._lock:
            while self._kept:
                self._kept.pop().unlink(missing_ok=True)


def duplicate_descriptors(files: Sequence[JournalFile]) -> list[int]:
    """Descriptors of their own for files that may be closed meanwhile; the kernel tells errors to both."""
    fds: list[int] = []
    try:
        for file in files:
            fds.append(os.dup(file.fd))
    except OSError:
        for fd in fds:
            os.close(fd)
        raise
    return fds


def write_pieces(fd: int, pieces: Sequence[Buffer], at: int) -> None:
    """Write all of it, however little the kernel takes at once. Raises OSError."""
    left = memoryview(b"".join(pieces))
    while left:
        written = os.pwrite(fd, left, at)
        left, at = left[written:], at + written


def make_journal_error(what: str, error: OSError) -> JournalFailed:
    """The error as it is told."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return JournalDiskFull(what, str(error), "make room on the journal's disk: it goes on by itself then")
    return JournalFailed(what, str(error), "see the kernel's log and that the journal's disk is well")


@contextlib.contextmanager
def translate_os_errors(what: str) -> Iterator[None]:
    """Make OSErrors those that can be told; ``what`` says what cannot be done."""
    try:
        yield
    except OSError as error:
        raise make_journal_error(what, error) from error
