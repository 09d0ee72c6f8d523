"""A program that goes on for ever and says something now and then, line by line."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import Callable, Sequence

from zvault.core.errors import ToolFailed
from zvault.system.process import KILL_GRACE, LONGEST_LINE, describe_exit, put_down, spawn


async def follow_lines(argv: Sequence[str], hear: Callable[[str], None]) -> None:
    """Run a program and pass on each line that it says on stdout, until this is cancelled.

    Raises ToolMissing, or ToolFailed when it ends by itself.
    """
    process = await spawn(argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE)
    complaining = asyncio.ensure_future(_last_words(process))
    try:
        assert process.stdout is not None  # noqa: S101 - started with a pipe
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        rest = ""
        while chunk := await process.stdout.read(1 << 16):
            *lines, rest = (rest + decoder.decode(chunk)).split("\n")
            for line in lines:
                hear(line)
            rest = rest[-LONGEST_LINE:]
        await asyncio.wait({complaining}, timeout=KILL_GRACE)
        await put_down(process)
        code = process.returncode
        said = complaining.result() if complaining.done() else ""
        raise ToolFailed(
            f"'{' '.join(argv[:2])}' ended", said or describe_exit(code if code is not None else -1)
        )
    finally:
        complaining.cancel()
        await put_down(process)


async def _last_words(process: asyncio.subprocess.Process) -> str:
    """Read all of stderr, which unread would block the program one day; the end of it."""
    assert process.stderr is not None  # noqa: S101 - started with a pipe
    said = ""
    while chunk := await process.stderr.read(4096):
        said = (said + chunk.decode(errors="replace"))[-LONGEST_LINE:]
    return "".join(said.strip().splitlines()[-1:])
