"""Partitions of block devices, as sysfs has them."""

from __future__ import annotations

from pathlib import Path

SYS = Path("/sys")


def name_whole_device(path: str, sys: Path = SYS) -> str:
    """The device that ``path`` is a partition of (``/dev/nbd0`` for ``/dev/nbd0p1``); itself where it is none.

    Reads sysfs alone, and so never waits for the device.
    """
    found = sys / "class/block" / Path(path).name
    if not path.startswith("/dev/") or not (found / "partition").exists():
        return path
    return f"/dev/{found.resolve().parent.name}"
