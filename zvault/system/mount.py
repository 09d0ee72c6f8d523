"""Mount points, and argv that mounts a snapshot, or anything as it was, and unmounts it (mount(8), mount.zfs(8))."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

MOUNTS = Path("/proc/self/mountinfo")
FSTAB = Path("/etc/fstab")
_ESCAPED = re.compile(r"\\([0-7]{3})")

MOUNT_DEADLINE = 120.0
"""Seconds; a mount reads a snapshot's first blocks from a vault that may be slow."""

NOT_MOUNTED_WORDS = ("not mounted", "no mount point specified", "No such file")
"""What umount says where there is nothing to take away."""


def mount_argv(snapshot: str, folder: str) -> list[str]:
    """Mount one snapshot: nothing in it is run, and no file in it gives anybody rights."""
    return ["mount", "-t", "zfs", "-o", "ro,nosuid,nodev,noexec", snapshot, folder]


def mount_again_argv(source: str, folder: str, options: Sequence[str]) -> list[str]:
    """Mount a dataset or snapshot where it was mounted before, with these options."""
    return ["mount", "-t", "zfs", "-o", ",".join(options) or "defaults", source, folder]


def unmount_argv(folder: str) -> list[str]:
    """Take it away; refused while somebody reads below it."""
    return ["umount", folder]


def make_folder_argv(folder: str) -> list[str]:
    """Make a folder that only root enters, as a place to mount on."""
    return ["mkdir", "-p", "-m", "700", folder]


def remove_folder_argv(folder: str) -> list[str]:
    """Remove it, if it is empty."""
    return ["rmdir", folder]


def is_mount_point(folder: str, mounts: Path = MOUNTS) -> bool:
    """True if anything is mounted on a folder, by its plain path. Asks the kernel's list only, never what is mounted:
    that may hang.
    """
    wanted = folder.rstrip("/") or "/"
    lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    return any(_plain(line.split(" ")[4]) == wanted for line in lines)


def find_mount_point(path: str, mounts: Path = MOUNTS) -> str:
    """Find what a file or folder would be on, by its plain path and the kernel's list: the mount point nearest
    above it.
    """
    lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    points = (_plain(line.split(" ")[4]) for line in lines)
    above = [point for point in points if PurePosixPath(path).is_relative_to(point)]
    return max(above, key=len, default="/")


def is_mounted_at_start(point: str, table: Path = FSTAB) -> bool:
    """True if a host does not start without what is mounted there: fstab(5) has it, and may not go on without it."""
    try:
        lines = table.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return False
    fields = [line.split() for line in lines if not line.lstrip().startswith("#")]
    options = [set(one[3].split(",")) for one in fields if len(one) > 3 and _plain(one[1]) == point]
    return any(not found & {"nofail", "noauto"} for found in options)


def _plain(field: str) -> str:
    """A path of proc_pid_mountinfo(5), in which blanks stand in octal."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), field)
