"""Counts what copying trees would copy, and finds what is in the way."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from base64 import b64encode
from dataclasses import dataclass, field

from zvault.system.file_trees.reporter import TreeReporter
from zvault.system.file_trees.task_pool import TaskPool
from zvault.system.file_trees.tree_copier import find_entry, is_same_file
from zvault.system.open_beneath import FOLDER_FLAGS, list_names

PATHS_PER_ANSWER = 1000
"""Names in one answer."""


@dataclass(eq=False)
class OpenFolders:
    """A folder of the snapshot, and the one it would be copied into if that is there; closed when nobody uses them."""

    pool: TaskPool
    source: int
    target: int | None
    left: int = 1
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.pool.note_open(self)

    def release(self, uses: int = 1) -> None:
        """Give up so many uses; a negative number adds some."""
        with self.lock:
            self.left -= uses
            last = self.left == 0
        if last:
            self.pool.note_closed(self)
            self.close()

    def close(self) -> None:
        """Close both."""
        os.close(self.source)
        if self.target is not None:
            os.close(self.target)


@dataclass
class TreePlanner:
    """Counts entries with all below them.

    ``there`` are files of the folder that are in the way. With ``keep_same`` what is as the snapshot's, by type, size,
    time, mode and owner, is not: it is ``same`` and stays, so a copy that was stopped goes on when it is asked for
    again. Only who compares afterwards may ask for that: whoever owns the folder can make another file look the same.
    """

    pool: TaskPool
    reporter: TreeReporter
    keep_same: bool
    there: list[bytes] = field(default_factory=list)
    same: int = 0
    size: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, within: OpenFolders, name: bytes, path: bytes) -> None:
        """Have an entry counted; ``within`` knows of it."""
        self.pool.add_file(lambda: self._entry(within, name, path))

    def _entry(self, within: OpenFolders, name: bytes, path: bytes) -> None:
        try:
            seen = os.stat(name, dir_fd=within.source, follow_symlinks=False)
            found = find_entry(within.target, name)
            if stat.S_ISDIR(seen.st_mode):
                if found is not None and not stat.S_ISDIR(found.st_mode):
                    self._note(path)
                below = found is not None and stat.S_ISDIR(found.st_mode)
                within.release(-1)
                self.pool.add_folder(lambda: self._folder(within, name, path, below=below))
                return
            self.reporter.add(files=1, size=seen.st_size)
            if found is not None:
                if self.keep_same and is_same_file(seen, found):
                    with self._lock:
                        self.same += 1
                        self.size += seen.st_size
                else:
                    self._note(path)
        finally:
            within.release()

    def _folder(self, within: OpenFolders, name: bytes, path: bytes, *, below: bool) -> None:
        try:
            source = os.open(name, FOLDER_FLAGS, dir_fd=within.source)
            target = None
            if below and within.target is not None:
                with contextlib.suppress(OSError):
                    target = os.open(name, FOLDER_FLAGS, dir_fd=within.target)
            folders = OpenFolders(self.pool, source, target)
            try:
                entries = list_names(source)
                folders.release(-len(entries))
                for one in entries:
                    self.add(folders, one, path + b"/" + one)
            finally:
                folders.release()
        finally:
            within.release()

    def _note(self, path: bytes) -> None:
        with self._lock:
            self.there.append(path)
            batch = self.there if len(self.there) >= PATHS_PER_ANSWER else []
            if batch:
                self.there = []
        if batch:
            self.reporter.say(make_paths_answer(batch))

    def flush(self) -> None:
        """Say which files are in the way."""
        self.reporter.say(make_paths_answer(sorted(self.there)))
        self.there = []


def make_paths_answer(paths: list[bytes]) -> dict[str, object]:
    """What the child says of files that are in the way."""
    return {"there": [b64encode(path).decode() for path in paths]}
