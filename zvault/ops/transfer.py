"""One stream: ``zfs send | mbuffer | zfs receive``, watched from outside.

The bytes go from process to process through kernel pipes. What the processes say on stderr gives the progress,
and the first of them to fail gives the reason.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from zvault.config.profile import Stream
from zvault.core.errors import (
    Busy,
    Conflict,
    DeviceGone,
    PoolSuspended,
    TransferFailed,
    VaultFull,
    ZvaultError,
)
from zvault.system.process import Pipeline, Runner, StageEnd, describe_exit
from zvault.zfs.stream import bytes_passed, bytes_sent, is_progress, mbuffer_argv

WATCH_EVERY = 2.0
"""Seconds between looks at the vault's devices and pool while a stream runs."""

PROGRESS_EVERY = 0.5
"""Seconds between progress events."""

HANGING = 10.0
"""Seconds a stream may take to end after it was told to, before it is left to the kernel."""

Trouble = Callable[[], Awaitable[ZvaultError | None]]
"""Asked while a stream runs whether the vault below it is still there."""


@dataclass
class Progress:
    """Bytes of one stream so far. ``passed`` is what the receiver took, ``buffer`` percent of mbuffer's memory."""

    total: int | None
    started: float = field(default_factory=time.monotonic)
    sent: int = 0
    passed: int | None = None
    buffer: int | None = None

    @property
    def done(self) -> int:
        """Bytes that reached the receiver; without mbuffer, bytes the sender wrote."""
        return self.sent if self.passed is None else self.passed

    def rate(self) -> float:
        """Bytes a second since the start."""
        return self.done / max(time.monotonic() - self.started, 1e-3)

    def hear(self, line: str) -> None:
        """Take in a line one of the stages said."""
        if (sent := bytes_sent(line)) is not None:
            self.sent = max(self.sent, sent)
        elif line.startswith(("in @", "summary:")) and (passed := bytes_passed(line)) is not None:
            self.passed = max(self.passed or 0, passed[0])
            self.buffer = passed[1] if passed[1] is not None else self.buffer


@dataclass(frozen=True, slots=True)
class Streamed:
    """A stream that went through: bytes and seconds."""

    bytes: int
    seconds: float


def has_mbuffer() -> bool:
    """Whether mbuffer is installed here."""
    return shutil.which("mbuffer") is not None


async def stream(
    runner: Runner,
    send: Sequence[str],
    receive: Sequence[str],
    *,
    buffer: Stream | None,
    total: int | None,
    report: Callable[[Progress], None],
    trouble: Trouble | None = None,
) -> Streamed:
    """Run one stream to its end.

    ``buffer`` None leaves mbuffer out. Raises what the first failing stage or the vault's trouble amounts to;
    cancelling it puts every stage down, and the receiver keeps what it has for a resume.
    """
    stages = [send, receive] if buffer is None else [send, mbuffer_argv(buffer.buffer, buffer.block), receive]
    progress = Progress(total)
    pipeline = await runner.pipeline(stages, lambda _, line: progress.hear(line))
    ends = asyncio.ensure_future(pipeline.wait())
    watch = asyncio.ensure_future(_watch(trouble)) if trouble else None
    reporting = asyncio.ensure_future(_report(progress, report))
    try:
        waiting: list[asyncio.Future[Any]] = [ends, *([watch] if watch else [])]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not ends.done() and watch is not None:
            problem = watch.result()
            await _give_up(pipeline, ends)
            raise problem
        _judge(ends.result())
    except asyncio.CancelledError:
        await _give_up(pipeline, ends)
        raise
    finally:
        for task in (reporting, watch):
            if task is not None:
                task.cancel()
    report(progress)
    # The sender reports once a second only: a short stream may end before its first word.
    moved = max(progress.done, progress.sent) or (total or 0)
    return Streamed(moved, time.monotonic() - progress.started)


async def _watch(trouble: Trouble) -> ZvaultError:
    while True:
        await asyncio.sleep(WATCH_EVERY)
        if (problem := await trouble()) is not None:
            return problem


async def _report(progress: Progress, report: Callable[[Progress], None]) -> None:
    while True:
        await asyncio.sleep(PROGRESS_EVERY)
        report(progress)


async def _give_up(pipeline: Pipeline, ends: asyncio.Future[list[StageEnd]]) -> None:
    """Put a stream down; a stage that hangs in the kernel is not waited for."""
    await pipeline.kill()
    await asyncio.wait({ends}, timeout=HANGING)


_RECEIVER_SAYS: tuple[tuple[str, type[ZvaultError], str], ...] = (
    ("out of space", VaultFull, "make room on the vault: prune more, or grow its device"),
    ("No space left", VaultFull, "make room on the vault: prune more, or grow its device"),
    ("I/O is currently suspended", PoolSuspended, "bring the vault's device back, then run again"),
    ("I/O error", DeviceGone, "look at 'zpool status' and the vault's devices"),
    ("has been modified", Conflict, "'zfs rollback' the vault's dataset to the base, or rename it"),
    ("most recent snapshot", Conflict, "'zfs rollback' the vault's dataset to the base, or rename it"),
    ("is busy", Busy, "another receive may be running; 'zfs holds' and 'zfs mount' show what uses it"),
)


def _judge(ends: Sequence[StageEnd]) -> None:
    """Raise for the stage that failed first; the others fail only because it did."""
    failed = [end for end in ends if not end.ok]
    if not failed:
        return
    first = min(failed, key=lambda end: end.ended)
    receiver = ends[-1]
    # zfs send and mbuffer also end by SIGPIPE when the receiver refuses; its own words are the cause.
    culprit = (
        receiver
        if not receiver.ok and _complaint(receiver) and "incomplete stream" not in receiver.stderr
        else first
    )
    what = f"{' '.join(culprit.argv[:2]) if culprit.argv[0] == 'zfs' else culprit.argv[0]} failed"
    why = _complaint(culprit) or describe_exit(culprit.returncode)
    for phrase, kind, advice in _RECEIVER_SAYS:
        if culprit is receiver and phrase in culprit.stderr:
            raise kind(what, why, advice)
    raise TransferFailed(what, why, "run it again: an interrupted receive is resumed")


def _complaint(end: StageEnd) -> str:
    """What a stage said of its trouble: its lines without progress and without the hint how to resume."""
    lines = [line.strip() for line in end.stderr.splitlines() if line.strip() and not is_progress(line)]
    hint = next((i for i, line in enumerate(lines) if line.startswith("Partially received")), len(lines))
    return "; ".join(lines[:hint][:3])
