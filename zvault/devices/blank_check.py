"""Whether a device holds anything. zvault makes a pool only on one that does not."""

from __future__ import annotations

import stat
from pathlib import Path

from zvault.core.errors import ToolFailed
from zvault.system.process.runner import ProcessRunner

BLANK_EDGE = 1 << 20
"""Bytes looked at on either end. ZFS keeps its four labels within the first and last 512 KiB."""
BLANK_DEADLINE = 120.0
BLANK_SECTOR = 512

_NOTHING_FOUND = 2
"""blkid(8): "the specified token was not found", and with -p that no signature was."""
_UNCLEAR = 8


async def is_blank(path: str, runner: ProcessRunner) -> tuple[bool, str]:
    """Return whether a device or file holds nothing, and in words what it holds.

    It is blank when libblkid finds no signature and its first and last MiB are zeros. Raises ToolFailed when
    it cannot be read, DeadlineExceeded when it does not answer.
    """
    found = await runner.run(
        ["blkid", "-p", "-o", "export", "--", path], deadline=BLANK_DEADLINE, check=False
    )
    if found.returncode == 0:
        return False, describe_content(found.stdout)
    if found.returncode == _UNCLEAR:
        return False, "signatures of several kinds"
    if found.returncode != _NOTHING_FOUND or found.stderr.strip():
        raise ToolFailed(f"{path} cannot be examined", found.complaint(), "see the kernel's log")
    size = _size(path)
    if not size:
        why = "there is no such device" if size is None else "it has no size"
        raise ToolFailed(f"{path} cannot be examined", why, "see that it is connected")
    for skip in dict.fromkeys((0, max(0, size - BLANK_EDGE))):
        if not await _zeros(path, skip, min(BLANK_EDGE, size), runner):
            return False, "data of no kind that blkid knows"
    return True, "nothing"


def describe_content(export: str) -> str:
    """Say in words what ``blkid -o export`` found: ``zfs_member "cold"``, ``a gpt partition table``."""
    fields = dict(line.split("=", 1) for line in export.splitlines() if "=" in line)
    if "TYPE" in fields:
        label = fields.get("LABEL")
        return fields["TYPE"] + (f' "{label}"' if label else "")
    return f"a {fields['PTTYPE']} partition table" if "PTTYPE" in fields else "a signature that blkid knows"


async def _zeros(path: str, skip: int, count: int, runner: ProcessRunner) -> bool:
    argv = ["cmp", "-s", "-n", str(count), "-i", f"0:{skip}", "--", "/dev/zero", path]
    result = await runner.run(argv, deadline=BLANK_DEADLINE, check=False)
    if result.returncode > 1:
        raise ToolFailed(f"{path} cannot be read", result.complaint(), "see the kernel's log")
    return result.returncode == 0


def _size(path: str) -> int | None:
    """Bytes, from what the kernel knows without asking the device; None where there is nothing."""
    real = Path(path).resolve()
    if not real.exists():
        return None
    if stat.S_ISBLK(real.stat().st_mode):
        return int(Path(f"/sys/class/block/{real.name}/size").read_text(encoding="ascii")) * BLANK_SECTOR
    return real.stat().st_size
