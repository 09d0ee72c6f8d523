"""``zfs diff``: which paths of a mounted dataset changed between two of its snapshots (zfs-diff(8))."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from zvault.core.errors import ToolFailed
from zvault.core.integrity.path_text import decode_octal_path
from zvault.system.process.runner import ToolRunner

ZFS_DIFF_DEADLINE = 3600.0
"""Seconds: every object that changed is looked up."""

PathChangeKind = Literal["created", "removed", "modified", "renamed"]

_SIGNS: dict[str, PathChangeKind] = {"+": "created", "-": "removed", "M": "modified", "R": "renamed"}

_LETTERS = {"F": "f", "/": "d", "@": "l", "|": "p", "=": "s", "B": "b", "C": "c"}
"""By the letters of ``-F``, those of find."""


@dataclass(frozen=True, slots=True)
class PathChange:
    """A path that is not the same, below the dataset's root; ``to`` is where it is now if it was renamed.

    ``kind`` is find's letter; ``what`` of it differs, as far as that is known.
    """

    change: PathChangeKind
    kind: str
    path: bytes
    to: bytes | None = None
    what: tuple[str, ...] = ()

    def invert(self) -> PathChange:
        """The same seen from the other end."""
        if self.to is not None:
            return PathChange(self.change, self.kind, self.to, self.path, self.what)
        other: dict[PathChangeKind, PathChangeKind] = {"created": "removed", "removed": "created"}
        return PathChange(other.get(self.change, self.change), self.kind, self.path, None, self.what)


def diff_argv(old: str, new: str) -> list[str]:
    """Tabs between the columns, and the kind of file in one; ``old`` is the earlier snapshot."""
    return ["zfs", "diff", "-FH", old, new]


def parse_diff(text: str, mountpoint: str) -> list[PathChange]:
    """Parse what 'zfs diff' printed of a dataset that is mounted there.

    Raises ValueError for what cannot be understood.
    """
    return list(_changes(text, mountpoint.rstrip("/").encode(errors="surrogateescape")))


def _changes(text: str, top: bytes) -> Iterator[PathChange]:
    for line in text.splitlines():
        sign, letter, path, *more = line.split("\t")
        to = more[0] if sign == "R" else None
        there = None if to is None else _below(to, top)
        yield PathChange(_SIGNS[sign], _LETTERS.get(letter, "?"), _below(path, top), there)


def _below(text: str, top: bytes) -> bytes:
    path = decode_octal_path(text)
    if path != top and not path.startswith(top + b"/"):
        raise ValueError(f"{text!r} is not below the mount point")
    return path[len(top) :].strip(b"/")


async def list_path_changes(host: ToolRunner, old: str, new: str, mountpoint: str) -> list[PathChange]:
    """Return what changed from an earlier snapshot to a later one. Raises ToolFailed, also where not all could be
    told.
    """
    done = await host.run(diff_argv(old, new), deadline=ZFS_DIFF_DEADLINE, check=False)
    if done.returncode != 0:
        raise ToolFailed(f"'zfs diff' of {old} and {new} failed", done.complaint())
    try:
        return parse_diff(done.stdout, mountpoint)
    except (ValueError, KeyError, IndexError) as error:
        raise ToolFailed(f"'zfs diff' of {old} and {new} cannot be understood", str(error)) from None
