"""One stream: ``zfs send | mbuffer | zfs receive``, watched from outside.

The bytes go from process to process through kernel pipes. What the processes say on stderr gives the progress,
and the first of them to fail gives the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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
from zvault.ops.watch import Look, to_its_end
from zvault.system.process import Pipeline, Runner, StageEnd, describe_exit
from zvault.zfs.stream import bytes_passed, bytes_sent, is_progress, mbuffer_argv

PROGRESS_EVERY = 0.5
"""Seconds between progress events."""

WINDING_UP = 30.0
"""Seconds the receiver may take to save what it has, once its stream ended: a txg of a slow vault, or two."""

HANGING = 3.0
"""Seconds a stream may take to end after it was killed, before it is left to the kernel."""


@dataclass
class Progress:
    """Bytes of one stream so far. ``passed`` is what the receiver took, ``buffer`` percent of mbuffer's memory."""

    total: int | None
    started: float = field(default_factory=time.monotonic)
    passed: int | None = None
    buffer: int | None = None
    _of_each: dict[str, int] = field(default_factory=dict)

    @property
    def sent(self) -> int:
        """Bytes the sender wrote; it counts each snapshot of a ``-I`` stream from 0 again."""
        return sum(self._of_each.values())

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
            name = line.split("\t", 2)[2]
            self._of_each[name] = max(self._of_each.get(name, 0), sent)
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
    trouble: Look | None = None,
) -> Streamed:
    """Run one stream to its end.

    ``buffer`` None leaves mbuffer out. Raises what the first failing stage amounts to. Cancelling it puts every
    stage down, and the receiver keeps what it has for a resume; if ``trouble`` finds any it is not waited for.
    """
    stages = [send, receive] if buffer is None else [send, mbuffer_argv(buffer.buffer, buffer.block), receive]
    progress = Progress(total)
    pipeline = await runner.pipeline(stages, lambda _, line: progress.hear(line))
    ends = asyncio.ensure_future(pipeline.wait())
    reporting = asyncio.ensure_future(_report(progress, report))
    try:
        _judge(await asyncio.shield(ends))
    finally:
        reporting.cancel()
        if not ends.done():
            await to_its_end(_give_up(pipeline, ends, trouble))
    report(progress)
    # The sender reports once a second only: a short stream may end before its first word.
    moved = max(progress.done, progress.sent) or (total or 0)
    return Streamed(moved, time.monotonic() - progress.started)


async def _report(progress: Progress, report: Callable[[Progress], None]) -> None:
    while True:
        await asyncio.sleep(PROGRESS_EVERY)
        report(progress)


async def _give_up(pipeline: Pipeline, ends: asyncio.Future[list[StageEnd]], trouble: Look | None) -> None:
    """Put a stream down; a stage that hangs in the kernel is not waited for, nor one whose vault fell away."""
    lost = None
    if trouble is not None:
        # Whatever becomes of the look, the stream is put down.
        with contextlib.suppress(Exception):
            lost = await trouble()
    await pipeline.kill(0.0 if lost else WINDING_UP)
    await asyncio.wait({ends}, timeout=HANGING)


_RECEIVER_SAYS: tuple[tuple[str, type[ZvaultError], str], ...] = (
    ("out of space", VaultFull, "make room on the vault: prune more, or grow its device"),
    ("quota exceeded", VaultFull, "raise the quota on the vault, or prune more"),
    ("No space left", VaultFull, "make room on the vault: prune more, or grow its device"),
    ("I/O is currently suspended", PoolSuspended, "bring the vault's device back, then run again"),
    ("I/O error", DeviceGone, "look at 'zpool status' and the vault's devices"),
    ("has been modified", Conflict, "'zfs rollback' the vault's dataset to the base, or rename it"),
    ("most recent snapshot", Conflict, "'zfs rollback' the vault's dataset to the base, or rename it"),
    (
        "already exists",
        Conflict,
        "a snapshot of that name, but not of that origin, is on the vault: rename it",
    ),
    ("is busy", Busy, "another receive may be running; 'zfs holds' and 'zfs mount' show what uses it"),
)


_ECHOES = ("incomplete stream", "failed to read from stream", "invalid backup stream")
"""What zfs receive says of a stream that ended too soon: the cause is whoever ended it."""


def _judge(ends: Sequence[StageEnd]) -> None:
    """Raise for the stage that failed first; the others fail only because it did."""
    failed = [end for end in ends if not end.ok]
    if not failed:
        return
    culprit = _culprit(failed, ends[-1])
    what = f"{' '.join(culprit.argv[:2]) if culprit.argv[0] == 'zfs' else culprit.argv[0]} failed"
    why = _complaint(culprit) or describe_exit(culprit.returncode)
    for phrase, kind, advice in _RECEIVER_SAYS:
        if culprit is ends[-1] and phrase in culprit.stderr:
            raise kind(what, why, advice)
    raise TransferFailed(what, why, "run it again: an interrupted receive is resumed")


def _culprit(failed: Sequence[StageEnd], receiver: StageEnd) -> StageEnd:
    """The receiver, if it says what it has against the stream; else the first that did not just lose its neighbour."""
    echo = any(phrase in receiver.stderr for phrase in _ECHOES)
    if receiver in failed and not echo and _complaint(receiver):
        return receiver
    at_fault = [
        end
        for end in failed
        if not (end is receiver and echo)
        and end.returncode != -signal.SIGPIPE
        and "Broken pipe" not in end.stderr
    ]
    return min(at_fault or failed, key=lambda end: end.ended)


def _complaint(end: StageEnd) -> str:
    """What a stage said of its trouble: its lines without progress and without the hint how to resume."""
    lines = [line.strip() for line in end.stderr.splitlines() if line.strip() and not is_progress(line)]
    hint = next((i for i, line in enumerate(lines) if line.startswith("Partially received")), len(lines))
    return "; ".join(lines[:hint][:3])
