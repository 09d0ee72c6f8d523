"""Lists a tree of files, many entries at a time: what verifications compare and searches look through."""

from __future__ import annotations

import os
import stat
import threading
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field

from zvault.core.integrity.file_versions import matches_path
from zvault.core.integrity.verification import HASHED_PIECE, KeyRange, KeySpread
from zvault.system.file_trees.changed_trees import KIND_LETTERS
from zvault.system.file_trees.reporter import TreeReporter
from zvault.system.file_trees.task_pool import TaskPool
from zvault.system.file_trees.tree_planner import OpenFolders
from zvault.system.open_beneath import FOLDER_FLAGS, list_names

ENTRIES_PER_ANSWER = 1000
"""Entries in one answer."""

ENTRIES_PER_TASK = 8
"""Entries that one thread looks at in turn: their inodes lie beside each other, so mostly one read answers for all."""

CONTROL_FOLDER = b".zfs"
"""ZFS's own folder in the root of a file system."""

ListedRow = list[object]
"""Number, kind, mode, owner, size, time, path and link of an entry, as find(1) tells them; names in base64."""


@dataclass
class TreeLister:
    """Lists what is below a root: files in a range of keys, and all large ones; with ``everything`` folders and links.

    With a ``pattern`` only what matches it (core/integrity/file_versions.py). Nothing that is mounted below is entered,
    nor ZFS's own folder. Folders are opened from the one they lie in, so a path may be of any length.
    """

    pool: TaskPool
    reporter: TreeReporter
    root: int
    mix: KeySpread
    keys: KeyRange
    everything: bool
    pattern: str = ""
    _device: int = 0
    _rows: list[ListedRow] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def list_tree(self) -> None:
        """List all of it. Raises OSError for the first folder that cannot be read, by its path."""
        self._device = os.fstat(self.root).st_dev
        top = OpenFolders(self.pool, os.dup(self.root), None)
        self.pool.add_folder(lambda: self._folder(top, b".", b""))
        self.pool.run()
        self._flush(self._rows)

    def _folder(self, within: OpenFolders, name: bytes, path: bytes) -> None:
        try:
            with _path_in_errors(path):
                opened = os.open(name, FOLDER_FLAGS, dir_fd=within.source)
            folders = OpenFolders(self.pool, opened, None)
            try:
                with _path_in_errors(path):
                    names = list_names(folders.source)
                if not path:
                    names = [one for one in names if one != CONTROL_FOLDER]
                for start in range(0, len(names), ENTRIES_PER_TASK):
                    folders.release(-1)
                    self._add(folders, names[start : start + ENTRIES_PER_TASK], path)
            finally:
                folders.release()
        finally:
            within.release()

    def _add(self, within: OpenFolders, names: Sequence[bytes], path: bytes) -> None:
        self.pool.add_file(lambda: self._entries(within, names, path))

    def _entries(self, within: OpenFolders, names: Sequence[bytes], path: bytes) -> None:
        try:
            rows: list[ListedRow] = []
            for name in names:
                below = path + b"/" + name if path else name
                with _path_in_errors(below):
                    seen = os.stat(name, dir_fd=within.source, follow_symlinks=False)
                    if self._is_wanted(seen, below):
                        rows.append(_row(within.source, name, below, seen))
                if stat.S_ISDIR(seen.st_mode) and seen.st_dev == self._device:
                    within.release(-1)
                    self._add_folder(within, name, below)
            self.reporter.add(files=len(names))
            self._keep(rows)
        finally:
            within.release()

    def _add_folder(self, within: OpenFolders, name: bytes, path: bytes) -> None:
        self.pool.add_folder(lambda: self._folder(within, name, path))

    def _is_wanted(self, seen: os.stat_result, path: bytes) -> bool:
        file = stat.S_ISREG(seen.st_mode)
        if not (file or self.everything) or (self.pattern and not matches_path(self.pattern, path)):
            return False
        return (file and seen.st_size > HASHED_PIECE) or self.keys.has(self.mix.key(seen.st_ino))

    def _keep(self, rows: list[ListedRow]) -> None:
        with self._lock:
            self._rows += rows
            batch = self._rows if len(self._rows) >= ENTRIES_PER_ANSWER else []
            if batch:
                self._rows = []
        if batch:
            self._flush(batch)

    def _flush(self, rows: list[ListedRow]) -> None:
        self.reporter.say({"entries": rows})


def _row(folder: int, name: bytes, path: bytes, seen: os.stat_result) -> ListedRow:
    link = os.readlink(name, dir_fd=folder) if stat.S_ISLNK(seen.st_mode) else b""
    seconds, nanoseconds = divmod(seen.st_mtime_ns, 10**9)
    return [
        seen.st_ino,
        KIND_LETTERS.get(stat.S_IFMT(seen.st_mode), "U"),
        f"{stat.S_IMODE(seen.st_mode):o}",
        f"{seen.st_uid}:{seen.st_gid}",
        seen.st_size,
        f"{seconds}.{nanoseconds:09d}0",
        b64encode(path).decode(),
        b64encode(link).decode(),
    ]


class _path_in_errors:
    """Has an error of the block tell the whole path, of which the calls know the last name only."""

    def __init__(self, path: bytes) -> None:
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            error.filename = self.path
