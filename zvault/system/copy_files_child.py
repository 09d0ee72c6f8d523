"""The child process that copies files out of a snapshot: ``ROOT FOLDER``, answers in JSON lines.

Its standard input is one line, ``{"act": "plan" or "copy", "names": [...], "overwrite": false}``: names are paths below
ROOT in base64, null for all of it. Each is copied with all below it into FOLDER, under its own last name. The folder
may be a user's, who changes it meanwhile: so every step goes from one open folder to a name in it, and follows no link.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import stat
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field

from zvault.core.integrity.verification import shown
from zvault.system.beneath import ANY, FOLDER, by_descriptor, names_in, open_beneath, open_folder, opened

BLOCK = 1 << 20
"""Bytes copied at a time."""

SAY_EVERY = 1.0
"""Seconds between two reports of progress."""

BATCH = 1000
"""Names in one answer."""

HIDDEN = b".zfs"

PRIVATE, NODE = b".zvault-", b"node"
"""How the folders begin in which links, devices and fifos are made, and what each is called there."""

_ACLS = ("system.posix_acl_access", "system.posix_acl_default")
_NO_XATTRS = (errno.ENOTSUP, errno.ENODATA)


def tops_of(root: int, names: list[bytes] | None) -> list[bytes]:
    """Return the trees to copy: ``names``, or what stands right below the root."""
    return [name for name in names_in(root) if name != HIDDEN] if names is None else names


@dataclass
class Reporter:
    """Says how it goes."""

    files: int = 0
    bytes: int = 0
    _said: float = field(default_factory=time.monotonic)

    def progress(self) -> None:
        """Say how far it is, now and then."""
        if time.monotonic() - self._said >= SAY_EVERY:
            self._said = time.monotonic()
            say({"files": self.files, "bytes": self.bytes})


@dataclass
class Planner(Reporter):
    """Counts what there is to copy, and finds what is in the folder already."""

    there: list[bytes] = field(default_factory=list)

    def entry(self, source: int, name: bytes, target: int | None, path: bytes) -> None:
        """Count one entry with all below it; ``target`` is the folder that it would be copied into, if it is there."""
        self.progress()
        seen = os.stat(name, dir_fd=source, follow_symlinks=False)
        found = _found(target, name)
        if not stat.S_ISDIR(seen.st_mode):
            self.files += 1
            self.bytes += seen.st_size
            if found is not None:
                self._exists(path)
            return
        if found is not None and not stat.S_ISDIR(found.st_mode):
            self._exists(path)
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(opened(os.open(name, FOLDER, dir_fd=source)))
            below: int | None = None
            if found is not None and stat.S_ISDIR(found.st_mode):
                with contextlib.suppress(OSError):
                    below = stack.enter_context(opened(os.open(name, FOLDER, dir_fd=target)))
            for one in names_in(folder):
                self.entry(folder, one, below, path + b"/" + one)

    def _exists(self, path: bytes) -> None:
        self.there.append(path)
        if len(self.there) >= BATCH:
            self.flush()

    def flush(self) -> None:
        """Say which files are there already."""
        say({"there": [b64encode(path).decode() for path in self.there]})
        self.there = []


def _found(folder: int | None, name: bytes) -> os.stat_result | None:
    if folder is None:
        return None
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def _private_folder(target: int) -> Iterator[int]:
    """Have a new folder in ``target`` that only this process's user can enter, whoever owns ``target``.

    Raises OSError: EEXIST where somebody put a folder in its place that others can enter, or that is not empty.
    """
    name = PRIVATE + secrets.token_hex(8).encode()
    os.mkdir(name, 0o700, dir_fd=target)
    try:
        with opened(os.open(name, FOLDER, dir_fd=target)) as folder:
            there = os.fstat(folder)
            if there.st_uid != os.geteuid() or stat.S_IMODE(there.st_mode) & 0o077 or names_in(folder):
                raise OSError(errno.EEXIST, "another folder was put in its place")
            # An ACL that the target hands down to what is made in it lets nobody in: its mask is empty with this mode.
            yield folder
    finally:
        with contextlib.suppress(OSError):  # renamed meanwhile by who owns the target: empty, and root's
            os.rmdir(name, dir_fd=target)


@dataclass
class Copier(Reporter):
    """Copies entries as they are: owners, modes, times, links, ACLs, extended attributes, holes.

    ``target`` is the folder at the top. What cannot be copied is told, and the others are.
    """

    target: int = -1
    overwrite: bool = False
    _linked: dict[int, tuple[bytes, tuple[int, int]]] = field(default_factory=dict)

    def entry(self, source: int, name: bytes, target: int, path: bytes) -> None:
        """Copy one entry with all below it from one open folder into another."""
        self.progress()
        try:
            seen = os.stat(name, dir_fd=source, follow_symlinks=False)
            if stat.S_ISDIR(seen.st_mode):
                self._folder(source, name, target, path)
                return
            self.files += 1
            if _found(target, name) is not None:
                if not self.overwrite:
                    return
                os.unlink(name, dir_fd=target)
            if not self._link(seen, name, target):
                self._file(seen, source, name, target)
                self._note_link(seen, name, target, path)
        except OSError as error:
            self.failed(path, error.strerror or str(error))

    def _folder(self, source: int, name: bytes, target: int, path: bytes) -> None:
        with opened(os.open(name, FOLDER, dir_fd=source)) as wanted:
            made = True
            try:
                os.mkdir(name, 0o700, dir_fd=target)
            except FileExistsError:
                made = False
            with opened(os.open(name, FOLDER, dir_fd=target)) as found:
                there, seen = os.fstat(found), os.fstat(wanted)
                if made and (
                    there.st_uid != os.geteuid() or stat.S_IMODE(there.st_mode) & 0o077 or names_in(found)
                ):
                    self.failed(path, "another folder was put in its place")
                    return
                for one in names_in(wanted):
                    self.entry(wanted, one, found, path + b"/" + one)
                if not made and there.st_uid != seen.st_uid:
                    self.failed(
                        path, f"the folder that is there belongs to user {there.st_uid}, and stays so"
                    )
                    return
                self._traits(wanted, found, path)

    def _file(self, seen: os.stat_result, source: int, name: bytes, target: int) -> None:
        if stat.S_ISREG(seen.st_mode):
            how = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            new = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with (
                opened(os.open(name, how, dir_fd=source)) as wanted,
                opened(os.open(name, new, 0o600, dir_fd=target)) as found,
            ):
                self._content(wanted, found, seen.st_size)
                self._traits(wanted, found, name)
            return
        with _private_folder(target) as private:
            # Made and finished where nobody else gets in: a user who owns the target folder could put another of
            # root's files (a disk's node) under this name before its mode is set, and would get access to that.
            if stat.S_ISLNK(seen.st_mode):
                os.symlink(os.readlink(name, dir_fd=source), NODE, dir_fd=private)
            else:
                os.mknod(NODE, stat.S_IFMT(seen.st_mode) | 0o600, seen.st_rdev, dir_fd=private)
            try:
                with (
                    opened(os.open(name, ANY, dir_fd=source)) as wanted,
                    opened(os.open(NODE, ANY, dir_fd=private)) as found,
                ):
                    self._traits(wanted, found, name)
                # Not rename(2): it would replace what is there by now.
                os.link(NODE, name, src_dir_fd=private, dst_dir_fd=target, follow_symlinks=False)
            finally:
                os.unlink(NODE, dir_fd=private)

    def _content(self, wanted: int, found: int, size: int) -> None:
        """Copy the content; holes stay holes."""
        at, block = 0, bytearray(BLOCK)
        while at < size:
            try:
                start = os.lseek(wanted, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                break
            end = min(size, os.lseek(wanted, start, os.SEEK_HOLE))
            at = start
            while at < end:
                view = memoryview(block)[: min(BLOCK, end - at)]
                count = os.preadv(wanted, [view], at)
                if not count:
                    raise OSError(errno.EIO, "it ended before its size")
                done = 0
                while done < count:
                    done += os.pwrite(found, view[done:count], at + done)
                at += count
                self.bytes += count
                self.progress()
        os.ftruncate(found, size)

    def _traits(self, wanted: int, found: int, path: bytes) -> None:
        """Give ``found`` the owner, attributes, mode and times of ``wanted``, in an order that clears none."""
        seen = os.fstat(wanted)
        one, other = by_descriptor(wanted), by_descriptor(found)
        os.chown(other, seen.st_uid, seen.st_gid)
        self._attributes(one, other, path)
        if not stat.S_ISLNK(seen.st_mode):
            os.chmod(other, stat.S_IMODE(seen.st_mode))  # noqa: PTH101 - what it leads to is no path
        os.utime(other, ns=(seen.st_atime_ns, seen.st_mtime_ns))

    def _attributes(self, wanted: str, found: str, path: bytes) -> None:
        try:
            names = os.listxattr(wanted)
        except OSError as error:
            if error.errno not in _NO_XATTRS:
                raise
            names = []
        for name in (acl for acl in _ACLS if acl not in names):
            # One that a folder hands down to what is made in it.
            with contextlib.suppress(OSError):
                os.removexattr(found, name)
        for name in names:
            try:
                os.setxattr(found, name, os.getxattr(wanted, name))
            except OSError as error:
                self.failed(path, f"its attribute {name}: {error.strerror}")

    def _link(self, seen: os.stat_result, name: bytes, target: int) -> bool:
        """Link it with what was copied of the same file before; False where nothing was, or it is no more there."""
        known = self._linked.get(seen.st_ino) if seen.st_nlink > 1 else None
        if known is None:
            return False
        path, number = known
        try:
            with opened(open_beneath(self.target, path, ANY)) as first:
                there = os.fstat(first)
                if (there.st_dev, there.st_ino) != number:
                    return False
                os.link(by_descriptor(first), name, dst_dir_fd=target, follow_symlinks=True)
        except OSError:
            return False
        return True

    def _note_link(self, seen: os.stat_result, name: bytes, target: int, path: bytes) -> None:
        if seen.st_nlink > 1:
            there = os.stat(name, dir_fd=target, follow_symlinks=False)
            self._linked[seen.st_ino] = path, (there.st_dev, there.st_ino)

    @staticmethod
    def failed(path: bytes, why: str) -> None:
        """Say what is not as it was."""
        say({"failed": f"{shown(path)}: {why}"})


def say(answer: dict[str, object]) -> None:
    """Print one answer, as a line of JSON, for the process that asked."""
    print(json.dumps(answer), flush=True)  # noqa: T201 - the answer channel


def each(root: int, tops: list[bytes]) -> Iterator[tuple[int, bytes]]:
    """The open folder and the last name of each of the trees. Raises OSError with the tree's name."""
    for top in tops:
        folder, _, last = top.rpartition(b"/")
        try:
            with opened(open_beneath(root, folder or b".", FOLDER)) as above:
                os.stat(last, dir_fd=above, follow_symlinks=False)
                yield above, last
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.EXDEV}:
                say({"missing": shown(top), "why": _why(error)})
                return
            raise


def _why(error: OSError) -> str:
    if error.errno in {errno.ELOOP, errno.EXDEV}:
        return "a symbolic link is on the way to it"
    return error.strerror or str(error)


def plan(root: int, folder: int, names: list[bytes] | None) -> None:
    """Say what there is to copy."""
    tops, planner = tops_of(root, names), Planner()
    for above, last in each(root, tops):
        planner.entry(above, last, folder, b"./" + last)
    planner.flush()
    say({"tops": [b64encode(top).decode() for top in tops]})
    say({"done": True, "files": planner.files, "bytes": planner.bytes})


def copy(root: int, folder: int, names: list[bytes] | None, *, overwrite: bool) -> None:
    """Copy, and say what could not be."""
    copier = Copier(target=folder, overwrite=overwrite)
    for above, last in each(root, tops_of(root, names)):
        copier.entry(above, last, folder, last)
    say({"done": True, "files": copier.files, "bytes": copier.bytes})


def main() -> None:
    """Do what the line on standard input asks for, and end."""
    sys.setrecursionlimit(20_000)  # a path may have 2048 parts
    os.umask(0o077)
    task = json.loads(sys.stdin.readline())
    names = None if task["names"] is None else [b64decode(name) for name in task["names"]]
    try:
        with opened(open_folder(os.fsencode(sys.argv[2]))) as folder:
            if task["act"] == "check":
                if not os.access(by_descriptor(folder), os.W_OK):
                    raise OSError(errno.EACCES, "it cannot be written to")
                say({"done": True, "files": 0, "bytes": 0})
                return
            with opened(os.open(sys.argv[1], FOLDER)) as root:
                if task["act"] == "plan":
                    plan(root, folder, names)
                else:
                    copy(root, folder, names, overwrite=task["overwrite"])
    except OSError as error:
        say({"error": error.strerror or str(error)})


if __name__ == "__main__":
    main()
