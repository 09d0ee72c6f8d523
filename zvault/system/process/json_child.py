"""A long-lived child process that answers questions: for calls into the kernel that must not run in the daemon."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zvault.core.errors import DeadlineExceeded, ToolFailed
from zvault.system.process.kernel_waits import EndingProcess
from zvault.system.process.output import find_last_line, make_line_tail, read_lines
from zvault.system.process.spawn import KILL_GRACE, describe_exit, kill_process, spawn_program

LONGEST_ANSWER = 64 << 20
"""Bytes in one answer of a Conversation: a failure may name every snapshot of a large pool."""


class JsonChild:
    """A child process that is asked in JSON, a line a request, and answers in kind."""

    def __init__(self, argv: Sequence[str], process: asyncio.subprocess.Process) -> None:
        self.argv = tuple(argv)
        self._process = process
        self._said = make_line_tail()
        self._listening = asyncio.ensure_future(read_lines(process.stderr, self._said.append))

    @classmethod
    async def start(cls, argv: Sequence[str]) -> JsonChild:
        """Start the child. Raises ToolMissing."""
        pipe = asyncio.subprocess.PIPE
        return cls(argv, await spawn_program(argv, stdin=pipe, stdout=pipe, limit=LONGEST_ANSWER))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def process(self) -> EndingProcess:
        """The process itself, for who has to know when it ends."""
        return self._process

    @property
    def runs(self) -> bool:
        """True if it has not ended, as far as is known."""
        return self._process.returncode is None

    async def tell(self, request: Mapping[str, Any]) -> None:
        """Send something without waiting for an answer. Raises ConnectionError when the child has ended."""
        assert self._process.stdin is not None  # noqa: S101 - started with pipes
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        await self._process.stdin.drain()

    async def ask(self, request: Mapping[str, Any], deadline: float) -> dict[str, Any]:
        """Send one request and wait for its answer, as ``read`` does.

        After a cancellation the child has to be closed: its answer may still come.
        """
        return await self._answer(json.dumps(request).encode() + b"\n", deadline)

    async def read(self, deadline: float | None) -> dict[str, Any]:
        """Wait for one line, without a ``deadline`` as long as it takes. Whatever this raises, the child was put down.

        Raises DeadlineExceeded, or ToolFailed when the child has ended or cannot be understood.
        """
        return await self._answer(b"", deadline)

    async def _answer(self, request: bytes, deadline: float | None) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None  # noqa: S101 - started with pipes
        assert stdout is not None  # noqa: S101
        try:
            async with asyncio.timeout(deadline):
                if request:  # of one that has ended, what it said before can still be read
                    stdin.write(request)
                    await stdin.drain()
                line = await stdout.readline()
            answer = json.loads(line) if line else None
        except TimeoutError:
            raise await self._too_late(deadline or 0.0) from None
        except ConnectionError:
            raise await self._ended() from None
        except ValueError as error:  # no JSON, or a line longer than any answer
            await kill_process(self._process)
            raise ToolFailed(f"{' '.join(self.argv[-2:])} cannot be understood", str(error)) from None
        if not isinstance(answer, dict):
            raise await self._ended()
        return answer

    async def _too_late(self, deadline: float) -> DeadlineExceeded:
        await kill_process(self._process)
        return DeadlineExceeded(
            f"{Path(self.argv[0]).name} did not answer within {deadline:g} s",
            "the pool it works on may hang",
            "look at 'zpool status' and the kernel log",
        )

    async def _ended(self) -> ToolFailed:
        await asyncio.wait({self._listening}, timeout=KILL_GRACE)
        await kill_process(self._process)
        code, said = self._process.returncode, find_last_line(self._said)
        killed = [describe_exit(code)] if code is not None and code < 0 else []
        return ToolFailed(
            f"the helper '{' '.join(self.argv[-2:])}' ended",
            ": ".join(filter(None, [*killed, said])) or "without a word",
            "the next try starts it anew; 'journalctl -k' tells whether the kernel killed it",
        )

    async def close(self) -> None:
        """Close the child's input and put it down."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        await kill_process(self._process)
