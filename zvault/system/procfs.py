"""What /proc shows: who on this host uses a snapshot or a pool, and for how long a process has been running.

To ask a process for its command line may wait for that process, which may hang in the kernel with its pool: so it is
asked by a program of its own, with a deadline. This file is that program too, and imports the standard library only.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from zvault.core.names import parse_name

PROC = Path("/proc")
BLOCK = Path("/sys/class/block")
_ESCAPED = re.compile(r"\\([0-7]{3})")


def users_argv(name: str) -> list[str]:
    """The program that prints what ``snapshot_users`` finds, a line each."""
    return [sys.executable, "-I", "-S", __file__, name]


def snapshot_users(name: str, proc: Path = PROC) -> list[str]:
    """What uses the snapshot ``pool/data@snapname``, in words: where it is mounted, which ``zfs send`` reads it."""
    return [*_mounts(name, proc), *_processes(name, proc)]


def _mounts(name: str, proc: Path) -> Iterator[str]:
    try:
        lines = (proc / "self" / "mounts").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        source, point, *_ = line.split(" ")
        if _plain(source) == name:
            yield f"mounted at {_plain(point)}"


@dataclass(frozen=True, slots=True)
class Mount:
    """A dataset or snapshot that is mounted; of its ``options`` those that a mount may be given again."""

    source: str
    point: str
    options: tuple[str, ...] = ()

    @property
    def is_snapshot(self) -> bool:
        """Whether it is a snapshot's."""
        return "@" in self.source


_KEPT_OPTIONS = {"ro", "rw", "nosuid", "nodev", "noexec", "noatime", "relatime"}


def pool_mounts(pool: str, proc: Path = PROC) -> list[Mount]:
    """What is mounted of a pool's datasets and snapshots, but for snapshots that ZFS mounted itself below ``.zfs``."""
    try:
        lines = (proc / "self" / "mounts").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        source, point, kind, options, *_ = line.split(" ")
        one = Mount(
            _plain(source), _plain(point), tuple(word for word in options.split(",") if word in _KEPT_OPTIONS)
        )
        ours = kind == "zfs" and parse_name(one.source).pool == pool
        if ours and not (one.is_snapshot and "/.zfs/snapshot/" in one.point):
            found.append(one)
    return found


def open_volumes(pool: str, proc: Path = PROC, dev: Path = Path("/dev"), block: Path = BLOCK) -> list[str]:
    """The volumes of a pool that a process has open, is mounted or lies below another device, as paths.

    What the kernel itself has open, as an iSCSI target does, is not seen.
    """
    nodes: dict[str, str] = {}
    for link in sorted((dev / "zvol" / pool).rglob("*")):
        if link.is_symlink():
            nodes[link.readlink().name] = str(link)
    if not nodes:
        return []
    used = {name for name in nodes if any((block / name / "holders").glob("*"))} | _open_devices(proc)
    return [path for name, path in nodes.items() if name in used]


def _open_devices(proc: Path) -> set[str]:
    """The names of the devices that processes have open or that are mounted."""
    found = set()
    for link in proc.glob("[0-9]*/fd/*"):
        try:
            target = str(link.readlink())
        except OSError:
            continue  # it has ended
        if target.startswith("/dev/zd"):
            found.add(Path(target).name)
    with suppress(OSError):
        for line in (proc / "self" / "mounts").read_text(errors="surrogateescape").splitlines():
            if line.startswith("/dev/zd"):
                found.add(Path(line.split(" ")[0]).name)
    return found


def _plain(field: str) -> str:
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


def running_for(process: int, proc: Path = PROC) -> float | None:
    """Seconds since a process began; None where it has ended, or that cannot be told (proc_pid_stat(5))."""
    try:
        ticks = float(
            (proc / str(process) / "stat").read_text(errors="replace").rpartition(")")[2].split()[19]
        )
        uptime = float((proc / "uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return max(0.0, uptime - ticks / os.sysconf("SC_CLK_TCK"))


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]
    sys.stdout.writelines(f"{line}\n" for line in snapshot_users(sys.argv[1]))
