"""A program that goes on for ever and says something now and then, line by line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from zvault.core.errors import ToolFailed
from zvault.system.process.output import find_last_line, make_line_tail, read_lines
from zvault.system.process.spawn import KILL_GRACE, describe_exit, kill_process, spawn_program


async def follow_lines(argv: Sequence[str], hear: Callable[[str], None]) -> None:
    """Run a program and pass on each line that it says on stdout, until this is cancelled.

    Raises ToolMissing, or ToolFailed when it ends by itself.
    """
    process = await spawn_program(argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE)
    complaints = make_line_tail()
    complaining = asyncio.ensure_future(read_lines(process.stderr, complaints.append))
    try:
        await read_lines(process.stdout, hear)
        await asyncio.wait({complaining}, timeout=KILL_GRACE)
        await kill_process(process)
        code = process.returncode
        why = find_last_line(complaints) or describe_exit(code if code is not None else -1)
        raise ToolFailed(f"'{' '.join(argv[:2])}' ended", why)
    finally:
        complaining.cancel()
        await kill_process(process)
