"""Block devices as sysfs has them: nothing here waits for a device."""

from __future__ import annotations

from pathlib import Path

SYS = Path("/sys")
SECTOR = 512
"""Bytes; sysfs counts in these whatever the device's own."""


def name_whole_device(path: str, sys: Path = SYS) -> str:
    """The device that ``path`` is a partition of (``/dev/nbd0`` for ``/dev/nbd0p1``); itself where it is none."""
    found = sys / "class/block" / Path(path).name
    if not path.startswith("/dev/") or not (found / "partition").exists():
        return path
    return f"/dev/{found.resolve().parent.name}"


def is_read_only_device(path: str, sys: Path = SYS) -> bool:
    """Whether the kernel refuses writes to a device, as to one whose server serves it read-only."""
    return _read(path, "ro", sys) == "1"


def find_size(path: str, sys: Path = SYS) -> int | None:
    """A device's bytes; None for what is no block device."""
    text = _read(path, "size", sys)
    return int(text) * SECTOR if text is not None and text.isdecimal() else None


def _read(path: str, name: str, sys: Path) -> str | None:
    if not path.startswith("/dev/"):
        return None
    try:
        return (sys / "class/block" / Path(path).resolve().name / name).read_text(encoding="ascii").strip()
    except OSError:
        return None
