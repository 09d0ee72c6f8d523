"""Programs run to their end, each within a deadline, and pipelines of them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from zvault.core.errors import DeadlineExceeded, ToolFailed
from zvault.core.refusals import find_cure
from zvault.system.process import output
from zvault.system.process.kernel_waits import KERNEL_WAITS, WaitingProgram
from zvault.system.process.output import OutputTooLong
from zvault.system.process.pipeline import HearStage, Pipeline
from zvault.system.process.spawn import describe_exit, kill_process, spawn_program
from zvault.system.side_threads import decode_text


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """The result of a finished process. ``seconds`` is its wall time."""

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


class ToolRunner(Protocol):
    """Runs programs on some host."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        deadline: float = 60.0,
        stdin: bytes | None = None,
        check: bool = True,
    ) -> ProcessResult:
        """Run one program to its end.

        Raises ToolMissing when it is not installed, DeadlineExceeded after ``deadline`` seconds, and, with
        ``check``, ToolFailed when it exits with anything but 0.
        """
        ...


class ProcessRunner(ToolRunner, Protocol):
    """Starts processes on this host. Passed in, so that decisions can be tested without any."""

    async def pipeline(
        self, stages: Sequence[Sequence[str]], hear: HearStage | None = None, *, nobody: Container[str] = ()
    ) -> Pipeline:
        """Start programs joined by kernel pipes, first to last; those named in ``nobody`` without root's rights.

        Raises ToolMissing; then nothing was started.
        """
        ...


class HostRunner:
    """Runs programs on this host."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        deadline: float = 60.0,
        stdin: bytes | None = None,
        check: bool = True,
    ) -> ProcessResult:
        """See ProcessRunner.run. Raises DeadlineExceeded also for what would only wait behind a program that hangs."""
        async with KERNEL_WAITS.enter(argv, deadline) as waiting:
            return await self._run(argv, deadline, stdin, check, waiting)

    async def _run(
        self, argv: Sequence[str], deadline: float, stdin: bytes | None, check: bool, waiting: WaitingProgram
    ) -> ProcessResult:
        started = time.monotonic()
        process = waiting.process = await spawn_program(
            argv,
            stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            # Not wait_for(): until CPython 3.12 it swallows a cancellation that comes as the program ends, and with
            # that every timeout of whoever called.
            async with KERNEL_WAITS.limit(waiting, deadline):
                out, err = await _communicate(process, stdin)
        except TimeoutError:
            await _give_up(process, waiting)
            raise DeadlineExceeded(
                f"{' '.join(argv[:2])} did not end within {deadline:g} s",
                "the device or pool it touches may hang",
                "look at 'zpool status' and the kernel log",
            ) from None
        except OutputTooLong:
            await kill_process(process)
            raise ToolFailed(
                f"'{' '.join(argv[:2])}' prints too much",
                f"more than {output.LONGEST_OUTPUT >> 20} MiB; it was ended",
                "run it by hand to see what it prints"
                + (", here or on the other host" if argv[0] == "ssh" else ""),
            ) from None
        except asyncio.CancelledError:
            await _give_up(process, waiting, cancelled=True)
            raise
        seconds = time.monotonic() - started
        result = ProcessResult(
            tuple(argv),
            process.returncode if process.returncode is not None else -1,
            await decode_text(out),
            await decode_text(err),
            seconds,
        )
        if check and result.returncode != 0:
            said = result.complaint()
            known = find_cure(said) if argv[0] in {"zfs", "zpool"} else ""
            raise ToolFailed(f"{result.tool} failed", said, known)
        return result

    async def pipeline(
        self, stages: Sequence[Sequence[str]], hear: HearStage | None = None, *, nobody: Container[str] = ()
    ) -> Pipeline:
        """See ProcessRunner.pipeline."""
        return await Pipeline.start(stages, hear, nobody)


async def _give_up(
    process: asyncio.subprocess.Process, waiting: WaitingProgram, *, cancelled: bool = False
) -> None:
    """Kill a program; one that hangs in the kernel is remembered, so that nothing is sent after it."""
    try:
        ended = await kill_process(process)
    except asyncio.CancelledError:
        # Nobody waits to see whether it ends; it is forgotten once it has.
        KERNEL_WAITS.leave(waiting, cancelled=cancelled)
        raise
    if not ended:
        KERNEL_WAITS.leave(waiting, cancelled=cancelled)


async def _communicate(process: asyncio.subprocess.Process, given: bytes | None) -> tuple[bytearray, bytes]:
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
