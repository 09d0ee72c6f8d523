"""Starts the process that finds what changed between two trees of files (tree_changes_child.py), and reads it."""

from __future__ import annotations

import sys
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from zvault.core.errors import NotFound, ToolFailed
from zvault.system.process.json_child import JsonChild

WALK_DEADLINE = 3600.0
"""Seconds without a word: a directory of a slow vault takes long."""


@dataclass(frozen=True, slots=True)
class TreeChange:
    """A change (zfs/diff.py has the words), by the path below the roots; ``to`` where it was renamed."""

    change: str
    kind: str
    path: bytes
    to: bytes | None
    what: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WalkProgress:
    """The progress of a walk, or its end: ``done``. ``more`` changes were not kept."""

    files: int
    changes: tuple[TreeChange, ...] = ()
    more: int = 0
    done: bool = False


async def walk_tree_changes(old: str, new: str, path: bytes) -> AsyncIterator[WalkProgress]:
    """Find what changed below ``path`` from the folder ``old`` to ``new``, both on this host; the last has all of it.

    Raises NotFound where the path is in neither, or a symbolic link is on the way; ToolFailed, DeadlineExceeded.
    """
    child = await JsonChild.start([sys.executable, "-m", "zvault.system.tree_changes_child", old, new])
    try:
        answer = await child.ask({"path": b64encode(path).decode()}, WALK_DEADLINE)
        while True:
            if "missing" in answer:
                raise NotFound("there is nothing to compare", str(answer["missing"]))
            said = _said(answer)
            yield said
            if said.done:
                return
            answer = await child.read(WALK_DEADLINE)
    finally:
        await child.close()


def _said(answer: dict[str, Any]) -> WalkProgress:
    try:
        changes = tuple(
            TreeChange(change, kind, b64decode(path), None if to is None else b64decode(to), tuple(what))
            for change, kind, path, to, what in answer.get("changes", ())
        )
        return WalkProgress(int(answer["files"]), changes, int(answer.get("more", 0)), "done" in answer)
    except (KeyError, TypeError, ValueError) as error:
        raise ToolFailed("the comparison of trees cannot be understood", str(error)) from None
