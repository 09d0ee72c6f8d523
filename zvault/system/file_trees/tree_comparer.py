"""Compares trees of files with a snapshot's: traits and contents, many entries at a time.

The folder that is compared may be a user's, who changes it meanwhile: no link leads out of it (open_beneath.py).
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from zvault.core.integrity.restore_comparison import KEPT_MISMATCHES, FileTraits, list_differing_traits
from zvault.core.integrity.verification import escape_path
from zvault.system.file_trees.file_contents import (
    READ_FLAGS,
    DigestNotes,
    Digests,
    SnapshotUnreadable,
    find_first_difference,
    hash_range,
    split_in_ranges,
)
from zvault.system.file_trees.reporter import TreeReporter
from zvault.system.file_trees.task_pool import TaskPool
from zvault.system.file_trees.tree_copier import HIDDEN_FOLDER
from zvault.system.open_beneath import (
    ANY_FLAGS,
    FOLDER_FLAGS,
    descriptor_path,
    list_names,
    open_beneath,
    open_descriptor,
)

CANNOT_READ = "cannot be read"

LARGE_FILE = 1 << 30
"""Bytes from which on a file's holes are not read, though ZFS may take a transaction group to say where they are."""


@dataclass(frozen=True, slots=True)
class EntryPaths:
    """An entry by its paths below the snapshot's root and below the folder; reports call it ``name``."""

    wanted: bytes
    found: bytes
    name: bytes


def read_traits(fd: int) -> FileTraits:
    """The traits of an open file. Raises OSError."""
    seen, path = os.fstat(fd), descriptor_path(fd)
    try:
        names = os.listxattr(path)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        names = []
    return FileTraits(
        seen.st_mode,
        seen.st_uid,
        seen.st_gid,
        seen.st_size,
        seen.st_mtime_ns,
        seen.st_rdev,
        os.readlink(b"", dir_fd=fd) if stat.S_ISLNK(seen.st_mode) else b"",
        {name: os.getxattr(path, name) for name in names},
    )


@dataclass
class TreeComparer:
    """Two trees that are compared, by paths below two open folders.

    ``both``: what only the second one has is a difference too. ``notes`` are the hashes of files whose content was read
    as they were copied: of those only the copy is read.
    """

    pool: TaskPool
    reporter: TreeReporter
    root: int
    folder: int
    both: bool
    notes: DigestNotes = field(default_factory=DigestNotes)
    told: int = 0
    _linked: dict[int, dict[bytes, tuple[int, int]]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, entry: EntryPaths) -> None:
        """Have a file compared, or a directory with all below it."""
        self.pool.add_file(lambda: self._entry(entry))

    def _entry(self, entry: EntryPaths) -> None:
        sides = self._traits(entry)
        if sides is None:
            return
        mine, its = sides
        if not stat.S_ISDIR(mine.mode):
            self.reporter.add(files=1)
        for what, one, other in list_differing_traits(mine, its):
            self.tell(entry.name, what, one, other)
        if mine.type != its.type:
            return
        if stat.S_ISDIR(mine.mode):
            self.pool.add_folder(lambda: self._folder(entry))
        elif not self._is_linked(entry) and stat.S_ISREG(mine.mode) and mine.size == its.size:
            self._content(entry, mine.size)

    def _folder(self, entry: EntryPaths) -> None:
        for below in self._below(entry):
            self.add(below)

    def _traits(self, entry: EntryPaths) -> tuple[FileTraits, FileTraits] | None:
        """The traits of both; None, and told, where they cannot be read."""
        try:
            with open_descriptor(open_beneath(self.root, entry.wanted, ANY_FLAGS)) as fd:
                mine = read_traits(fd)
        except OSError as error:
            self.tell(entry.name, "traits", "", f"{CANNOT_READ} in the snapshot: {error.strerror}")
            return None
        try:
            with open_descriptor(open_beneath(self.folder, entry.found, ANY_FLAGS)) as fd:
                return mine, read_traits(fd)
        except FileNotFoundError:
            self.tell(entry.name, "missing", self._of_all(entry.wanted, mine), "")
        except OSError as error:
            self.tell(entry.name, "traits", mine.type, f"{CANNOT_READ}: {error.strerror}")
        return None

    def _below(self, entry: EntryPaths) -> Iterator[EntryPaths]:
        prefix = entry.name + b"/" if entry.name else b""
        try:
            hidden = set() if entry.name else {HIDDEN_FOLDER}
            with open_descriptor(open_beneath(self.root, entry.wanted, FOLDER_FLAGS)) as fd:
                names = set(list_names(fd)) - hidden
            with open_descriptor(open_beneath(self.folder, entry.found, FOLDER_FLAGS)) as fd:
                there = set(list_names(fd)) - hidden if self.both else set()
        except OSError as error:
            self.tell(entry.name, "entries", "", f"{CANNOT_READ}: {error.strerror}")
            return
        for extra in sorted(there - names):
            self.tell(prefix + extra, "not in the snapshot", "", "")
        for name in sorted(names):
            yield EntryPaths(entry.wanted + b"/" + name, entry.found + b"/" + name, prefix + name)

    def _of_all(self, path: bytes, mine: FileTraits) -> str:
        """What is missing, in words; of a directory also how much is below it."""
        if not stat.S_ISDIR(mine.mode):
            return mine.type
        with open_descriptor(open_beneath(self.root, path, FOLDER_FLAGS)) as fd:
            count = sum(len(folders) + len(files) for _, folders, files in os.walk(descriptor_path(fd)))
        return f"{mine.type} with {count} below it" if count else mine.type

    def _is_linked(self, entry: EntryPaths) -> bool:
        """Whether this is another name of a file that is compared already. Notes what has several names."""
        try:
            with (
                open_descriptor(open_beneath(self.root, entry.wanted, ANY_FLAGS)) as one,
                open_descriptor(open_beneath(self.folder, entry.found, ANY_FLAGS)) as other,
            ):
                mine, its = os.fstat(one), os.fstat(other)
        except OSError:
            return False  # reading its content tells why
        if mine.st_nlink < 2:
            return False
        number = its.st_dev, its.st_ino
        with self._lock:
            names = self._linked.setdefault(mine.st_ino, {})
            known = number in names.values()
            names[entry.name] = number
        return known

    def tell_links(self) -> None:
        """Tell which names of one file are no links any more, once all are known: they come in any order."""
        for names in self._linked.values():
            first = min(names)
            for name in sorted(names):
                if names[name] != names[first]:
                    self.tell(
                        name, "hard link", f"the same file as {escape_path(first)}", "a file of its own"
                    )

    def _content(self, entry: EntryPaths, size: int) -> None:
        """Compare the content; of a file longer than a range in several tasks."""
        try:
            one = open_beneath(self.root, entry.wanted, READ_FLAGS)
        except OSError as error:
            self.tell(entry.name, "content", "", f"{CANNOT_READ} in the snapshot: {error.strerror}")
            return
        try:
            other = open_beneath(self.folder, entry.found, READ_FLAGS)
        except OSError as error:
            os.close(one)
            self.tell(entry.name, "content", "", f"{CANNOT_READ}: {error.strerror}")
            return
        ranges = split_in_ranges(size)
        known = self.notes.get(os.fstat(one).st_ino)
        if known is not None and len(known) != len(ranges):
            known = None
        content = ContentComparison(self, entry, one, other, size, known, left=len(ranges))
        self.pool.note_open(content)
        for number, (start, end) in reversed([*enumerate(ranges)][1:]):
            self.pool.add_file(
                partial(content.compare_range, number, start, end),
                next_one=True,
            )
        content.compare_range(0, *ranges[0])

    def tell(self, name: bytes, what: str, wanted: str, found: str) -> None:
        """Report a difference; after KEPT of them they are only counted."""
        with self._lock:
            self.told += 1
            kept = self.told <= KEPT_MISMATCHES
        if kept:
            self.reporter.say({"unlike": [escape_path(name) or ".", what, wanted, found]})


@dataclass(eq=False)
class ContentComparison:
    """The contents of one file on both sides, compared by several threads; the last of them tells what was found."""

    comparer: TreeComparer
    entry: EntryPaths
    one: int
    other: int
    size: int
    known: Digests | None
    left: int
    differs_from: int | None = None
    error: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def compare_range(self, number: int, start: int, end: int) -> None:
        """Compare one range."""
        at, why = None, ""
        try:
            if not self._is_as_it_was_read(number, start, end):
                skips = self.size >= LARGE_FILE
                at = find_first_difference(self.one, self.other, start, end, skip_holes=skips)
            self.comparer.reporter.add(size=end - start)
        except SnapshotUnreadable as error:
            why = f"{CANNOT_READ} in the snapshot: {error.strerror}"
        except OSError as error:
            why = f"{CANNOT_READ}: {error.strerror}"
        with self.lock:
            self.left -= 1
            last = not self.left
            self.error = self.error or why
            if at is not None and (self.differs_from is None or at < self.differs_from):
                self.differs_from = at
        if last:
            self._finish()

    def _is_as_it_was_read(self, number: int, start: int, end: int) -> bool:
        """Whether the copy's range has the hash of what was read of the snapshot."""
        if self.known is None:
            return False
        return hash_range(self.other, start, end, skip_holes=self.size >= LARGE_FILE) == self.known[number]

    def close(self) -> None:
        """Close both sides."""
        os.close(self.one)
        os.close(self.other)

    def _finish(self) -> None:
        self.comparer.pool.note_closed(self)
        self.close()
        if self.error:
            self.comparer.tell(self.entry.name, "content", "", self.error)
        elif self.differs_from is not None:
            self.comparer.tell(self.entry.name, "content", "", f"it differs from byte {self.differs_from} on")
