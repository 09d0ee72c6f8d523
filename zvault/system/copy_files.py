"""Copies files as they are out of a snapshot into a folder: starts the process that does it (copy_files_child.py)."""

from __future__ import annotations

import sys
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal

from zvault.core.errors import NotFound, ToolFailed
from zvault.system.process.json_child import JsonChild

ANSWER_DEADLINE = 3600.0
"""Seconds without a word: a block or a directory of a slow vault takes long."""

KEPT = 1000
"""Complaints kept of one copy; the others are counted."""


@dataclass(slots=True)
class CopyPlan:
    """The plan of a copy: so many ``files`` and ``bytes``; ``there`` are the paths that the folder has already."""

    tops: list[bytes] = field(default_factory=list)
    there: list[bytes] = field(default_factory=list)
    files: int = 0
    bytes: int = 0


@dataclass(slots=True)
class Copied:
    """The failures of a copy: the first of it in words, and how much there was of it."""

    failed: list[str] = field(default_factory=list)
    failures: int = 0


async def check_folder(folder: str) -> None:
    """See that there is a folder to copy into. Raises NotFound."""
    async with aclosing(_ask("check", "/", folder, None)) as said:
        async for answer in said:
            if "error" in answer:
                raise NotFound(
                    f"there is no folder '{folder}'", str(answer["error"]), f"'mkdir -p {folder}' first"
                )


async def plan(root: str, folder: str, names: Sequence[bytes] | None) -> CopyPlan:
    """Find out what copying ``names`` would do; None is all. Raises NotFound for the first that is not there."""
    found = CopyPlan()
    async with aclosing(_ask("plan", root, folder, names)) as said:
        async for answer in said:
            if "missing" in answer:
                raise NotFound(f"there is no '{answer['missing']}'", str(answer["why"]))
            if "error" in answer:
                raise ToolFailed("the files cannot be listed", str(answer["error"]))
            found.tops += map(b64decode, answer.get("tops", ()))
            found.there += map(b64decode, answer.get("there", ()))
            if "done" in answer:
                found.files, found.bytes = int(answer["files"]), int(answer["bytes"])
    return found


async def copy(root: str, folder: str, names: Sequence[bytes], *, overwrite: bool) -> Copied:
    """Copy the trees named. Without ``overwrite`` what is there stays as it is. Raises ToolFailed, DeadlineExceeded."""
    found = Copied()
    async with aclosing(_ask("copy", root, folder, names, overwrite=overwrite)) as said:
        async for answer in said:
            if "missing" in answer or "error" in answer:
                why = answer.get("error") or f"{answer['missing']}: {answer['why']}"
                raise ToolFailed(f"cannot copy to {folder}", str(why))
            if "failed" in answer:
                found.failures += 1
                found.failed += [str(answer["failed"])] if len(found.failed) < KEPT else []
    return found


async def _ask(
    act: Literal["check", "plan", "copy"],
    root: str,
    folder: str,
    names: Sequence[bytes] | None,
    *,
    overwrite: bool = False,
) -> AsyncGenerator[dict[str, Any], None]:
    """What the child says, to its end."""
    child = await JsonChild.start([sys.executable, "-m", "zvault.system.copy_files_child", root, folder])
    task = {
        "act": act,
        "overwrite": overwrite,
        "names": None if names is None else [b64encode(name).decode() for name in names],
    }
    try:
        answer = await child.ask(task, ANSWER_DEADLINE)
        while not answer.keys() & {"done", "error", "missing"}:
            yield answer
            answer = await child.read(ANSWER_DEADLINE)
        yield answer
    finally:
        await child.close()
