"""The only place that starts a process.

Every call has a deadline, because a tool that touches a hung device sleeps in the kernel and cannot be killed.
Such a process is left behind and reaped when it ends; nobody waits for it (DESIGN invariant 7).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from zvault.core.errors import DeadlineExceeded, ToolFailed, ToolMissing

KILL_GRACE = 2.0
"""Seconds to wait for a killed process before it counts as hung in the kernel."""

PIPE_SIZE = 1 << 20
"""Bytes a pipe between two stages holds; pipe(7) lets root have more, and 1 MiB saves most of the wake-ups."""

_abandoned: set[asyncio.Task[int]] = set()


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
"""Told each line a stage of a pipeline says on stderr, with the stage's index."""


class Runner(Protocol):
    """Starts processes. Passed in, so that decisions can be tested without any."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        deadline: float = 60.0,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> Result:
        """Run one program to its end.

        Raises ToolMissing when it is not installed, DeadlineExceeded after ``deadline`` seconds, and, with
        ``check``, ToolFailed when it exits with anything but 0.
        """
        ...

    async def pipeline(self, stages: Sequence[Sequence[str]], hear: Hear | None = None) -> Pipeline:
        """Start programs joined by kernel pipes, first to last. Raises ToolMissing; then nothing was started."""
        ...


def tool_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment for tools: the daemon's own, with messages in English so that they can be recognised."""
    return {**os.environ, "LC_ALL": "C.UTF-8", **(extra or {})}


class HostRunner:
    """Runs programs on this host."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        deadline: float = 60.0,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> Result:
        """See Runner.run."""
        started = time.monotonic()
        process = await _spawn(
            argv,
            stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            env=env,
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(stdin), deadline)
        except TimeoutError:
            await put_down(process)
            raise DeadlineExceeded(
                f"{' '.join(argv[:2])} did not end within {deadline:g} s",
                "the device or pool it touches may hang",
                "look at 'zpool status' and the kernel log",
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

    async def pipeline(self, stages: Sequence[Sequence[str]], hear: Hear | None = None) -> Pipeline:
        """See Runner.pipeline."""
        return await Pipeline.start(stages, hear)


async def _spawn(
    argv: Sequence[str],
    *,
    stdin: int,
    stdout: int,
    env: Mapping[str, str] | None = None,
) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *argv, stdin=stdin, stdout=stdout, stderr=asyncio.subprocess.PIPE, env=tool_environment(env)
        )
    except FileNotFoundError:
        raise ToolMissing(
            f"{argv[0]} is not installed",
            "it was not found on PATH",
            f"install the package that has {argv[0]}",
        ) from None
    except PermissionError as error:
        raise ToolFailed(f"{argv[0]} cannot be started", str(error), "zvault runs as root") from None


def _pipe() -> tuple[int, int]:
    read, write = os.pipe()
    with contextlib.suppress(OSError):
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
    return read, write


async def put_down(process: asyncio.subprocess.Process) -> bool:
    """Kill a process; False if it hangs in the kernel and was left behind to be reaped later."""
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    waiter = asyncio.ensure_future(process.wait())
    done, _ = await asyncio.wait({waiter}, timeout=KILL_GRACE)
    if not done:
        _abandoned.add(waiter)
        waiter.add_done_callback(_abandoned.discard)
    return bool(done)


def left_behind() -> int:
    """How many killed processes still hang in the kernel."""
    return len(_abandoned)


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
    """Programs joined by kernel pipes. No stream byte passes through Python (DESIGN invariant 6)."""

    def __init__(
        self,
        stages: Sequence[Sequence[str]],
        processes: Sequence[asyncio.subprocess.Process],
        hear: Hear | None,
    ) -> None:
        self.stages = [tuple(stage) for stage in stages]
        self.processes = list(processes)
        self._hear = hear
        self._ends = [asyncio.ensure_future(self._end(i)) for i in range(len(self.processes))]

    @classmethod
    async def start(cls, stages: Sequence[Sequence[str]], hear: Hear | None = None) -> Pipeline:
        """Start every stage; on a failure put down those already started."""
        processes: list[asyncio.subprocess.Process] = []
        upstream = asyncio.subprocess.DEVNULL
        try:
            for index, argv in enumerate(stages):
                last = index == len(stages) - 1
                read, write = (-1, -1) if last else _pipe()
                try:
                    processes.append(
                        await _spawn(
                            argv, stdin=upstream, stdout=asyncio.subprocess.DEVNULL if last else write
                        )
                    )
                finally:
                    # The child has its copies; ours would keep the pipe from ever closing.
                    for fd in (upstream, write):
                        if fd >= 0:
                            os.close(fd)
                    upstream = read
        except BaseException:
            if upstream >= 0:
                os.close(upstream)
            for process in processes:
                await put_down(process)
            raise
        return cls(stages, processes, hear)

    async def _end(self, index: int) -> StageEnd:
        process = self.processes[index]
        words = await self._listen(index, process)
        code = await process.wait()
        return StageEnd(self.stages[index], code, words, time.monotonic())

    async def _listen(self, index: int, process: asyncio.subprocess.Process) -> str:
        """Pass on what a stage says as it says it; tools redraw a line with a carriage return. Keeps the tail."""
        assert process.stderr is not None  # noqa: S101 - started with a pipe
        said: deque[str] = deque(maxlen=50)
        rest = ""
        while chunk := await process.stderr.read(4096):
            *lines, rest = (rest + chunk.decode(errors="replace")).replace("\r", "\n").split("\n")
            for line in filter(None, [*lines, rest if len(rest) < 4096 else ""]):
                if self._hear is not None:
                    self._hear(index, line)
            said.extend(line for line in lines if line)
        if rest:
            said.append(rest)
        return "\n".join(said)

    async def wait(self) -> list[StageEnd]:
        """Wait for every stage; the ends come in the order of the stages."""
        return list(await asyncio.gather(*self._ends))

    async def kill(self) -> None:
        """Put every stage down, first to last, so that the receiver sees the end of the stream first."""
        for process in self.processes:
            if process.returncode is None:
                await put_down(process)


class Conversation:
    """A child process that is asked in JSON, a line a request, and answers in kind."""

    def __init__(self, argv: Sequence[str], process: asyncio.subprocess.Process) -> None:
        self.argv = tuple(argv)
        self._process = process

    @classmethod
    async def start(cls, argv: Sequence[str]) -> Conversation:
        """Start the child. Raises ToolMissing."""
        return cls(argv, await _spawn(argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE))

    async def ask(self, request: Mapping[str, Any], deadline: float) -> dict[str, Any]:
        """Send one request and wait for its answer. The child is put down when it does not come in time."""
        stdin = self._process.stdin
        assert stdin is not None  # noqa: S101 - started with a pipe
        try:
            stdin.write(json.dumps(request).encode() + b"\n")
            await stdin.drain()
        except ConnectionError:
            raise await self._ended() from None
        return await self.read(deadline)

    async def read(self, deadline: float) -> dict[str, Any]:
        """Wait for one line. Raises DeadlineExceeded, or ToolFailed when the child has ended."""
        stdout = self._process.stdout
        assert stdout is not None  # noqa: S101 - started with a pipe
        try:
            line = await asyncio.wait_for(stdout.readline(), deadline)
        except TimeoutError:
            await put_down(self._process)
            raise DeadlineExceeded(
                f"{Path(self.argv[0]).name} did not answer within {deadline:g} s",
                "the pool it works on may hang",
                "look at 'zpool status' and the kernel log",
            ) from None
        if not line:
            raise await self._ended()
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def _ended(self) -> ToolFailed:
        await put_down(self._process)
        err = await self._process.stderr.read() if self._process.stderr else b""
        lines = err.decode(errors="replace").strip().splitlines()
        return ToolFailed(f"{' '.join(self.argv[-2:])} ended", lines[-1] if lines else "without a word")

    async def close(self) -> None:
        """End the child."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        await put_down(self._process)
