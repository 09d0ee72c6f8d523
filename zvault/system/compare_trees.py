"""Starts the process that compares two trees of files (compare_trees_child.py), and reads what it says."""

from __future__ import annotations

import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from zvault.core.errors import ToolFailed
from zvault.system.process.json_child import JsonChild

ANSWER_DEADLINE = 3600.0
"""Seconds without a word: one block of a slow vault that reads ahead, or a directory of a million files, takes long."""


@dataclass(frozen=True, slots=True)
class CompareReport:
    """One report. ``unlike`` is (path, what, wanted, found) of a difference; ``more`` counts those not reported."""

    files: int = 0
    bytes: int = 0
    unlike: tuple[str, str, str, str] | None = None
    done: bool = False
    more: int = 0


def argv(root: str, folder: str) -> list[str]:
    """The process that compares ``root`` with ``folder``."""
    return [sys.executable, "-m", "zvault.system.compare_trees_child", root, folder]


async def compare(
    root: str, folder: str, names: Sequence[bytes] | None = None
) -> AsyncIterator[CompareReport]:
    """Compare trees and yield reports until it has ended. ``names`` are trees below ``root`` that were copied into
    ``folder``.

    Without, all of both must be the same. Raises ToolFailed, DeadlineExceeded.
    """
    child = await JsonChild.start(argv(root, folder))
    try:
        request = {"names": None if names is None else [b64encode(name).decode() for name in names]}
        answer = await child.ask(request, ANSWER_DEADLINE)
        while not (said := _said(answer)).done:
            yield said
            answer = await child.read(ANSWER_DEADLINE)
        yield said
    finally:
        await child.close()


def _said(answer: dict[str, Any]) -> CompareReport:
    """One report. Raises ToolFailed for what is none."""
    try:
        if "unlike" in answer:
            path, what, wanted, found = (str(word) for word in answer["unlike"])
            return CompareReport(unlike=(path, what, wanted, found))
        return CompareReport(
            int(answer["files"]), int(answer["bytes"]), done="done" in answer, more=int(answer.get("more", 0))
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ToolFailed("the comparison of files cannot be understood", str(error)) from None
