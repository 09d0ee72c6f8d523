"""The only place that starts a process, and the one that ends it.

A tool that touches a hung device sleeps in the kernel and cannot be killed. Such a process is left behind and reaped
when it ends; nobody waits for it (invariant 7).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from zvault.core.errors import ToolFailed, ToolMissing
from zvault.core.policy.backoff import iterate_delays

KILL_GRACE = 2.0
"""Seconds to wait for a killed process before it counts as hung in the kernel."""

STARTED_KEPT = 1024
"""Programs of which is kept what they were started as: the kernel's log tells of a crash in one by its id, at once."""

_started: OrderedDict[int, tuple[str, ...]] = OrderedDict()

_abandoned: set[asyncio.Task[None]] = set()
"""Reap killed processes that still hang in the kernel."""


def describe_exit(returncode: int) -> str:
    """An exit status in words: ``exit status 1``, ``killed by signal 9``."""
    return f"killed by signal {-returncode}" if returncode < 0 else f"exit status {returncode}"


def make_tool_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment for tools: the daemon's own, with messages in English so that they can be recognised."""
    return {**os.environ, "LC_ALL": "C.UTF-8", **(extra or {})}


def make_bare_environment() -> dict[str, str]:
    """Environment for programs without rights: the daemon's own may have keys in it."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"}


async def spawn_program(  # noqa: PLR0913 - what a process is given
    argv: Sequence[str],
    *,
    stdin: int,
    stdout: int,
    stderr: int = asyncio.subprocess.PIPE,
    env: Mapping[str, str] | None = None,
    limit: int = 1 << 16,
    session: bool = False,
    bare: bool = False,
) -> asyncio.subprocess.Process:
    """Start a program; ``limit`` is the longest line in bytes that can be read of it, ``bare`` keeps the environment
    from it.

    Raises ToolMissing, or ToolFailed where it cannot be started.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=make_bare_environment() if bare else make_tool_environment(env),
            limit=limit,
            start_new_session=session,
        )
    except FileNotFoundError:
        raise make_missing_tool_error(argv[0]) from None
    except PermissionError as error:
        raise ToolFailed(f"{argv[0]} cannot be started", str(error), "zvault runs as root") from None
    except OSError as error:
        raise ToolFailed(f"{argv[0]} cannot be started", str(error)) from None
    _started[process.pid] = tuple(argv)
    _started.move_to_end(process.pid)
    if len(_started) > STARTED_KEPT:
        _started.popitem(last=False)
    if process.stdin is not None:
        # Whoever writes is told of a broken pipe by drain(). CPython 3.11 also tells whoever waits for the closing, and
        # logs an error that nobody looked at where nobody does.
        closed = process._protocol._get_close_waiter(process.stdin)  # type: ignore[attr-defined]
        closed.add_done_callback(lambda it: it.cancelled() or it.exception())
    return process


def find_started(pid: int) -> tuple[str, ...] | None:
    """Return the argv that a process was started with from here, not long ago; None for another's."""
    return _started.get(pid)


def make_missing_tool_error(tool: str) -> ToolMissing:
    """The error for a program that is not there."""
    return ToolMissing(
        f"{tool} is not installed", "it was not found on PATH", f"install the package that has {tool}"
    )


async def spawn_session(argv: Sequence[str], env: Mapping[str, str]) -> asyncio.subprocess.Process:
    """Start a program as the leader of a session and process group, with all it says on one pipe, ``stdout``.

    Raises ToolMissing, or ToolFailed where it cannot be started.
    """
    pipe, same = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
    return await spawn_program(
        argv, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=same, env=env, session=True
    )


async def kill_process(process: asyncio.subprocess.Process) -> bool:
    """Kill a process; False if it hangs in the kernel and was left behind to be reaped later."""
    if process.returncode is None:
        # Process.kill() would reap one that has just ended, and asyncio could not tell any more how it did.
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    ending = asyncio.ensure_future(_reap(process))
    try:
        await asyncio.wait({ending}, timeout=KILL_GRACE)
    finally:
        if not ending.done():
            _abandoned.add(ending)
            ending.add_done_callback(_abandoned.discard)
    return ending.done()


async def _reap(process: asyncio.subprocess.Process) -> None:
    """Wait until a process has ended, then close its pipes.

    Process.wait() is no use for this: it also waits until the pipes are closed (until CPython 3.13), which a
    grandchild can keep from happening, and (still) until all that is in them was read.
    """
    for pause in iterate_delays(0.01, 1.0):
        if process.returncode is not None:
            break
        await asyncio.sleep(pause)
    process._transport.close()  # type: ignore[attr-defined]
