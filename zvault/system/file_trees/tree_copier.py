"""Copies trees of files as they are: owners, modes, times, links, ACLs, extended attributes, holes; many at a time.

The folder copied into may be a user's, who changes it meanwhile: so every step goes from one open folder to a name in
it, and follows no link. A file has no name until it is whole (O_TMPFILE), where the file system can do that: whoever
stops the copy finds whole files, and no others.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from zvault.core.integrity.verification import escape_path
from zvault.system.file_trees.file_contents import READ_FLAGS, DigestNotes, copy_range, split_in_ranges
from zvault.system.file_trees.reporter import TreeReporter
from zvault.system.file_trees.target_disks import TargetDisks
from zvault.system.file_trees.task_pool import TaskPool
from zvault.system.open_beneath import (
    ANY_FLAGS,
    FOLDER_FLAGS,
    descriptor_path,
    list_names,
    open_beneath,
    open_descriptor,
)

HIDDEN_FOLDER = b".zfs"

PRIVATE, NODE = b".zvault-", b"node"
"""How the folders begin in which links, devices and fifos are made, and what each is called there."""

_ACLS = ("system.posix_acl_access", "system.posix_acl_default")
_NO_XATTRS = (errno.ENOTSUP, errno.ENODATA)
_NO_UNNAMED_FILES = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)
"""What open(2) says to O_TMPFILE on a file system without it, NFS for one."""


@dataclass
class FolderPair:
    """A folder of the snapshot and the one that it is copied into, both open until all in it is copied.

    ``made``: the copy made it. ``left`` counts entries that are not done, and one more while they are being listed.
    """

    source: int
    target: int
    path: bytes
    parent: FolderPair | None = None
    made: bool = False
    left: int = 1
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, entries: int) -> bool:
        """Add to the entries that are left; tells whether none is any more."""
        with self.lock:
            self.left += entries
            return self.left == 0


@dataclass
class HardLinks:
    """The files with several names: the first name's copy is made, and the other names are linked with it."""

    copied: dict[int, tuple[bytes, tuple[int, int]]] = field(default_factory=dict)
    waiting: dict[int, list[Callable[[], None]]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, inode: int, task: Callable[[], None]) -> bool:
        """Whether this name may be copied or linked now. If not, ``task`` is kept until the first name is done."""
        with self.lock:
            if inode in self.copied:
                return True
            if inode in self.waiting:
                self.waiting[inode].append(task)
                return False
            self.waiting[inode] = []
            return True

    def found(self, inode: int, copy: tuple[bytes, tuple[int, int]]) -> None:
        """Note a copy that an earlier call made, which was stopped before it came to the other names."""
        with self.lock:
            if inode not in self.waiting:
                self.copied.setdefault(inode, copy)

    def end(self, inode: int, copy: tuple[bytes, tuple[int, int]] | None) -> list[Callable[[], None]]:
        """Note the copy of a first name, None where that failed; returns the tasks that waited for it."""
        with self.lock:
            if copy is not None:
                self.copied[inode] = copy
            return self.waiting.pop(inode, [])


@contextlib.contextmanager
def make_private_folder(target: int) -> Iterator[int]:
    """Have a new folder in ``target`` that only this process's user can enter, whoever owns ``target``.

    Raises OSError: EEXIST where somebody put a folder in its place that others can enter, or that is not empty.
    """
    name = PRIVATE + secrets.token_hex(8).encode()
    os.mkdir(name, 0o700, dir_fd=target)
    try:
        with open_descriptor(os.open(name, FOLDER_FLAGS, dir_fd=target)) as folder:
            if not _is_own_and_empty(folder):
                raise OSError(errno.EEXIST, "another folder was put in its place")
            # An ACL that the target hands down to what is made in it lets nobody in: its mask is empty with this mode.
            yield folder
    finally:
        with contextlib.suppress(OSError):  # renamed meanwhile by who owns the target: empty, and root's
            os.rmdir(name, dir_fd=target)


def _is_own_and_empty(folder: int) -> bool:
    there = os.fstat(folder)
    return there.st_uid == os.geteuid() and not stat.S_IMODE(there.st_mode) & 0o077 and not list_names(folder)


@dataclass
class TreeCopier:
    """Copies entries with all below them. ``target`` is the folder at the top.

    What cannot be copied is told, and the others are. ``notes`` gets the hashes of what was read, and ``disks`` the
    file systems below ``target``, which may be several.
    """

    pool: TaskPool
    reporter: TreeReporter
    target: int
    overwrite: bool = False
    notes: DigestNotes = field(default_factory=DigestNotes)
    disks: TargetDisks = field(default_factory=TargetDisks)
    links: HardLinks = field(default_factory=HardLinks)

    def add(self, within: FolderPair, name: bytes, path: bytes) -> None:
        """Have an entry copied; ``within`` counts it already."""
        self.pool.add_file(lambda: self._entry(within, name, path))

    def _entry(self, within: FolderPair, name: bytes, path: bytes) -> None:
        try:
            seen = os.stat(name, dir_fd=within.source, follow_symlinks=False)
            if stat.S_ISDIR(seen.st_mode):
                self.pool.add_folder(lambda: self._folder(within, name, path))
                return
            self.reporter.add(files=1)
            if not self.overwrite and (there := find_entry(within.target, name)) is not None:
                if seen.st_nlink > 1 and stat.S_ISREG(seen.st_mode) and is_same_file(seen, there):
                    self.links.found(seen.st_ino, (path, (there.st_dev, there.st_ino)))
                self._done(within)
                return
        except OSError as error:
            self.failed(path, error.strerror or str(error))
            self._done(within)
            return
        self._begin(seen, within, name, path)

    def _begin(self, seen: os.stat_result, within: FolderPair, name: bytes, path: bytes) -> None:
        """Copy or link a file; of one with several names all but the first wait until that is done."""
        several = seen.st_nlink > 1
        if several and not self.links.begin(seen.st_ino, lambda: self._begin(seen, within, name, path)):
            return
        try:
            if not (several and self._link(seen, name, within.target)):
                if self._file(seen, within, name, path):
                    return  # its ranges are tasks of their own, and the last of them ends it
                self._end(seen, within, name, path)
        except OSError as error:
            self._end(seen, within, name, path, error)
            return
        self._done(within)

    def _end(
        self,
        seen: os.stat_result,
        within: FolderPair,
        name: bytes,
        path: bytes,
        error: OSError | None = None,
    ) -> None:
        """Let the other names of a file go on, and tell why it could not be copied."""
        copy = None
        if error is not None:
            self.failed(path, error.strerror or str(error))
        elif seen.st_nlink > 1:
            with contextlib.suppress(OSError):
                there = os.stat(name, dir_fd=within.target, follow_symlinks=False)
                copy = path, (there.st_dev, there.st_ino)
        if seen.st_nlink > 1:
            for task in self.links.end(seen.st_ino, copy):
                self.pool.add_file(task)
        if error is not None:
            self._done(within)

    def _done(self, folder: FolderPair) -> None:
        """Count an entry as done, and finish each folder of which it was the last."""
        at: FolderPair | None = folder
        while at is not None and at.count(-1):
            self._finish(at)
            at = at.parent

    def _folder(self, within: FolderPair, name: bytes, path: bytes) -> None:
        try:
            folder = self._open(within, name, path)
        except OSError as error:
            self.failed(path, error.strerror or str(error))
            self._done(within)
            return
        try:
            entries = list_names(folder.source)
        except OSError as error:
            self.failed(path, error.strerror or str(error))
            entries = []
        folder.count(len(entries))
        for one in entries:
            self.add(folder, one, path + b"/" + one)
        self._done(folder)

    def _open(self, within: FolderPair, name: bytes, path: bytes) -> FolderPair:
        """Open a folder on both sides, and make it where it is not there.

        Raises OSError, EEXIST where another was put in the place of the one that was made.
        """
        wanted = os.open(name, FOLDER_FLAGS, dir_fd=within.source)
        found = -1
        try:
            made = make_folder(within.target, name)
            found = os.open(name, FOLDER_FLAGS, dir_fd=within.target)
            if made and not _is_own_and_empty(found):
                raise OSError(errno.EEXIST, "another folder was put in its place")
            self.disks.note(found)
        except OSError:
            os.close(wanted)
            if found >= 0:
                os.close(found)
            raise
        return FolderPair(wanted, found, path, within, made)

    def _finish(self, folder: FolderPair) -> None:
        """Give a folder its traits once all in it is copied, and close it, unless it is the one at the top."""
        if folder.parent is None:
            return
        with open_descriptor(folder.source), open_descriptor(folder.target):
            try:
                there, seen = os.fstat(folder.target), os.fstat(folder.source)
                if not folder.made and there.st_uid != seen.st_uid:
                    why = f"the folder that is there belongs to user {there.st_uid}, and stays so"
                    self.failed(folder.path, why)
                    return
                self._traits(folder.source, folder.target, folder.path)
            except OSError as error:
                self.failed(folder.path, error.strerror or str(error))

    def _file(self, seen: os.stat_result, within: FolderPair, name: bytes, path: bytes) -> bool:
        """Copy what is no folder; tells whether ranges of it are still being copied. Raises OSError."""
        if stat.S_ISREG(seen.st_mode):
            copy = FileCopy(self, seen, within, name, path)
            copy.begin()
            return True
        if self.overwrite:
            remove_entry(within.target, name)
        with make_private_folder(within.target) as private:
            # Made and finished where nobody else gets in: a user who owns the target folder could put another of
            # root's files (a disk's node) under this name before its mode is set, and would get access to that.
            if stat.S_ISLNK(seen.st_mode):
                os.symlink(os.readlink(name, dir_fd=within.source), NODE, dir_fd=private)
            else:
                os.mknod(NODE, stat.S_IFMT(seen.st_mode) | 0o600, seen.st_rdev, dir_fd=private)
            try:
                with (
                    open_descriptor(os.open(name, ANY_FLAGS, dir_fd=within.source)) as wanted,
                    open_descriptor(os.open(NODE, ANY_FLAGS, dir_fd=private)) as found,
                ):
                    self._traits(wanted, found, path)
                # Not rename(2): it would replace what is there by now.
                os.link(NODE, name, src_dir_fd=private, dst_dir_fd=within.target, follow_symlinks=False)
            finally:
                os.unlink(NODE, dir_fd=private)
        return False

    def _traits(self, wanted: int, found: int, path: bytes) -> None:
        """Give ``found`` the owner, attributes, mode and times of ``wanted``, in an order that clears none."""
        seen = os.fstat(wanted)
        one, other = descriptor_path(wanted), descriptor_path(found)
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
        known = self.links.copied.get(seen.st_ino)
        if known is None:
            return False
        path, number = known
        try:
            with open_descriptor(open_beneath(self.target, path, ANY_FLAGS)) as first:
                there = os.fstat(first)
                if (there.st_dev, there.st_ino) != number:
                    return False
                if self.overwrite:
                    remove_entry(target, name)
                os.link(descriptor_path(first), name, dst_dir_fd=target, follow_symlinks=True)
        except OSError:
            return False
        return True

    def failed(self, path: bytes, why: str) -> None:
        """Say what is not as it was."""
        self.reporter.say({"failed": f"{escape_path(path)}: {why}"})


@dataclass
class FileCopy:
    """A regular file on its way: its ranges are copied by several threads, and the last of them gives it its name."""

    copier: TreeCopier
    seen: os.stat_result
    within: FolderPair
    name: bytes
    path: bytes
    source: int = -1
    target: int = -1
    unnamed: bool = True
    error: OSError | None = None
    left: int = 0
    digests: list[bytes] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self) -> None:
        """Open both sides, and copy; what is longer than a range in several tasks. Raises OSError with none begun."""
        self.source = os.open(self.name, READ_FLAGS, dir_fd=self.within.source)
        try:
            self.target = self._open_target()
        except OSError:
            os.close(self.source)
            raise
        ranges = split_in_ranges(self.seen.st_size)
        self.left, self.digests = len(ranges), [b""] * len(ranges)
        for number, (start, end) in reversed([*enumerate(ranges)][1:]):
            self.copier.pool.add_file(partial(self._range, number, start, end), next_one=True)
        self._range(0, *ranges[0])

    def _open_target(self) -> int:
        how = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(b".", how | os.O_TMPFILE, 0o600, dir_fd=self.within.target)
        except OSError as error:
            if error.errno not in _NO_UNNAMED_FILES:
                raise
        self.unnamed = False
        if self.copier.overwrite:
            remove_entry(self.within.target, self.name)
        return os.open(self.name, how | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self.within.target)

    def _range(self, number: int, start: int, end: int) -> None:
        try:
            if self.error is None:
                copied, self.digests[number] = copy_range(self.source, self.target, start, end)
                self.copier.reporter.add(size=copied)
        except OSError as error:
            self.error = error
        with self.lock:
            self.left -= 1
            last = not self.left
        if last:
            self._finish()

    def _finish(self) -> None:
        try:
            with open_descriptor(self.source), open_descriptor(self.target):
                try:
                    if self.error is not None:
                        raise self.error
                    os.ftruncate(self.target, self.seen.st_size)
                except OSError:
                    self._take_name_away()
                    raise
                self.copier._traits(self.source, self.target, self.path)
                if self.unnamed:
                    self._give_name()
                self.copier.notes.note(self.seen.st_ino, tuple(self.digests))
        except OSError as error:
            self.error = error
        self.copier._end(self.seen, self.within, self.name, self.path, self.error)
        if self.error is None:
            self.copier._done(self.within)

    def _take_name_away(self) -> None:
        """Remove what was copied in part, where it had its name from the start: the next copy would take it for what
        is there.
        """
        if self.unnamed:
            return
        with contextlib.suppress(OSError):
            mine = os.fstat(self.target)
            there = os.stat(self.name, dir_fd=self.within.target, follow_symlinks=False)
            if (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino):
                os.unlink(self.name, dir_fd=self.within.target)

    def _give_name(self) -> None:
        if self.copier.overwrite:
            remove_entry(self.within.target, self.name)
        # linkat(2) replaces nothing that came meanwhile.
        os.link(descriptor_path(self.target), self.name, dst_dir_fd=self.within.target, follow_symlinks=True)


def find_entry(folder: int | None, name: bytes) -> os.stat_result | None:
    """What has a name in an open folder; None where nothing has, or there is no folder."""
    if folder is None:
        return None
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def make_folder(within: int, name: bytes) -> bool:
    """Make a folder that nobody else can enter; tells whether it was not there. Raises OSError."""
    try:
        os.mkdir(name, 0o700, dir_fd=within)
    except FileExistsError:
        return False
    return True


def remove_entry(folder: int, name: bytes) -> None:
    """Remove what has a name in an open folder, unless it is a folder. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def is_same_file(seen: os.stat_result, found: os.stat_result) -> bool:
    """Whether what is there is as a copy of the snapshot's would be, as far as its inode tells. A copy gets its times
    last. Where a link leads, and what a file holds, the comparison tells.
    """
    sides = [
        (one.st_mode, one.st_uid, one.st_gid, one.st_size, one.st_mtime_ns, one.st_rdev)
        for one in (seen, found)
    ]
    return not stat.S_ISDIR(seen.st_mode) and sides[0] == sides[1]
