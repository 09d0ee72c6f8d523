"""Landlock (landlock(7)): a process gives up the file system for itself, but for what it names. For root too.

Below the user and the capabilities of a process, and without a file system view of its own. What is in force is in
force for the thread that asked for it and whatever that starts afterwards, until its end.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""Of every architecture (asm-generic/unistd.h)."""

_GIVE_VERSION = 1
_PATH_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = (1 << bit for bit in range(4))
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
"""What can be allowed of a file; the rest is of folders."""

_SINCE = {1: 13, 2: 14, 3: 15, 5: 16}
"""How many rights to files and folders are known, by the version since which they are."""

_BIND_TCP = 1 << 0
_NETWORK_SINCE, _SCOPE_SINCE = 4, 6
_SCOPES = 0b11
"""Abstract sockets and signals, of processes that are not as restricted."""

READ_RIGHTS = _EXECUTE | _READ_FILE | _READ_DIR
WRITE = ~(_EXECUTE | _MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV)
"""All but to run it, and to make devices."""


def read_landlock_version() -> int:
    """The kernel's version of Landlock; 0 where it has none, it is turned off, or this unit may not ask."""
    try:
        return _call(_CREATE_RULESET, None, 0, _GIVE_VERSION)
    except OSError:
        return 0


def list_known_rights(version: int) -> int:
    """The rights to files and folders that a version knows, as bits."""
    return (1 << max(count for since, count in _SINCE.items() if since <= version)) - 1


def restrict_paths(rights: Mapping[Path, int]) -> bool:
    """Keep this thread, and what it starts, to these paths with all below them; False where the kernel cannot.

    What of the paths is not there is left out. No process outside can be traced; where the kernel knows that too, none
    can be sent a signal, and no TCP port can be listened on. Raises OSError where the kernel has it and refuses: then
    nothing is given up.
    """
    has = read_landlock_version()
    if has < 1:
        return False
    handled = list_known_rights(has)
    fields = [handled]
    if has >= _NETWORK_SINCE:
        fields.append(_BIND_TCP)
    if has >= _SCOPE_SINCE:
        fields.append(_SCOPES)
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    ruleset = _call(_CREATE_RULESET, attributes, len(attributes), 0)
    try:
        for path, allowed in rights.items():
            _allow(ruleset, path, allowed & handled)
        _no_new_privileges()
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return True


def grant_read(paths: Iterable[Path]) -> dict[Path, int]:
    """Rights to read these, and run what is there."""
    return dict.fromkeys(paths, READ_RIGHTS)


def grant_write(paths: Iterable[Path]) -> dict[Path, int]:
    """Rights to read these, and change what is there."""
    return dict.fromkeys(paths, WRITE)


def _allow(ruleset: int, path: Path, allowed: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            allowed &= _FILES
        rule = struct.pack("=Qi", allowed, fd)
        _call(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    finally:
        os.close(fd)


def _no_new_privileges() -> None:
    # Without it the kernel wants CAP_SYS_ADMIN.
    if _libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _call(number: int, *arguments: int | bytes | None) -> int:
    """A system call. Raises OSError."""
    words = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    result = int(_libc().syscall(ctypes.c_long(number), *words))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code) if code != errno.EOPNOTSUPP else "Landlock is turned off")
    return result


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc
