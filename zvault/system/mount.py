"""argv that mounts a snapshot read-only, or anything as it was, and takes mounts away (mount(8), mount.zfs(8))."""

from __future__ import annotations

from collections.abc import Sequence

DEADLINE = 120.0
"""Seconds; a mount reads a snapshot's first blocks from a vault that may be slow."""

NOT_THERE = ("not mounted", "no mount point specified", "No such file")
"""What umount says where there is nothing to take away."""


def mount_argv(snapshot: str, folder: str) -> list[str]:
    """Mount one snapshot: nothing in it is run, and no file in it gives anybody rights."""
    return ["mount", "-t", "zfs", "-o", "ro,nosuid,nodev,noexec", snapshot, folder]


def again_argv(source: str, folder: str, options: Sequence[str]) -> list[str]:
    """Mount a dataset or snapshot where it was mounted before, with these options."""
    return ["mount", "-t", "zfs", "-o", ",".join(options) or "defaults", source, folder]


def unmount_argv(folder: str) -> list[str]:
    """Take it away; refused while somebody reads below it."""
    return ["umount", folder]


def folder_argv(folder: str) -> list[str]:
    """Make a folder that only root enters, as a place to mount on."""
    return ["mkdir", "-p", "-m", "700", folder]


def no_folder_argv(folder: str) -> list[str]:
    """Remove it, if it is empty."""
    return ["rmdir", folder]
