"""Programs joined by kernel pipes, as a stream goes through them."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from zvault.system.process.output import make_line_tail, read_lines
from zvault.system.process.spawn import kill_process, make_missing_tool_error, spawn_program
from zvault.system.process.unprivileged import unprivileged_argv

STAGE_PIPE_SIZE = 1 << 20
"""Bytes a pipe between two stages holds; pipe(7) lets root have more, and 1 MiB saves most of the wake-ups."""

HearStage = Callable[[int, str], None]
"""Told each line a stage of a pipeline says on stderr, with the stage's index.

A line that a tool draws after a carriage return, as mbuffer its progress, may never end: it is told as it stands, and
again when it has grown.
"""


def _without_rights(argv: Sequence[str]) -> list[str]:
    """A program as nobody. Raises ToolMissing: the one that starts it would tell it in other words."""
    if shutil.which(argv[0]) is None:
        raise make_missing_tool_error(argv[0])
    return unprivileged_argv(argv)


def _pipe() -> tuple[int, int]:
    read, write = os.pipe()
    with contextlib.suppress(OSError):
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, STAGE_PIPE_SIZE)
    return read, write


@dataclass(frozen=True, slots=True)
class StageEnd:
    """The end of one stage of a pipeline, and when (seconds, monotonic)."""

    argv: tuple[str, ...]
    returncode: int
    stderr: str
    ended: float

    @property
    def ok(self) -> bool:
        """True if it ended with exit status 0."""
        return self.returncode == 0


class Pipeline:
    """Programs joined by kernel pipes. No stream byte passes through Python (invariant 6)."""

    def __init__(
        self,
        stages: Sequence[Sequence[str]],
        processes: Sequence[asyncio.subprocess.Process],
        inputs: Sequence[int],
        hear: HearStage | None,
    ) -> None:
        self.stages = [tuple(stage) for stage in stages]
        self.processes = list(processes)
        self._inputs = list(inputs)
        self._hear = hear
        self._ends = [asyncio.ensure_future(self._end(i)) for i in range(len(self.processes))]

    @classmethod
    async def start(
        cls, stages: Sequence[Sequence[str]], hear: HearStage | None = None, nobody: Container[str] = ()
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
                    processes.append(await spawn_program(program, stdin=upstream, stdout=out, bare=bare))
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
                await kill_process(process)
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
        said = make_line_tail()

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
                await kill_process(process)
        await asyncio.wait({self._ends[-1]}, timeout=patience)
        if last.returncode is None:
            await kill_process(last)
