"""One stream: ``zfs send | mbuffer | zfs receive``, or both in a helper process, watched from outside.

The bytes go from process to process through kernel pipes. What the processes say on stderr gives the progress,
and the first of them to fail gives the reason. A helper (zfs/lzc_stream.py) says the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn, Protocol

from zvault.core.errors import Stalled
from zvault.core.names import DatasetName
from zvault.core.replication.progress import FillRange, RecentRate
from zvault.core.units import format_duration, format_size
from zvault.ops.stream.failure import raise_stream_failure
from zvault.system.process.pipeline import StageEnd
from zvault.system.process.runner import ProcessRunner
from zvault.system.process.throttle import parse_bytes_let_pass
from zvault.system.tasks import Look, finish_work
from zvault.zfs.stream_stages import HELPERS, parse_bytes_passed, parse_bytes_sent

PROGRESS_EVERY = 0.5
"""Seconds between progress events."""

WINDING_UP = 30.0
"""Seconds the receiver may take to save what it has, once its stream ended: a txg of a slow vault, or two."""

LEAST_RATE = 1024.0
"""Bytes a second, over the time after which a silent stream counts as dead, that a stream must make while others wait
for its slot. Four streams of one byte each 20 s once kept every other backup from a vault.
"""

HANGING = 3.0
"""Seconds a stream may take to end after it was killed, before it is left to the kernel."""


@dataclass
class StreamProgress:
    """Bytes of one stream so far. ``passed`` is what the receiver took, by mbuffer's word or else the throttle's;
    ``marks`` are percent of mbuffer's memory.

    ``stirred`` is when a stage last told of bytes it had not told of before (seconds, monotonic). ``stages`` gives the
    stages and their process ids, ``inputs`` the pipes that these read from.
    """

    total: int | None
    started: float = field(default_factory=time.monotonic)
    passed: int | None = None
    marks: FillRange = field(default_factory=FillRange)
    stirred: float = field(default_factory=time.monotonic)
    stages: Callable[[], Sequence[tuple[Sequence[str], int]]] = tuple
    inputs: Callable[[], Mapping[int, str]] = dict
    _buffered: bool = False
    _name: str = ""
    _before: int = 0
    _of_it: int = 0
    _pace: RecentRate = field(default_factory=RecentRate)

    @property
    def programs(self) -> Sequence[tuple[Sequence[str], int]]:
        """The stages and their process ids at this moment."""
        return self.stages()

    @property
    def sent(self) -> int:
        """Bytes the sender wrote; it counts each snapshot of a ``-I`` stream from 0 again."""
        return self._before + self._of_it

    @property
    def done(self) -> int:
        """Bytes that reached the receiver; where nobody tells of those, bytes the sender wrote."""
        return self.sent if self.passed is None else self.passed

    def note(self) -> None:
        """Note how far it is, for the rate."""
        self._pace.note(time.monotonic(), self.done)

    def rate(self) -> float:
        """Bytes a second, over the last seconds."""
        return self._pace.rate()

    def hear_stage(self, _: int, line: str) -> None:
        """Take in a line of a stage, by its number."""
        self.hear(line)

    def hear(self, line: str) -> None:
        """Take in a line one of the stages said."""
        before = (self.sent, self.passed)
        self._take_in(line)
        # The throttle says one also while it waits for leave: then it is the limit that keeps the bytes.
        if before != (self.sent, self.passed) or parse_bytes_let_pass(line) is not None:
            self.stirred = time.monotonic()

    def _take_in(self, line: str) -> None:
        if (sent := parse_bytes_sent(line)) is not None:
            # One snapshot after the other: what the sender, maybe on another host, calls them is not kept.
            name = line.split("\t", 2)[2]
            if name != self._name:
                self._name, self._before, self._of_it = name, self._before + self._of_it, 0
            self._of_it = max(self._of_it, sent)
        elif (let := parse_bytes_let_pass(line)) is not None and not self._buffered:
            self.passed = max(self.passed or 0, let)
        elif line.startswith(("in @", "summary:")) and (passed := parse_bytes_passed(line)) is not None:
            self.passed = max(self.passed or 0, passed[0])
            self._buffered = True
            if passed[1] is not None:
                self.marks.note(time.monotonic(), passed[1])


@dataclass(frozen=True, slots=True)
class ActiveStream:
    """A stream into a vault that is under way, for whoever asks how it fares."""

    backup: str
    vault: str
    dataset: DatasetName
    progress: StreamProgress


@dataclass(frozen=True, slots=True)
class StreamResult:
    """A stream that went through: bytes and seconds."""

    bytes: int
    seconds: float


def _never() -> bool:
    return False


async def run_stream(
    runner: ProcessRunner,
    stages: Sequence[Sequence[str]],
    *,
    total: int | None,
    report: Callable[[StreamProgress], None],
    trouble: Look | None = None,
    stall: float = math.inf,
    crowded: Callable[[], bool] = _never,
) -> StreamResult:
    """Run one stream to its end: the last of its stages receives it.

    Raises what the first failing stage amounts to, and Stalled when nothing has moved for ``stall`` seconds, or less
    than LEAST_RATE while others wait for its slot (``crowded``). Cancelling it puts every stage down, and the receiver
    keeps what it has for a resume; if ``trouble`` finds any it is not waited for.
    """
    progress = StreamProgress(total)
    begun = await runner.pipeline(stages, progress.hear_stage, nobody=HELPERS)
    return await attend_stream(begun, StreamWatch(progress, report, stall, crowded), trouble)


class StreamUnderWay(Protocol):
    """A stream that was begun: a Pipeline of programs, or a stream in a helper."""

    def programs(self) -> Sequence[tuple[Sequence[str], int]]:
        """Each stage, with the id of its process or thread."""
        ...

    def inputs(self) -> Mapping[int, str]:
        """The path of the pipe that each stage but the first reads from, by its id."""
        ...

    async def wait(self) -> list[StageEnd]:
        """Wait for the ends of all stages."""
        ...

    async def kill(self, patience: float = 0.0) -> None:
        """Put it down; the receiver has ``patience`` seconds to keep what it has."""
        ...


async def attend_stream(pipeline: StreamUnderWay, watch: StreamWatch, trouble: Look | None) -> StreamResult:
    """Watch a stream that was begun to its end, as ``run_stream`` does."""
    progress = watch.progress
    progress.stages, progress.inputs = pipeline.programs, pipeline.inputs
    ends = asyncio.ensure_future(pipeline.wait())
    watching = asyncio.ensure_future(watch.execute())
    try:
        await asyncio.wait({ends, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not ends.done():
            watching.result()
        raise_stream_failure(await asyncio.shield(ends))
    finally:
        watching.cancel()
        # Also where one who reads what a stage says has failed: its pipe would fill, and nobody would see it stall.
        if not ends.done() or ends.cancelled() or ends.exception() is not None:
            await finish_work(_give_up(pipeline, ends, trouble))
    progress.note()
    watch.report(progress)
    # The sender tells no last figure, only one a second: without mbuffer's the estimate is nearer.
    moved = max(progress.sent, progress.total or 0) if progress.passed is None else progress.done
    return StreamResult(moved, time.monotonic() - progress.started)


@dataclass
class StreamWatch:
    """Watches one stream, and reports on it now and then.

    ``_slow_since``: since when it is looked at whether it makes LEAST_RATE, and what it had moved then.
    """

    progress: StreamProgress
    report: Callable[[StreamProgress], None]
    stall: float
    crowded: Callable[[], bool]
    _slow_since: tuple[float, int] | None = None

    async def execute(self) -> NoReturn:
        """Watch until it is cancelled. Raises Stalled."""
        while True:
            await asyncio.sleep(PROGRESS_EVERY)
            self.progress.note()
            self.report(self.progress)
            now = time.monotonic()
            self._refuse_silence(now - self.progress.stirred)
            self._refuse_trickle(now)

    def _refuse_silence(self, still: float) -> None:
        if still >= self.stall:
            raise Stalled(
                "the stream stood still and was stopped",
                f"no byte moved for {format_duration(still)}, after {self._moved}",
                "the next try resumes it; a vault that is that slow at times needs a longer 'stall'",
            )

    def _refuse_trickle(self, now: float) -> None:
        """Only while others wait: nobody is harmed by a slow stream otherwise, and a slow one is better than none."""
        done = self.progress.done
        if not self.crowded():
            self._slow_since = None
            return
        since, before = self._slow_since = self._slow_since or (now, done)
        if now - since < self.stall:
            return
        if done - before < LEAST_RATE * (now - since):
            raise Stalled(
                "the stream hardly moved and was stopped, since others wait for its place",
                f"{format_size(done - before)} in {format_duration(now - since)}, after {self._moved}",
                "the next try resumes it; see what slows down its source: 'zvaultctl doctor' during the run",
            )
        self._slow_since = now, done

    @property
    def _moved(self) -> str:
        of = f" of {format_size(self.progress.total)}" if self.progress.total else ""
        return f"{format_size(self.progress.done)}{of}"


async def _give_up(
    pipeline: StreamUnderWay, ends: asyncio.Future[list[StageEnd]], trouble: Look | None
) -> None:
    """Put a stream down; a stage that hangs in the kernel is not waited for, nor one whose vault fell away."""
    lost = None
    if trouble is not None:
        # Whatever becomes of the look, the stream is put down.
        with contextlib.suppress(Exception):
            lost = await trouble()
    await pipeline.kill(0.0 if lost else WINDING_UP)
    await asyncio.wait({ends}, timeout=HANGING)
