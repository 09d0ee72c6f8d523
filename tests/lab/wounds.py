"""Damage to a vault, done where it lies: bytes of its image are changed behind everybody's back."""

from __future__ import annotations

import os
import re
from pathlib import Path

from world import eventually, ok, sh

LABELS = 4 << 20
"""Bytes in front of a vdev's first block: two labels and the boot block (vdev_impl.h)."""

Extent = tuple[int, int]
"""Offset and size of a block on its vdev."""


def number(path: Path) -> int:
    """A file's object: its inode number, the same on source and vault."""
    return path.stat().st_ino


def blocks(place: str, number: int, level: int = 0) -> list[list[Extent]]:
    """The copies of each block of an object, as zdb tells; the pool must be imported."""
    pool = re.split("[/@]", place)[0]
    devices = re.findall(r"(/\S+)", sh("zpool", "list", "-vHPL", "-o", "name", pool))
    search = [word for device in devices for word in ("-p", device)]

    def look() -> str:
        return sh("zdb", "-e", *search, "-dddddd", place, str(number), check=False)

    text = eventually("zdb's words", lambda: out if "Indirect blocks" in (out := look()) else "")
    found = []
    for line in text.splitlines():
        match = re.match(r"\s*[0-9a-f]+\s+L(\d)\s+((?:0:[0-9a-f]+:[0-9a-f]+ ?)+)", line)
        if match and int(match[1]) == level:
            copies = [one.split(":") for one in match[2].split()]
            found.append([(int(offset, 16), int(size, 16)) for _, offset, size in copies])
    return found


def start_of(device: str) -> int:
    """Where on the disk a vdev begins: a partition's first byte."""
    name = Path(device).resolve().name
    start = Path(f"/sys/class/block/{name}/start")
    return int(start.read_text()) * 512 if start.exists() else 0


def places(*wanted: tuple[str, int, int, int]) -> list[Extent]:
    """Where on the disk all copies of blocks lie, each given as place, object, level and index; the vault is up."""
    pool = wanted[0][0].split("/")[0]
    device = re.findall(r"(/\S+)", sh("zpool", "list", "-vHPL", "-o", "name", pool))[0]
    start = start_of(device) + LABELS
    copies = [
        copy for place, object_, level, index in wanted for copy in blocks(place, object_, level)[index]
    ]
    return [(start + offset, size) for offset, size in copies]


def smash(image: Path, *extents: Extent) -> None:
    """Overwrite the beginning of each."""
    with image.open("r+b") as file:
        for offset, _ in extents:
            file.seek(offset)
            file.write(os.urandom(64))
        file.flush()
        os.fsync(file.fileno())


def hurt(image: Path, *wanted: tuple[str, int, int, int]) -> None:
    """Damage blocks while the vault is down."""
    ok("vault", "up", "cold")
    found = places(*wanted)
    ok("vault", "down", "cold")
    smash(image, *found)
