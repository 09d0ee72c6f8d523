"""What a child process says on a pipe, read as it comes, and never more than there is room for."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Iterable

LONGEST_LINE = 4096
"""Bytes kept of a line that does not end: its last ones."""

LONGEST_OUTPUT = 128 << 20
"""Bytes that a program may print when all of it is wanted: a listing of half a million snapshots. Whoever prints more,
maybe a program on another host, would fill the memory of the daemon."""

LONGEST_COMPLAINT = 1 << 20
"""Bytes kept of what a program says on stderr: its last ones."""

KEPT_LINES = 50
"""Lines that ``make_line_tail`` keeps."""

_CHUNK = 1 << 16
_NEWLINE, _NEWLINE_OR_RETURN = re.compile(rb"\n"), re.compile(rb"[\r\n]")


def make_line_tail() -> deque[str]:
    """Keeps the last of the lines that are appended to it."""
    return deque(maxlen=KEPT_LINES)


def find_last_line(lines: Iterable[str]) -> str:
    """The last line that says something; "" where there is none."""
    return next((line.strip() for line in reversed([*lines]) if line.strip()), "")


class OutputTooLong(Exception):
    """A program printed more than there is room for."""


async def read_whole(pipe: asyncio.StreamReader, most: int) -> bytearray:
    """All that comes until the pipe ends, which is not copied: it may be much. Raises OutputTooLong for more than
    ``most`` bytes.
    """
    found = bytearray()
    while chunk := await pipe.read(_CHUNK):
        found += chunk
        if len(found) > most:
            raise OutputTooLong
    return found


async def read_end(pipe: asyncio.StreamReader, most: int) -> bytes:
    """The last ``most`` bytes of what comes until the pipe ends."""
    found = bytearray()
    while chunk := await pipe.read(_CHUNK):
        found += chunk
        if len(found) > 2 * most:
            del found[:-most]
    return bytes(found[-most:])


async def read_lines(
    pipe: asyncio.StreamReader | None,
    hear: Callable[[str], None],
    *,
    redrawn: Callable[[str], None] | None = None,
) -> None:
    """Read a pipe to its end and pass on each line; unread, it would block the child one day.

    With ``redrawn``, a carriage return ends a line as well, and a line that a tool draws after one, as mbuffer its
    progress, is passed to ``redrawn`` as it stands, because it may never end. What comes last counts as a line, also
    without an end.
    """
    assert pipe is not None  # noqa: S101 - the child was started with a pipe there
    ends = _NEWLINE if redrawn is None else _NEWLINE_OR_RETURN
    rest = b""
    after_return = False
    while chunk := await pipe.read(_CHUNK):
        text = rest + chunk
        *lines, rest = ends.split(text)
        if lines:
            after_return = text.rfind(b"\r") > text.rfind(b"\n")
        rest = rest[-LONGEST_LINE:]
        for line in lines:
            hear(_decoded(line))
        if rest and redrawn is not None and after_return:
            redrawn(_decoded(rest))
    if rest:
        hear(_decoded(rest))


def _decoded(line: bytes) -> str:
    return line.decode(errors="replace")
