"""A program of the user's: every line it says is passed on, and when its time is up all it started goes with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence

from zvault.core.errors import DeadlineExceeded
from zvault.system.process.output import LONGEST_LINE, read_lines
from zvault.system.process.spawn import KILL_GRACE, kill_process, spawn_session

PROGRAM_INTERVAL = 0.05
"""Seconds between looks at a program that runs: one it left behind may keep the pipe open after its end."""

LAST_WORDS = 0.5
"""Seconds after its end until all that it said has been read; what it left behind is not waited for."""


async def run_user_program(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    deadline: float,
    hear: Callable[[str], None],
    started: Callable[[asyncio.subprocess.Process], None] | None = None,
) -> int:
    """Run a program to its end and return its exit status, negative for a signal.

    ``env`` comes on top of the daemon's own environment; ``hear`` is told each line of stdout and stderr. After
    ``deadline`` seconds, or when cancelled, it is ended with all of its process group: SIGTERM, then SIGKILL.
    ``started`` is given its process. Raises ToolMissing, ToolFailed where it cannot be started, DeadlineExceeded.
    """
    process, cancellation = await _begun(argv, env)
    if started is not None:
        started(process)
    listening = asyncio.ensure_future(read_lines(process.stdout, lambda line: _tell(line, hear)))
    try:
        if cancellation is not None:
            raise cancellation
        async with asyncio.timeout(deadline):
            await _ended(process, listening)
    except TimeoutError:
        await _end_group(process, listening)
        raise DeadlineExceeded(f"{argv[0]} did not end within {deadline:g} s", "it was killed") from None
    except BaseException:
        await _end_group(process, listening)
        raise
    finally:
        await asyncio.wait({listening}, timeout=LAST_WORDS)
        await kill_process(process)  # closes the pipe, which ends the listening
        await asyncio.wait({listening}, timeout=LAST_WORDS)
        listening.cancel()
    return process.returncode if process.returncode is not None else -1


async def _begun(
    argv: Sequence[str], env: Mapping[str, str]
) -> tuple[asyncio.subprocess.Process, asyncio.CancelledError | None]:
    """Start a program, and the cancellation that came meanwhile.

    By itself asyncio would kill what it has not started to the end: without SIGTERM, and without its process group.
    """
    starting, cancellation = asyncio.ensure_future(spawn_session(argv, env)), None
    while not starting.done():
        try:
            await asyncio.wait({starting})
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is not None and (failure := starting.exception()) is not None:
        raise cancellation from failure
    return starting.result(), cancellation


def has_ended(process: asyncio.subprocess.Process) -> bool:
    """True if a program has ended, also where asyncio has not been told of it yet."""
    if process.returncode is not None:
        return True
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


async def _ended(process: asyncio.subprocess.Process, listening: asyncio.Future[None]) -> None:
    """Wait until a program has ended. Process.wait() would also wait for what it left behind with its pipe."""
    while process.returncode is None:
        if listening.done():
            listening.result()  # one who hears its lines may fail: then nobody reads them any more
            await asyncio.sleep(PROGRAM_INTERVAL / 5)
        else:
            await asyncio.wait({listening}, timeout=PROGRAM_INTERVAL)


async def _end_group(process: asyncio.subprocess.Process, listening: asyncio.Future[None]) -> None:
    """Ask all of the group to end, then make them."""
    _signal_group(process, signal.SIGTERM)
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KILL_GRACE):
                await _ended(process, listening)
                await asyncio.wait({listening})
    finally:
        _signal_group(process, signal.SIGKILL)


def _signal_group(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _tell(line: str, hear: Callable[[str], None]) -> None:
    if text := line.rstrip()[:LONGEST_LINE]:
        hear(text)
