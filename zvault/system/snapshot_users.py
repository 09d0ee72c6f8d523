"""Who on this host uses a snapshot: mounts and processes, as /proc shows them.

To ask a process for its command line may wait for that process, which may hang in the kernel with its pool: so it is
asked by a program of its own, with a deadline. This file is that program too, and imports the standard library only.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

USERS_PROC = Path("/proc")
_ESCAPED = re.compile(r"\\([0-7]{3})")


def users_argv(name: str) -> list[str]:
    """The program that prints what ``list_snapshot_users`` finds, a line each."""
    return [sys.executable, "-I", "-S", __file__, name]


def list_snapshot_users(name: str, proc: Path = USERS_PROC) -> list[str]:
    """List what uses the snapshot ``pool/data@snapname``, in words: where it is mounted, which ``zfs send`` reads
    it.
    """
    return [*_mounts(name, proc), *_processes(name, proc)]


def _mounts(name: str, proc: Path) -> Iterator[str]:
    try:
        lines = (proc / "self" / "mounts").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        source, point, *_ = line.split(" ")
        if decode_mount_field(source) == name:
            yield f"mounted at {decode_mount_field(point)}"


def decode_mount_field(field: str) -> str:
    """A field of proc_mounts(5), in which blanks stand in octal."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), field)


def _processes(name: str, proc: Path) -> Iterator[str]:
    """Processes that name it on their command line; a ``zfs send -I`` names only the ends of its range."""
    for folder in proc.iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            argv = (folder / "cmdline").read_text(errors="surrogateescape").split("\0")[:-1]
        except OSError:
            continue  # it has ended
        if argv[:1] and Path(argv[0]).name == "zfs" and name in argv[1:]:
            yield f"'zfs {argv[1]}' reads it (process {folder.name})"


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]
    sys.stdout.writelines(f"{line}\n" for line in list_snapshot_users(sys.argv[1]))
