"""Lists one folder of a snapshot that is mounted. A program, too: the snapshot's pool may hang.

It needs none of root's rights but to read any folder, and follows nothing: no ``..``, no symbolic link, nothing that is
mounted below. So what lies in a snapshot cannot lead it elsewhere. Names may hold any byte but zero and the slash: they
travel in base64.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import os
import re
import resource
import stat
import sys
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

LOOKED_AT = 50_000
"""Entries of a folder that are looked at, in whatever order it has them; of more only that there are more is told."""

DEEPEST_FOLDER = 256
"""Folders within each other."""

LONGEST_LINK = 200
"""Bytes of a symbolic link's target that are told."""

LISTING_MEMORY = 256 << 20

CONTROL = b".zfs"
"""ZFS's own folder in the root of each file system."""

_ESCAPED = re.compile(r"\\([0-7]{3})")

_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFBLK: "block device",
    stat.S_IFCHR: "character device",
}


def list_folder_argv() -> list[str]:
    """The program that is asked on its standard input (``encode_question``) and prints what ``answer_question``
    gives, in JSON.
    """
    return [sys.executable, "-I", "-S", __file__]


def encode_question(snapshot: str, folder: str, path: bytes, first: int, count: int) -> bytes:
    """Make the question to the child: to list a path below the folder that a snapshot is mounted on, from an entry
    on, so many.
    """
    asked = {"snapshot": snapshot, "folder": folder, "path": _text(path), "first": first, "count": count}
    return json.dumps(asked).encode()


def answer_question(asked: dict[str, Any], mounts: Path = Path("/proc/self/mountinfo")) -> dict[str, Any]:
    """The entries of a folder, folders first and then by name: ``name``, ``kind``, ``size``, ``mtime``, ``link``.

    ``total`` entries were seen; ``more``: there are others. Else an ``error`` in words.
    """
    path = b64decode(asked["path"])
    parts = [part for part in path.split(b"/") if part]
    if len(parts) > DEEPEST_FOLDER or b"\0" in path or any(part in (b".", b"..") for part in parts):
        return {"error": "this is no path of a snapshot"}
    if parts[:1] == [CONTROL]:
        return {"error": "this is ZFS's own folder"}
    try:
        fd = _opened(asked["snapshot"], asked["folder"], parts, mounts)
        return _listed(fd, asked["first"], asked["count"], at_root=not parts)
    except PermissionError:
        return {"error": "it may not be read"}
    except OSError as error:
        return {"error": os.strerror(error.errno) if error.errno else str(error)}


def _opened(snapshot: str, folder: str, parts: list[bytes], mounts: Path) -> int:
    """A descriptor of the folder. Raises OSError, of what leads elsewhere too."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(folder, flags)
    device = os.fstat(fd).st_dev
    if device != _mounted(snapshot, folder, mounts):
        raise OSError(f"{snapshot} is not mounted at {folder} any more")
    for part in parts:
        below = os.open(part, flags, dir_fd=fd)
        os.close(fd)
        fd = below
        if os.fstat(fd).st_dev != device:
            raise OSError("something else is mounted there")
    return fd


def _mounted(snapshot: str, folder: str, mounts: Path) -> int | None:
    """The number of the file system on a folder, if that is the snapshot (proc_pid_mountinfo(5))."""
    found = None
    for line in mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        fields, _, after = line.partition(" - ")
        words, kind = fields.split(" "), after.split(" ")
        if _plain(words[4]) == folder:
            major, minor = map(int, words[2].split(":"))
            # What was mounted last lies on top.
            found = os.makedev(major, minor) if _plain(kind[1]) == snapshot else None
    return found


def _plain(field: str) -> str:
    return _ESCAPED.sub(lambda octal: chr(int(octal[1], 8)), field)


def _listed(fd: int, first: int, count: int, *, at_root: bool) -> dict[str, Any]:
    found: list[tuple[bool, bytes]] = []
    more = False
    with os.scandir(fd) as entries:
        for entry in entries:
            name = os.fsencode(entry.name)
            if at_root and name == CONTROL:
                continue
            if len(found) >= LOOKED_AT:
                more = True
                break
            found.append((not entry.is_dir(follow_symlinks=False), name))
    shown = heapq.nsmallest(first + count, found)[first:]
    return {"entries": [_entry(fd, name) for _, name in shown], "total": len(found), "more": more}


def _entry(fd: int, name: bytes) -> dict[str, Any]:
    known = os.stat(name, dir_fd=fd, follow_symlinks=False)
    link = b""
    if stat.S_ISLNK(known.st_mode):
        with contextlib.suppress(OSError):
            link = os.readlink(name, dir_fd=fd)[:LONGEST_LINK]
    return {
        "name": _text(name),
        "kind": _KINDS.get(stat.S_IFMT(known.st_mode), "unknown"),
        "size": known.st_size if stat.S_ISREG(known.st_mode) else None,
        "mtime": known.st_mtime,
        "link": _text(link),
    }


def _text(name: bytes) -> str:
    return b64encode(name).decode("ascii")


def main() -> None:
    """Answer the one question on standard input."""
    for limit, most in (
        (resource.RLIMIT_AS, LISTING_MEMORY),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
    ):
        resource.setrlimit(limit, (most, most))
    print(json.dumps(answer_question(json.load(sys.stdin))))  # noqa: T201 - its answer


if __name__ == "__main__":
    main()
