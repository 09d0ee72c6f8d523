"""Opens files below a folder such that no symbolic link, and nobody who changes one meanwhile, leads out of it.

It imports nothing but the standard library. Python has no call for openat2(2).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import struct
from collections.abc import Iterator

_OPENAT2 = 437
_STATX_BTIME, _EMPTY_PATH = 0x800, 0x1000
_STATX_BYTES, _BTIME_AT = 256, 80
"""The size of struct statx, and where the time of birth is in it (statx(2), linux/stat.h)."""
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08

LINKS = 40
"""Symbolic links followed on the way to a folder, as the kernel does (path_resolution(7))."""

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""How a folder is opened to list it and to make things in it."""

ANY_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
"""How anything is opened to ask for its traits, a symbolic link too."""

_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_beneath(root: int, path: bytes, flags: int) -> int:
    """Open a path below the folder ``root``, none of whose parts may be a symbolic link but the last with O_NOFOLLOW.

    Raises OSError: ELOOP for such a link, EXDEV for a way out of ``root``.
    """
    if b"\0" in path:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    how = _OpenHow(flags | os.O_CLOEXEC, 0, _BENEATH | _NO_SYMLINKS | _NO_MAGICLINKS)
    number = ctypes.c_long(_OPENAT2)
    while True:
        found: int = _libc.syscall(
            number, ctypes.c_int(root), ctypes.c_char_p(path), ctypes.byref(how), ctypes.c_size_t(24)
        )
        if found >= 0:
            return found
        code = ctypes.get_errno()
        # Something was renamed meanwhile: the kernel could not tell whether the path stays below.
        if code not in {errno.EAGAIN, errno.EINTR}:
            raise OSError(code, os.strerror(code))


def _is_roots_alone(folder: os.stat_result) -> bool:
    """True if only root and this process's user may rename what is in a folder, or put something there."""
    others = (
        stat.S_IWGRP | stat.S_IWOTH
    )  # a POSIX ACL that lets others write shows in the group's bits (acl(5))
    return folder.st_uid in {0, os.geteuid()} and not folder.st_mode & others


def open_folder(path: bytes) -> int:
    """Open a folder by the path that root gave, and follow only symbolic links that nobody else can have put there.

    A link of root's proves nothing by its owner: whoever may write to a folder on the way can rename such a link, or
    the folder that it is in, so that the path leads elsewhere. Not even a sticky folder (/tmp) keeps others from
    moving one of root's links into it. So no link is followed once the path went through a folder that others may
    write to.

    Raises OSError: ELOOP for a link that is not followed.
    """
    at, links = os.open("/", FOLDER_FLAGS), 0
    reached = _is_roots_alone(os.fstat(at))
    pending = path.split(b"/")[::-1]
    if not path.startswith(b"/"):
        raise OSError(errno.EINVAL, "no absolute path")
    try:
        while pending:
            part = pending.pop()
            if part in {b"", b"."}:
                continue
            found = os.open(part, ANY_FLAGS, dir_fd=at)
            seen = os.fstat(found)
            if not stat.S_ISLNK(seen.st_mode):
                os.close(at)
                at = found
                reached = reached and _is_roots_alone(seen)
                continue
            with open_descriptor(found):
                target = os.readlink("", dir_fd=found)
            links += 1
            if links > LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            if not reached or seen.st_uid not in {0, os.geteuid()}:
                raise OSError(errno.ELOOP, _why_not_followed(os.fsdecode(part), seen.st_uid))
            pending += os.fsencode(target).split(b"/")[::-1]
            if target.startswith("/"):
                # First opened, then closed: where it cannot be, what is closed in the end is not another's by then.
                top = os.open("/", FOLDER_FLAGS)
                os.close(at)
                at = top
        return os.open(".", FOLDER_FLAGS, dir_fd=at)
    finally:
        os.close(at)


def _why_not_followed(name: str, owner: int) -> str:
    if owner not in {0, os.geteuid()}:
        return f"{name} is a link that user {owner} made"
    return f"{name} is a link, and others than root may write to a folder before it"


def read_birth_time(fd: int) -> int | None:
    """Return when an open file was made, in ns since the epoch; None where its file system does not tell."""
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    failed = _libc.statx(
        ctypes.c_int(fd), b"", ctypes.c_int(_EMPTY_PATH), ctypes.c_uint(_STATX_BTIME), buffer
    )
    if failed or not struct.unpack_from("=I", buffer, 0)[0] & _STATX_BTIME:
        return None
    seconds, nanoseconds = struct.unpack_from("=qI", buffer, _BTIME_AT)
    return int(seconds) * 1_000_000_000 + int(nanoseconds)


def descriptor_path(fd: int) -> str:
    """A path that leads to what a descriptor has open, also to a symbolic link itself."""
    return f"/proc/self/fd/{fd}"


@contextlib.contextmanager
def open_descriptor(fd: int) -> Iterator[int]:
    """Have a descriptor for a block."""
    try:
        yield fd
    finally:
        os.close(fd)


def list_names(folder: int) -> list[bytes]:
    """The names in an open folder, in order."""
    return sorted(os.fsencode(name) for name in os.listdir(folder))
