"""Versions of files over the snapshots of a dataset: which are the same, and from when until when. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from zvault.core.integrity.verification import TreeEntry
from zvault.core.model import Snapshot


@dataclass(frozen=True, slots=True)
class FileVersion:
    """One state of a file, in the snapshots from ``first`` to ``last``, which are ``count``.

    ``entry`` is None while the file is not there at all.
    """

    path: bytes
    entry: TreeEntry | None
    first: Snapshot
    last: Snapshot
    count: int = 1

    def same(self, entry: TreeEntry | None) -> bool:
        """True if the file as it is in another snapshot is this version. Contents that change change the mtime."""
        mine, its = (
            (one.number, one.kind, one.size, one.mtime, one.link) if one is not None else None
            for one in (self.entry, entry)
        )
        return mine == its


@dataclass(slots=True)
class VersionTimeline:
    """The versions of files, snapshot by snapshot, the oldest first; what is not there counts as one, too, once it was.

    ``snapshots`` are those that were looked into.
    """

    snapshots: list[Snapshot] = field(default_factory=list)
    _found: dict[bytes, list[FileVersion]] = field(default_factory=dict)

    def add(self, snap: Snapshot, entries: Mapping[bytes, TreeEntry]) -> None:
        """Take in the entries that were found in the next snapshot."""
        self.snapshots.append(snap)
        for path in self._found.keys() | entries.keys():
            of = self._found.setdefault(path, [])
            entry = entries.get(path)
            if of and of[-1].same(entry):
                of[-1] = replace(of[-1], last=snap, count=of[-1].count + 1)
            else:
                of.append(FileVersion(path, entry, snap, snap))

    @property
    def paths(self) -> list[bytes]:
        """All that was found in any snapshot."""
        return sorted(self._found)

    def of(self, path: bytes) -> list[FileVersion]:
        """The versions of one path, the oldest first, since it was first seen."""
        return list(self._found.get(path, ()))


def fold_versions(seen: Sequence[tuple[Snapshot, Mapping[bytes, TreeEntry]]]) -> list[FileVersion]:
    """The versions of every file that was seen, by path, the newest first; unchanged ones folded.

    ``seen`` gives for each snapshot, oldest first, what was found in it.
    """
    found = VersionTimeline()
    for snap, entries in seen:
        found.add(snap, entries)
    return [one for path in found.paths for one in reversed(found.of(path)) if one.entry is not None]


def matches_path(pattern: str, path: bytes) -> bool:
    """True if a path below a dataset's root is meant by a pattern.

    A pattern without ``/`` is a name anywhere in the tree, with one it is a path from the root; ``*`` and ``?`` stay
    within a name, ``**`` crosses them. What is below a folder that matches is not meant itself.
    """
    name = path.rpartition(b"/")[2] if "/" not in pattern.strip("/") else path
    return _compiled(pattern.strip("/")).fullmatch(name) is not None


@lru_cache(maxsize=16)
def _compiled(pattern: str) -> re.Pattern[bytes]:
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    signs = {"**/": b"(?:[^/]+/)*", "**": b".*", "*": b"[^/]*", "?": b"[^/]"}
    regex = b"".join(signs.get(part) or re.escape(part.encode(errors="surrogateescape")) for part in parts)
    return re.compile(regex, re.DOTALL)
