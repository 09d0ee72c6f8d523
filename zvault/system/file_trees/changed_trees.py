"""Finds what changed between two trees of files, many entries at a time.

No content is read: each change of it changes the time of the inode (ctime), which nobody can set. A file is known again
by its number and its time of birth, which 'zfs send' keeps. No symbolic link is followed (open_beneath.py).
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from dataclasses import dataclass, field

from zvault.system.file_trees.reporter import TreeReporter
from zvault.system.file_trees.task_pool import TaskPool
from zvault.system.open_beneath import (
    ANY_FLAGS,
    FOLDER_FLAGS,
    list_names,
    open_beneath,
    open_descriptor,
    read_birth_time,
)

KEPT_CHANGES = 10_000
"""Changes kept; the others are counted."""

KIND_LETTERS = {
    stat.S_IFREG: "f",
    stat.S_IFDIR: "d",
    stat.S_IFLNK: "l",
    stat.S_IFIFO: "p",
    stat.S_IFSOCK: "s",
    stat.S_IFBLK: "b",
    stat.S_IFCHR: "c",
}
"""Find's letters (``%y`` in find(1))."""


@dataclass(frozen=True, slots=True)
class PathState:
    """An entry at a path: ``born`` in ns, None where that is not known."""

    path: bytes
    found: os.stat_result
    born: int | None
    link: bytes

    @property
    def kind(self) -> str:
        """Find's letter."""
        return KIND_LETTERS.get(stat.S_IFMT(self.found.st_mode), "?")

    @property
    def identity(self) -> tuple[int, int, str] | None:
        """The identity that stays the same wherever the file is moved; None where that cannot be told."""
        return None if self.born is None else (self.found.st_ino, self.born, self.kind)

    def differs(self, other: PathState, *, moved: bool = False) -> list[str]:
        """List what is not the same of it in the new tree, ``other``; a move alone changes the inode's time."""
        mine, its = self.found, other.found
        if self.kind != other.kind:
            return ["type"]
        pairs = [
            ("replaced", self.identity, other.identity),
            ("size", mine.st_size if self.kind == "f" else 0, its.st_size if self.kind == "f" else 0),
            ("time", mine.st_mtime_ns, its.st_mtime_ns),
            ("mode", mine.st_mode, its.st_mode),
            ("owner", (mine.st_uid, mine.st_gid), (its.st_uid, its.st_gid)),
            ("link", self.link, other.link),
            ("device", mine.st_rdev, its.st_rdev),
        ]
        found = [what for what, one, two in pairs if one != two]
        return found or (["ctime"] if mine.st_ctime_ns != its.st_ctime_ns and not moved else [])


FoundChange = tuple[str, str, bytes, bytes | None, list[str]]


@dataclass
class ChangedTrees:
    """Two trees that are compared, by paths below two open folders."""

    pool: TaskPool
    reporter: TreeReporter
    old: int
    new: int
    more: int = 0
    modified: list[FoundChange] = field(default_factory=list)
    removed: list[PathState] = field(default_factory=list)
    created: list[PathState] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def compare(self, path: bytes) -> None:
        """Compare what is at a path, with all below it. Raises FileNotFoundError where it is in neither."""
        if read_path_state(self.old, path) is None and read_path_state(self.new, path) is None:
            raise FileNotFoundError(errno.ENOENT, "it is in neither of the snapshots")
        self._add(path)
        self.pool.run()

    def _add(self, path: bytes) -> None:
        self.pool.add_file(lambda: self._entry(path))

    def _entry(self, path: bytes) -> None:
        self.reporter.add(files=1)
        old, new = read_path_state(self.old, path), read_path_state(self.new, path)
        if old is not None and new is not None:
            if path and (what := old.differs(new)):
                self._keep(self.modified, ("modified", new.kind, path, None, what))
        elif old is not None:
            self._keep(self.removed, old)
        elif new is not None:
            self._keep(self.created, new)
        sides = ((self.old, old), (self.new, new))
        folders = [root for root, seen in sides if seen is not None and seen.kind == "d"]
        if folders:
            self.pool.add_folder(lambda: self._folder(folders, path))

    def _folder(self, roots: list[int], path: bytes) -> None:
        names = {name for root in roots for name in list_names_below(root, path)}
        for name in sorted(names):
            self._add(path + b"/" + name if path else name)

    def _keep(self, kept: list[FoundChange] | list[PathState], one: FoundChange | PathState) -> None:
        with self._lock:
            if len(self.modified) + len(self.removed) + len(self.created) < KEPT_CHANGES:
                kept.append(one)  # type: ignore[arg-type]
            else:
                self.more += 1

    def changes(self) -> list[FoundChange]:
        """All of it by path; what was removed in one place and created in another was renamed.

        They were found in any order; a folder has to come before what was in it (``moved_with_folder``).
        """
        for some in (self.removed, self.created):
            some.sort(key=lambda one: one.path.split(b"/"))
        there: dict[tuple[int, int, str], list[PathState]] = {}
        for seen in reversed(self.created):
            if seen.identity is not None:
                there.setdefault(seen.identity, []).append(seen)
        moves: dict[bytes, bytes] = {}
        found = list(self.modified)
        for old in self.removed:
            places = there.get(old.identity) if old.identity is not None else None
            if not places:
                found.append(("removed", old.kind, old.path, None, []))
                continue
            new = places.pop()
            moves[old.path] = new.path
            what = old.differs(new, moved=True)
            if what or not moved_with_folder(old.path, new.path, moves):
                found.append(("renamed", old.kind, old.path, new.path, what))
        came = set(moves.values())
        found += [("created", one.kind, one.path, None, []) for one in self.created if one.path not in came]
        return sorted(found, key=lambda one: one[2])


def moved_with_folder(old: bytes, new: bytes, moves: dict[bytes, bytes]) -> bool:
    """True if it is elsewhere only because a folder in which it is was renamed."""
    above, _, name = old.rpartition(b"/")
    there = moves.get(above)
    return there is not None and new == there + b"/" + name


def read_path_state(root: int, path: bytes) -> PathState | None:
    """Read what is at a path below an open folder; None for nothing. Raises OSError, ELOOP for a link on the way."""
    try:
        with open_descriptor(open_beneath(root, path or b".", ANY_FLAGS)) as fd:
            found = os.fstat(fd)
            link = os.readlink(b"", dir_fd=fd) if stat.S_ISLNK(found.st_mode) else b""
            return PathState(path, found, read_birth_time(fd), link)
    except (FileNotFoundError, NotADirectoryError):
        return None


def list_names_below(root: int, path: bytes) -> set[bytes]:
    """The names in a folder; at the top without ZFS's own."""
    with open_descriptor(open_beneath(root, path or b".", FOLDER_FLAGS)) as fd:
        return set(list_names(fd)) - ({b".zfs"} if not path else set())
