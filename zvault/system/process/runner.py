"""The only place that starts a process.

Every call has a deadline, because a tool that touches a hung device sleeps in the kernel and cannot be killed.
Such a process is left behind and reaped when it ends; nobody waits for it (invariant 7).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from zvault.core.errors import DeadlineExceeded, ToolFailed, ToolMissing
from zvault.core.policy.backoff import delays
from zvault.system.process import output
from zvault.system.process.output import OutputTooLong, last_lines, read_lines
from zvault.system.process.unprivileged import unprivileged

KILL_GRACE = 2.0
"""Seconds to wait for a killed process before it counts as hung in the kernel."""

PIPE_SIZE = 1 << 20
"""Bytes a pipe between two stages holds; pipe(7) lets root have more, and 1 MiB saves most of the wake-ups."""

_abandoned: set[asyncio.Task[None]] = set()
"""Reap killed processes that still hang in the kernel."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a finished process left. ``seconds`` is its wall time."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def tool(self) -> str:
        """The program and its verb, for messages: ``zfs list``."""
        return " ".join([Path(self.argv[0]).name, *self.argv[1:2]])

    def complaint(self) -> str:
        """The last words on stderr, or the exit status where there are none."""
        text = self.stderr.strip()
        return text.splitlines()[-1] if text else describe_exit(self.returncode)


def describe_exit(returncode: int) -> str:
    """An exit status in words: ``exit status 1``, ``killed by signal 9``."""
    return f"killed by signal {-returncode}" if returncode < 0 else f"exit status {returncode}"


Hear = Callable[[int, str], None]
"""Told each line a stage of a pipeline says on stderr, with the stage's index.

A line that a tool draws after a carriage return, as mbuffer its progress, may never end: it is told as it stands, and
again when it has grown.
"""


class ToolRunner(Protocol):
    """Runs programs on some host."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        deadline: float = 60.0,
        stdin: bytes | None = None,
        check: bool = True,
    ) -> Result:
        """Run one program to its end.

        Raises ToolMissing when it is not installed, DeadlineExceeded after ``deadline`` seconds, and, with
        ``check``, ToolFailed when it exits with anything but 0.
        """
        ...


class Runner(ToolRunner, Protocol):
    """Starts processes on this host. Passed in, so that decisions can be tested without any."""

    async def pipeline(
        self, stages: Sequence[Sequence[str]], hear: Hear | None = None, *, nobody: Container[str] = ()
    ) -> Pipeline:
        """Start programs joined by kernel pipes, first to last; those named in ``nobody`` without root's rights.

        Raises ToolMissing; then nothing was started.
        """
        ...


def tool_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment for tools: the daemon's own, with messages in English so that they can be recognised."""
    return {**os.environ, "LC_ALL": "C.UTF-8", **(extra or {})}


def bare_environment() -> dict[str, str]:
    """Environment for programs without rights: the daemon's own may have keys in it."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"}


class HostRunner:
    """Runs programs on this host."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        deadline: float = 60.0,
        stdin: bytes | None = None,
        check: bool = True,
    ) -> Result:
        """See Runner.run."""
        started = time.monotonic()
        process = await spawn(
            argv,
            stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            # Not wait_for(): until CPython 3.12 it swallows a cancellation that comes as the program ends, and with
            # that every timeout of whoever called.
            async with asyncio.timeout(deadline):
                out, err = await _communicate(process, stdin)
        except TimeoutError:
            await put_down(process)
            raise DeadlineExceeded(
                f"{' '.join(argv[:2])} did not end within {deadline:g} s",
                "the device or pool it touches may hang",
                "look at 'zpool status' and the kernel log",
            ) from None
        except OutputTooLong:
            await put_down(process)
            raise ToolFailed(
                f"'{' '.join(argv[:2])}' prints too much",
                f"more than {output.LONGEST_OUTPUT >> 20} MiB; it was ended",
                "run it by hand to see what it prints"
                + (", here or on the other host" if argv[0] == "ssh" else ""),
            ) from None
        except asyncio.CancelledError:
            await put_down(process)
            raise
        result = Result(
            tuple(argv),
            process.returncode if process.returncode is not None else -1,
            out.decode(errors="replace"),
            err.decode(errors="replace"),
            time.monotonic() - started,
        )
        if check and result.returncode != 0:
            raise ToolFailed(f"{result.tool} failed", result.complaint())
        return result

    async def pipeline(
        self, stages: Sequence[Sequence[str]], hear: Hear | None = None, *, nobody: Container[str] = ()
    ) -> Pipeline:
        """See Runner.pipeline."""
        return await Pipeline.start(stages, hear, nobody)


async def _communicate(process: asyncio.subprocess.Process, given: bytes | None) -> tuple[bytes, bytes]:
    """Give a process its input, and what it says on stdout and stderr until it ends. Raises OutputTooLong."""
    assert process.stdout is not None  # noqa: S101 - started with pipes
    assert process.stderr is not None  # noqa: S101
    says = asyncio.ensure_future(output.read_whole(process.stdout, output.LONGEST_OUTPUT))
    complains = asyncio.ensure_future(output.read_end(process.stderr, output.LONGEST_COMPLAINT))
    feeding = asyncio.ensure_future(_feed(process.stdin, given))
    try:
        out, err, _ = await asyncio.gather(says, complains, feeding)
        await process.wait()
    finally:
        for task in (says, complains, feeding):
            task.cancel()
    return out, err


async def _feed(stdin: asyncio.StreamWriter | None, given: bytes | None) -> None:
    if stdin is None:
        return
    # It need not read all of it.
    with contextlib.suppress(ConnectionError):
        stdin.write(given or b"")
        await stdin.drain()
    stdin.close()


async def spawn(  # noqa: PLR0913 - what a process is given
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
        return await asyncio.create_subprocess_exec(
            *argv,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=bare_environment() if bare else tool_environment(env),
            limit=limit,
            start_new_session=session,
        )
    except FileNotFoundError:
        raise _missing(argv[0]) from None
    except PermissionError as error:
        raise ToolFailed(f"{argv[0]} cannot be started", str(error), "zvault runs as root") from None
    except OSError as error:
        raise ToolFailed(f"{argv[0]} cannot be started", str(error)) from None


def _missing(tool: str) -> ToolMissing:
    return ToolMissing(
        f"{tool} is not installed", "it was not found on PATH", f"install the package that has {tool}"
    )


def _without_rights(argv: Sequence[str]) -> list[str]:
    """A program as nobody. Raises ToolMissing: the one that starts it would tell it in other words."""
    if shutil.which(argv[0]) is None:
        raise _missing(argv[0])
    return unprivileged(argv)


async def spawn_session(argv: Sequence[str], env: Mapping[str, str]) -> asyncio.subprocess.Process:
    """Start a program as the leader of a session and process group, with all it says on one pipe, ``stdout``.

    Raises ToolMissing, or ToolFailed where it cannot be started.
    """
    pipe, same = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
    return await spawn(
        argv, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=same, env=env, session=True
    )


def _pipe() -> tuple[int, int]:
    read, write = os.pipe()
    with contextlib.suppress(OSError):
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
    return read, write


async def put_down(process: asyncio.subprocess.Process) -> bool:
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
    for pause in delays(0.01, 1.0):
        if process.returncode is not None:
            break
        await asyncio.sleep(pause)
    process._transport.close()  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class StageEnd:
    """How one stage of a pipeline ended, and when (seconds, monotonic)."""

    argv: tuple[str, ...]
    returncode: int
    stderr: str
    ended: float

    @property
    def ok(self) -> bool:
        """Whether it ended with exit status 0."""
        return self.returncode == 0


class Pipeline:
    """Programs joined by kernel pipes. No stream byte passes through Python (invariant 6)."""

    def __init__(
        self,
        stages: Sequence[Sequence[str]],
        processes: Sequence[asyncio.subprocess.Process],
        inputs: Sequence[int],
        hear: Hear | None,
    ) -> None:
        self.stages = [tuple(stage) for stage in stages]
        self.processes = list(processes)
        self._inputs = list(inputs)
        self._hear = hear
        self._ends = [asyncio.ensure_future(self._end(i)) for i in range(len(self.processes))]

    @classmethod
    async def start(
        cls, stages: Sequence[Sequence[str]], hear: Hear | None = None, nobody: Container[str] = ()
    ) -> Pipeline:
        """Start every stage; on a failure put down those already started."""
        processes: list[asyncio.subprocess.Process] = []
        inputs: list[int] = []
        upstream = asyncio.subprocess.DEVNULL
        try:
            for index, argv in enumerate(stages):
                last = index == len(stages) - 1
                read, write = (-1, -1) if last else _pipe()
                try:
                    if index:
                        inputs.append(os.open(f"/proc/self/fd/{upstream}", os.O_PATH | os.O_CLOEXEC))
                    bare = argv[0] in nobody
                    program = _without_rights(argv) if bare else argv
                    out = asyncio.subprocess.DEVNULL if last else write
                    processes.append(await spawn(program, stdin=upstream, stdout=out, bare=bare))
                finally:
                    # The child has its copies; ours would keep the pipe from ever closing.
                    for fd in (upstream, write):
                        if fd >= 0:
                            os.close(fd)
                    upstream = read
        except BaseException:
            for fd in (upstream, *inputs):
                if fd >= 0:
                    os.close(fd)
            for process in processes:
                await put_down(process)
            raise
        return cls(stages, processes, inputs, hear)

    async def _end(self, index: int) -> StageEnd:
        try:
            return await self._follow(index)
        finally:
            if index:
                os.close(self._inputs[index - 1])
                self._inputs[index - 1] = -1

    async def _follow(self, index: int) -> StageEnd:
        process = self.processes[index]
        said = last_lines()

        def hear(line: str) -> None:
            if line:
                said.append(line)
                told(line)

        def told(line: str) -> None:
            if self._hear is not None:
                self._hear(index, line)

        await read_lines(process.stderr, hear, redrawn=told)
        code = await process.wait()
        return StageEnd(self.stages[index], code, "\n".join(said), time.monotonic())

    def programs(self) -> list[tuple[tuple[str, ...], int]]:
        """Each stage with its process id."""
        return [(argv, process.pid) for argv, process in zip(self.stages, self.processes, strict=True)]

    def inputs(self) -> dict[int, str]:
        """The path of the pipe that each stage but the first reads from, by its process id, until that has ended.

        A stage without root's rights does not let its own be looked at; and these keep no pipe open (O_PATH, open(2)).
        """
        stages = zip(self.processes[1:], self._inputs, strict=True)
        return {process.pid: f"/proc/{os.getpid()}/fd/{fd}" for process, fd in stages if fd >= 0}

    async def wait(self) -> list[StageEnd]:
        """Wait for every stage; the ends come in the order of the stages."""
        return list(await asyncio.gather(*self._ends))

    async def kill(self, patience: float = 0.0) -> None:
        """Put every stage down, first to last.

        The last one sees its stream end and has ``patience`` seconds to end by itself, because a receiver that
        is killed instead goes on in the kernel for a while and keeps its pool busy.
        """
        *others, last = self.processes
        for process in others:
            if process.returncode is None:
                await put_down(process)
        await asyncio.wait({self._ends[-1]}, timeout=patience)
        if last.returncode is None:
            await put_down(last)
