"""Records: small JSON files, by name, that are on disk before what follows from them.

An undo record says what zvault has changed on this host. It is on disk before the effect it tells of is made, and goes
only after the effect is undone, so that after a crash at any point the next start knows what to look for, to adopt it
or to undo it. A record from another boot is ``stale``: connected devices, units and queue settings do not outlive the
kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from zvault.core.errors import Busy, ZvaultError

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
LOCK_POLL = 0.05
FOLDER_TRIES = 100

MALFORMED = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)
"""What parsing JSON of another form than it was written in may raise: ``int(data["txg"])`` of Infinity too."""

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@-]*(/[A-Za-z0-9][A-Za-z0-9_.:@-]*)*")


def read_boot_id() -> str:
    """This boot's identity (random(4)), which no other boot of any host shares."""
    return BOOT_ID.read_text(encoding="ascii").strip()


def _check(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name for a record")


class RecordStore:
    """Records as files below ``directory``, which is made when it is first needed, for root alone.

    Names are words joined by ``/``. Every write is atomic and is on disk when ``put`` returns.
    """

    def __init__(
        self, directory: Path, *, boot_id: str | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.directory = directory
        self._boot_id = boot_id
        self._clock = clock

    @property
    def boot_id(self) -> str:
        """The boot that new records belong to."""
        if self._boot_id is None:
            self._boot_id = read_boot_id()
        return self._boot_id

    def put(self, name: str, data: Mapping[str, object]) -> None:
        """Write a record, in place of one of that name.

        ``data`` must be JSON. Raises OSError when it cannot be kept.
        """
        path = self._path(name)
        text = json.dumps({"boot_id": self.boot_id, "time": self._clock(), "data": dict(data)}, indent=1)
        self._in_folder(path, lambda: _write(path, text + "\n"))

    def get(self, name: str) -> dict[str, Any] | None:
        """A record's data, or None where there is none.

        Three keys are added: ``boot_id``; ``time``, when it was last written, in seconds since the epoch; and
        ``stale``, whether another boot wrote it. Raises ZvaultError for a file that is no record.
        """
        _check(name)
        # Not by Path: zvaultd asks for many every few seconds, and most are not there.
        path = f"{self.directory}/{name}"
        try:
            with open(path, encoding="utf-8") as file:  # noqa: PTH123
                raw = json.load(file)
            boot_id, written, data = str(raw["boot_id"]), float(raw["time"]), dict(raw["data"].items())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ZvaultError(
                f"the record {path} cannot be read",
                str(error),
                "see what it was for, undo that by hand, and delete the file",
            ) from error
        return {**data, "boot_id": boot_id, "time": written, "stale": boot_id != self.boot_id}

    def recall(self, name: str, parse: Callable[[dict[str, Any]], T]) -> T | None:
        """What ``parse`` makes of a record that may be lost; None where there is none, or it is of another form."""
        with contextlib.suppress(OSError, ZvaultError, *MALFORMED):
            data = self.get(name)
            return None if data is None else parse(data)
        return None

    def note(self, name: str, data: Mapping[str, object] | None) -> None:
        """Write a record that may be lost, or drop it without ``data``. Where neither can be done, it is not known
        after a restart.
        """
        with contextlib.suppress(OSError, ZvaultError):
            if data is None:
                self.drop(name)
            else:
                self.put(name, data)

    def drop(self, name: str) -> None:
        """Forget a record, and folders that are empty without it. There need be none of that name."""
        path = self._path(name)
        try:
            path.unlink()
            _sync_directory(path.parent)
        except FileNotFoundError:
            return
        for folder in path.parents:
            if folder == self.directory or not folder.is_relative_to(self.directory):
                break
            try:
                folder.rmdir()
            except OSError:
                break

    def rename(self, name: str, other: str) -> None:
        """Have a record under another name, in place of one of that name. There need be none. Raises OSError."""
        path, there = self._path(name), self._path(other)
        if path.exists():
            self._in_folder(there, lambda: path.replace(there))
            _sync_directory(there.parent)

    def names(self, prefix: str = "") -> list[str]:
        """The names of all records that start with ``prefix``, sorted."""
        below = f"{self.directory}/"
        # Folders may go meanwhile, which this takes for empty.
        found = (
            f"{folder}/{name}".removeprefix(below)
            for folder, _, files in os.walk((below + prefix.rpartition("/")[0]).rstrip("/"))
            for name in files
        )
        return sorted(name for name in found if _NAME.fullmatch(name) and name.startswith(prefix))

    @contextlib.asynccontextmanager
    async def lock(self, name: str, *, deadline: float = 10.0) -> AsyncIterator[None]:
        """Hold a lock that no other task or process has; the kernel releases it when its holder dies.

        Raises Busy when it is not free within ``deadline`` seconds.
        """
        path = self._path(name)
        path = path.with_name(f".{path.name}.lock")
        fd = self._in_folder(path, lambda: _private(path, os.O_RDWR | os.O_CREAT))
        try:
            give_up = time.monotonic() + deadline
            while not _try_lock(fd):
                if time.monotonic() >= give_up:
                    raise Busy(
                        f"{name} is being changed by somebody else",
                        f"another zvault has held {path} for {deadline:g} s",
                        f"wait for it, or find it with 'fuser {path}'",
                    )
                await asyncio.sleep(LOCK_POLL)
            yield
        finally:
            os.close(fd)

    def _path(self, name: str) -> Path:
        _check(name)
        return self.directory / name

    def _in_folder(self, path: Path, do: Callable[[], T]) -> T:
        """Make a file's folder, and do what needs it; again where somebody dropped the last record in it meanwhile."""
        for _ in range(FOLDER_TRIES - 1):
            with contextlib.suppress(FileNotFoundError):
                self._make_directory(path.parent)
                return do()
        self._make_directory(path.parent)
        return do()

    def _make_directory(self, folder: Path) -> None:
        missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
        for parent in reversed(missing):
            with contextlib.suppress(FileExistsError):
                parent.mkdir(mode=0o700 if parent.is_relative_to(self.directory) else 0o755)
            try:
                _sync_directory(parent.parent)
            except OSError:
                # Else the next one would find it there, and not see that it is on disk.
                with contextlib.suppress(OSError):
                    parent.rmdir()
                raise


def _write(path: Path, text: str) -> None:
    """Have a file with this text, whole or not at all, on disk. Raises OSError."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(_private(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def _private(path: Path, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _sync_directory(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
