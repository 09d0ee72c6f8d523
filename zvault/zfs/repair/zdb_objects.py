"""Objects as zdb(8) lists them with their blocks, though the names in its output may hold any lines. Pure.

zdb prints a file's path, the target of a symbolic link and the names of extended attributes as they are, line breaks
included. In the part of one object all of these stand between its head and the line ``Indirect blocks:``, which each
object has exactly once where five ``-d`` are given; from that line to the next empty one all is zdb's own
(``dump_object`` in cmd/zdb/zdb.c; recorded with OpenZFS 2.3). A name can add lines and take none away. So a text with
as many of these lines as there are objects is clear; one with more is not. Of a single object the last one counts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

BLOCKS_MARK = "Indirect blocks:"
_TITLE = re.compile(r" +Object +lvl +iblk +dblk ")
_PATH = re.compile(r"\tpath\t(/.*)?")
_AFTER_PATH = ("\tuid ", "\ttarget\t")

KEPT_LINE_PATTERN = rf"{BLOCKS_MARK}$|$| +Object +lvl | *[0-9]+ +[0-9]+ +[0-9.]+[KM]? "
"""What ``parse_zdb_objects`` needs besides the blocks: an extended regular expression for the beginnings of lines."""


@dataclass(frozen=True, slots=True)
class ListedObjectLines:
    """One object: the words of its head, its path, and the lines of its blocks.

    ``path`` is None where it has none, or one with line breaks: zdb does not show where that ends.
    """

    head: list[str]
    path: str | None
    blocks: list[str]


def parse_zdb_objects(text: str, numbers: Sequence[int]) -> dict[int, ListedObjectLines] | None:
    """The objects in the output of a zdb that ended well, and was asked for these in this order.

    None where the text can be read in more than one way, or lacks one of them: then each is to be asked for alone.
    """
    lines = text.split("\n")
    marks = [at for at, line in enumerate(lines) if line == BLOCKS_MARK]
    if len(numbers) == 1:
        marks = marks[-1:]
    if len(marks) != len(numbers):
        return None
    found: dict[int, ListedObjectLines] = {}
    begin = 0
    for number, mark in zip(numbers, marks, strict=True):
        titles = (at for at in range(begin, mark) if _TITLE.match(lines[at]))
        title = next(titles, mark)
        head = lines[title + 1].split() if title < mark else []
        if head[:1] != [str(number)] or len(head) < 9:
            return None
        end = next((at for at in range(mark, len(lines)) if not lines[at]), len(lines))
        found[number] = ListedObjectLines(head, _path(lines[title + 1 : mark]), lines[mark + 1 : end])
        begin = end
    return found


def _path(lines: Sequence[str]) -> str | None:
    """The path, of the lines of one object before its blocks: it is the first that a name can be in."""
    found = ((at, match[1]) for at, line in enumerate(lines) if (match := _PATH.match(line)) is not None)
    at, path = next(found, (0, None))
    return path if any(line.startswith(_AFTER_PATH) for line in lines[at + 1 : at + 2]) else None
