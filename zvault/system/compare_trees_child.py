"""The child process that compares restored files with a snapshot's: ``ROOT FOLDER``, answers in JSON lines.

Its standard input is one line, ``{"names": [...]}``: paths in base64. Those trees are compared with what of them is in
FOLDER, under their own last names; what else is there does not count. With null for names all of ROOT and FOLDER must
be the same. Reading can block in the kernel for long, so it must not happen in the daemon (invariant 7). FOLDER may be
a user's, who changes it meanwhile: no link leads out of it (beneath.py).
"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
import time
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass, field

from zvault.core.integrity.restored import KEPT, FileTraits, differing_traits
from zvault.core.integrity.verification import shown
from zvault.system.beneath import ANY, FOLDER, by_descriptor, names_in, open_beneath, open_folder, opened

BLOCK = 1 << 20
"""Bytes read at a time."""

SAY_EVERY = 1.0
"""Seconds between two reports of progress."""

HIDDEN = b".zfs"

CANNOT_READ = "cannot be read"


def traits(fd: int) -> FileTraits:
    """The traits of an open file. Raises OSError."""
    seen, path = os.fstat(fd), by_descriptor(fd)
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
class Trees:
    """Two trees that are compared, by paths below two open folders.

    ``both``: what only the second one has is a difference too.
    """

    root: int
    folder: int
    both: bool
    files: int = 0
    read: int = 0
    told: int = 0
    _linked: dict[int, tuple[bytes, tuple[int, int]]] = field(default_factory=dict)
    _said: float = 0.0

    def tree(self, wanted: bytes, found: bytes, name: bytes) -> None:
        """Compare a file, or a directory with all below it."""
        pending = [(wanted, found, name)]
        while pending:
            one, other, path = pending.pop()
            if self._entry(one, other, path):
                pending += reversed(list(self._below(one, other, path)))

    def _entry(self, wanted: bytes, found: bytes, name: bytes) -> bool:
        """Compare one entry; tells whether it is a directory on both sides, whose entries are to be compared."""
        self._progress()
        sides = self._traits(wanted, found, name)
        if sides is None:
            return False
        mine, its = sides
        self.files += not stat.S_ISDIR(mine.mode)
        for what, one, other in differing_traits(mine, its):
            self.tell(name, what, one, other)
        if mine.type != its.type or stat.S_ISDIR(mine.mode):
            return mine.type == its.type
        same = self._seen_before(wanted, found, name)
        if stat.S_ISREG(mine.mode) and mine.size == its.size and not same:
            self._content(wanted, found, name)
        return False

    def _traits(self, wanted: bytes, found: bytes, name: bytes) -> tuple[FileTraits, FileTraits] | None:
        """The traits of both; None, and told, where they cannot be read."""
        try:
            with opened(open_beneath(self.root, wanted, ANY)) as fd:
                mine = traits(fd)
        except OSError as error:
            self.tell(name, "traits", "", f"{CANNOT_READ} in the snapshot: {error.strerror}")
            return None
        try:
            with opened(open_beneath(self.folder, found, ANY)) as fd:
                return mine, traits(fd)
        except FileNotFoundError:
            self.tell(name, "missing", self._of_all(wanted, mine), "")
        except OSError as error:
            self.tell(name, "traits", mine.type, f"{CANNOT_READ}: {error.strerror}")
        return None

    def _below(self, wanted: bytes, found: bytes, name: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
        prefix = name + b"/" if name else b""
        try:
            hidden = set() if name else {HIDDEN}
            with opened(open_beneath(self.root, wanted, FOLDER)) as fd:
                names = set(names_in(fd)) - hidden
            with opened(open_beneath(self.folder, found, FOLDER)) as fd:
                there = set(names_in(fd)) - hidden if self.both else set()
        except OSError as error:
            self.tell(name, "entries", "", f"{CANNOT_READ}: {error.strerror}")
            return
        for extra in sorted(there - names):
            self.tell(prefix + extra, "not in the snapshot", "", "")
        for entry in sorted(names):
            yield wanted + b"/" + entry, found + b"/" + entry, prefix + entry

    def _of_all(self, path: bytes, mine: FileTraits) -> str:
        """What is missing, in words; of a directory also how much is below it."""
        if not stat.S_ISDIR(mine.mode):
            return mine.type
        with opened(open_beneath(self.root, path, FOLDER)) as fd:
            count = sum(len(folders) + len(files) for _, folders, files in os.walk(by_descriptor(fd)))
        return f"{mine.type} with {count} below it" if count else mine.type

    def _seen_before(self, wanted: bytes, found: bytes, name: bytes) -> bool:
        """True if this is another name of a file that was compared already; tells where it is no link any more."""
        try:
            with (
                opened(open_beneath(self.root, wanted, ANY)) as one,
                opened(open_beneath(self.folder, found, ANY)) as other,
            ):
                mine, its = os.fstat(one), os.fstat(other)
        except OSError:
            return False  # reading its content tells why
        if mine.st_nlink < 2:
            return False
        number = its.st_dev, its.st_ino
        first, known = self._linked.setdefault(mine.st_ino, (name, number))
        if first == name or number != known:
            if number != known:
                self.tell(name, "hard link", f"the same file as {shown(first)}", "a file of its own")
            return False
        return True

    def _content(self, wanted: bytes, found: bytes, name: bytes) -> None:
        offset, side = 0, " in the snapshot"
        how = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        mine, its = bytearray(BLOCK), bytearray(BLOCK)
        try:
            with open(open_beneath(self.root, wanted, how), "rb", 0) as one:  # noqa: PTH123 - of a descriptor
                side = ""
                with open(open_beneath(self.folder, found, how), "rb", 0) as other:  # noqa: PTH123
                    while True:
                        side = " in the snapshot"
                        count = one.readinto(mine)
                        side = ""
                        if count != other.readinto(its) or mine[:count] != its[:count]:
                            at = next((n for n in range(count) if mine[n] != its[n]), count)
                            self.tell(name, "content", "", f"it differs from byte {offset + at} on")
                            return
                        if not count:
                            return
                        offset += count
                        self.read += count
                        self._progress()
        except OSError as error:
            self.tell(name, "content", "", f"{CANNOT_READ}{side}: {error.strerror}")

    def tell(self, name: bytes, what: str, wanted: str, found: str) -> None:
        """Report a difference; after KEPT of them they are only counted."""
        self.told += 1
        if self.told <= KEPT:
            _say({"unlike": [shown(name) or ".", what, wanted, found]})

    def _progress(self) -> None:
        if time.monotonic() - self._said >= SAY_EVERY:
            self._said = time.monotonic()
            _say({"files": self.files, "bytes": self.read})


def _say(answer: dict[str, object]) -> None:
    print(json.dumps(answer), flush=True)  # noqa: T201 - the answer channel


def main() -> None:
    """Compare the trees that were asked for, print what differs, and end."""
    root, folder = sys.argv[1:]
    names = json.loads(sys.stdin.readline())["names"]
    try:
        with opened(os.open(root, FOLDER)) as wanted, opened(_folder(folder, ours=names is None)) as found:
            _compare(Trees(wanted, found, both=names is None), names)
    except OSError as error:
        sys.exit(f"{error.filename or folder}: {error.strerror}")


def _folder(path: str, *, ours: bool) -> int:
    return os.open(path, FOLDER) if ours else open_folder(os.fsencode(path))


def _compare(trees: Trees, names: list[str] | None) -> None:
    if names is None:
        trees.tree(b".", b".", b"")
    for top in map(b64decode, names or []):
        last = top.rpartition(b"/")[2]
        trees.tree(top, last, last)
    _say({"done": True, "files": trees.files, "bytes": trees.read, "more": max(0, trees.told - KEPT)})


if __name__ == "__main__":
    main()
