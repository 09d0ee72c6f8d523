"""The child process that finds what changed between two trees: ``OLD NEW``, answers in JSON lines.

Its standard input is one line, ``{"path": ...}`` in base64: what of the trees is compared. No content is read: each
change of it changes the time of the inode (ctime), which nobody can set. A file is known again by its number and its
time of birth, which 'zfs send' keeps. Reading can block in the kernel for long, so it must not happen in the daemon
(invariant 7). No symbolic link is followed (open_beneath.py).
"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field

from zvault.system.open_beneath import (
    ANY_FLAGS,
    FOLDER_FLAGS,
    list_names,
    open_beneath,
    open_descriptor,
    open_folder,
    read_birth_time,
)

WALK_SAY_INTERVAL = 1.0
"""Seconds between two reports of progress."""

KEPT_CHANGES = 10_000
"""Changes kept; the others are counted."""

_LETTERS = {
    stat.S_IFREG: "f",
    stat.S_IFDIR: "d",
    stat.S_IFLNK: "l",
    stat.S_IFIFO: "p",
    stat.S_IFSOCK: "s",
    stat.S_IFBLK: "b",
    stat.S_IFCHR: "c",
}


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
        return _LETTERS.get(stat.S_IFMT(self.found.st_mode), "?")

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

    old: int
    new: int
    files: int = 0
    more: int = 0
    modified: list[FoundChange] = field(default_factory=list)
    removed: list[PathState] = field(default_factory=list)
    created: list[PathState] = field(default_factory=list)
    _said: float = 0.0

    def compare(self, path: bytes) -> None:
        """Compare what is at a path, with all below it. Raises FileNotFoundError where it is in neither."""
        if read_path_state(self.old, path) is None and read_path_state(self.new, path) is None:
            raise FileNotFoundError(errno.ENOENT, "it is in neither of the snapshots")
        pending = [path]
        while pending:
            pending += reversed(list(self._entry(pending.pop())))

    def _entry(self, path: bytes) -> Iterator[bytes]:
        self._progress()
        self.files += 1
        old, new = read_path_state(self.old, path), read_path_state(self.new, path)
        if old is not None and new is not None:
            if path and (what := old.differs(new)):
                self._keep(self.modified, ("modified", new.kind, path, None, what))
        elif old is not None:
            self._keep(self.removed, old)
        elif new is not None:
            self._keep(self.created, new)
        names: set[bytes] = set()
        for root, seen in ((self.old, old), (self.new, new)):
            if seen is not None and seen.kind == "d":
                names |= list_names_below(root, path)
        yield from (path + b"/" + name if path else name for name in sorted(names))

    def _keep(self, kept: list[FoundChange] | list[PathState], one: FoundChange | PathState) -> None:
        if len(self.modified) + len(self.removed) + len(self.created) < KEPT_CHANGES:
            kept.append(one)  # type: ignore[arg-type]
        else:
            self.more += 1

    def changes(self) -> list[FoundChange]:
        """All of it by path; what was removed in one place and created in another was renamed."""
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

    def _progress(self) -> None:
        if time.monotonic() - self._said >= WALK_SAY_INTERVAL:
            self._said = time.monotonic()
            print_change_answer({"files": self.files})


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


def print_change_answer(answer: dict[str, object]) -> None:
    """Print one answer, as a line of JSON, for the process that asked."""
    print(json.dumps(answer), flush=True)  # noqa: T201 - the answer channel


def main() -> None:
    """Find the changes that were asked for, print them, and end."""
    old, new = sys.argv[1:]
    path = b64decode(json.loads(sys.stdin.readline())["path"])
    try:
        with (
            open_descriptor(open_folder(os.fsencode(old))) as one,
            open_descriptor(open_folder(os.fsencode(new))) as other,
        ):
            trees = ChangedTrees(one, other)
            trees.compare(path)
    except OSError as error:
        if error.errno not in {errno.ENOENT, errno.ELOOP, errno.EXDEV}:
            sys.exit(f"{error.filename or path!r}: {error.strerror}")
        link = "a symbolic link is on the way to it"
        print_change_answer({"missing": error.strerror if error.errno == errno.ENOENT else link})
        return
    rows = [
        [change, kind, b64encode(at).decode(), None if to is None else b64encode(to).decode(), what]
        for change, kind, at, to, what in trees.changes()
    ]
    print_change_answer({"done": True, "files": trees.files, "changes": rows, "more": trees.more})


if __name__ == "__main__":
    main()
