"""Block devices as sysfs has them: nothing here waits for a device."""

from __future__ import annotations

from pathlib import Path

SYS = Path("/sys")
BY_LABEL = Path("/dev/disk/by-label")
"""Links that udev makes to what has a label; to a pool's disk one with the pool's name."""
SECTOR = 512
"""Bytes; sysfs counts in these whatever the device's own."""


def name_whole_device(path: str, sys: Path = SYS) -> str:
    """The device that ``path`` is a partition of (``/dev/nbd0`` for ``/dev/nbd0p1``); itself where it is none."""
    found = sys / "class/block" / Path(path).name
    if not path.startswith("/dev/") or not (found / "partition").exists():
        return path
    return f"/dev/{found.resolve().parent.name}"


def has_label_link(label: str, folder: Path | None = None) -> bool:
    """Whether udev has found a disk with this label: a file system, or a pool of this name, imported or not.

    Opens no device. blkid reads the pool's name, and udev writes all but a few characters as ``\\x20``
    (encode_devnode_name in systemd's device-nodes.c).
    """
    written = "".join(
        one if one.isalnum() or one in "#+-.:=@_" or not one.isascii() else f"\\x{ord(one):02x}"
        for one in label
    )
    return ((folder or BY_LABEL) / written).exists()


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
