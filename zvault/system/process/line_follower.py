"""A program that goes on for ever and says something now and then, line by line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from zvault.core.errors import ToolFailed
from zvault.system.process.output import last_lines, last_words, read_lines
from zvault.system.process.spawn import KILL_GRACE, describe_exit, put_down, spawn


async def follow_lines(argv: Sequence[str], hear: Callable[[str], None]) -> None:
    """Run a program and pass on each line that it says on stdout, until this is cancelled.

    Raises ToolMissing, or ToolFailed when it ends by itself.
    """
    process = await spawn(argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE)
    complaints = last_lines()
    complaining = asyncio.ensure_future(read_lines(process.stderr, complaints.append))
    try:
        await read_lines(process.stdout, hear)
        await asyncio.wait({complaining}, timeout=KILL_GRACE)
        await put_down(process)
        code = process.returncode
        why = last_words(complaints) or describe_exit(code if code is not None else -1)
        raise ToolFailed(f"'{' '.join(argv[:2])}' ended", why)
    finally:
        complaining.cancel()
        await put_down(process)
