"""Small streams within this host through libzfs_core, in helper processes that are kept for the next one.

A stream that is under way here is watched and put down as a pipeline of programs is (system/process/pipeline.py), and
tells its end as ``zfs send`` and ``zfs receive`` would.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zvault.core.errors import ToolFailed, ToolMissing, ZvaultError
from zvault.core.names import DatasetName, SnapshotName
from zvault.system.process.json_child import JsonChild
from zvault.system.process.pipeline import StageEnd
from zvault.system.process.throttle import THROTTLE_PREFIX
from zvault.zfs.gate.check import StreamOrder
from zvault.zfs.gate.process import GATE_PREFIX, REFUSED_STATUS, gate_argv
from zvault.zfs.lzc_stream_words import describe_receive_errno, describe_send_errno

LZC_STREAM_CHILD = Path(__file__).with_name("lzc_stream_child.py")

IDLE_HELPER_TIME = 60.0
"""Seconds after which a helper without a stream is ended: between two runs there is none."""

HELPER_START_DEADLINE = 30.0

HearBytes = Callable[[str], None]
"""Told how many bytes went through so far, as a throttle tells it."""


@dataclass(frozen=True, slots=True)
class StreamPart:
    """One snapshot to send, after a ``base``: a snapshot or bookmark. The ``order`` is what its stream has to be."""

    snapshot: SnapshotName
    base: str
    order: StreamOrder


@dataclass(frozen=True, slots=True)
class SmallStream:
    """The snapshots that one request sends into the dataset ``target``: one snapshot after the other.

    ``flags`` are those of libzfs_core's send_space; ``properties`` are set on the target, numbers as they are stored.
    """

    target: DatasetName
    parts: tuple[StreamPart, ...]
    flags: tuple[str, ...]
    properties: Mapping[str, int | str]

    def request(self) -> dict[str, Any]:
        """It as the helper is asked for it."""
        return {
            "flags": list(self.flags),
            "properties": dict(self.properties),
            "parts": [
                {
                    "snapshot": one.snapshot,
                    "base": one.base,
                    "into": self.into(one),
                    "order": one.order.words(),
                }
                for one in self.parts
            ],
        }

    def into(self, part: StreamPart) -> str:
        """The snapshot that a part becomes."""
        return f"{self.target}@{part.snapshot.snapname}"


class HelperStream:
    """A stream that is under way in a helper."""

    def __init__(
        self, child: JsonChild, stream: SmallStream, hear: HearBytes, spare: Callable[[JsonChild], None]
    ) -> None:
        self._child, self._stream, self._hear, self._spare = child, stream, hear, spare
        last = stream.parts[-1].snapshot
        self._argvs = (
            ("zfs", "send", "-i", stream.parts[0].base, last),
            ("zfs", "receive", "-s", "-u", stream.target),
        )
        self._threads = [child.pid, child.pid]
        self._inputs: dict[int, str] = {}
        self._killed = asyncio.Event()
        self._following = asyncio.ensure_future(self._follow())
        self._ending = asyncio.ensure_future(self._end())

    def programs(self) -> Sequence[tuple[tuple[str, ...], int]]:
        """Return what stands for the two stages, each with the id of its thread."""
        return list(zip(self._argvs, self._threads, strict=True))

    def inputs(self) -> dict[int, str]:
        """The path of the pipe that the receiving thread reads from, by its id."""
        return {} if self._ending.done() else dict(self._inputs)

    async def wait(self) -> list[StageEnd]:
        """Wait for the end of both, as of two programs."""
        return await asyncio.shield(self._ending)

    async def kill(self, patience: float = 0.0) -> None:
        """Stop it. The receiver has ``patience`` seconds to keep what it has; then its helper is left to the kernel."""
        if self._ending.done():
            return
        with contextlib.suppress(ConnectionError):
            await self._child.tell({"stop": True})
        await asyncio.wait({self._ending}, timeout=patience)
        if not self._ending.done():
            await self._child.close()
            self._killed.set()
            await asyncio.wait({self._ending})

    async def _end(self) -> list[StageEnd]:
        """The ends as the helper tells them, or those of one that was killed and may hang, and tells nothing."""
        killed = asyncio.ensure_future(self._killed.wait())
        await asyncio.wait({self._following, killed}, return_when=asyncio.FIRST_COMPLETED)
        killed.cancel()
        if not self._following.done():
            self._following.cancel()
            return self._without_a_word("")
        return self._following.result()

    async def _follow(self) -> list[StageEnd]:
        try:
            while True:
                line = await self._child.read(None)
                if "end" in line:
                    break
                self._take_in(line)
        except ZvaultError as error:
            return self._without_a_word(error.why)
        self._hear(f"{THROTTLE_PREFIX}{line['end']['passed']}")
        self._spare(self._child)
        return self._told(self._stream.parts[line["part"]], line["end"])

    def _take_in(self, line: Mapping[str, Any]) -> None:
        if "passed" in line:
            self._hear(f"{THROTTLE_PREFIX}{line['passed']}")
        else:
            self._threads = [line["sender"], line["receiver"]]
            self._inputs = {line["receiver"]: line["input"]}

    def _told(self, part: StreamPart, end: Mapping[str, Any]) -> list[StageEnd]:
        error, at = end["send"]
        ends = [self._stage(0, describe_send_errno(error, part.snapshot) if error else "", at)]
        if end["refused"]:
            ends.append(
                StageEnd(tuple(gate_argv(part.order)), REFUSED_STATUS, f"{GATE_PREFIX}{end['refused']}", at)
            )
        if end["receive"] is None:
            # It was not begun: the cause is what ended the stream before it.
            return [*ends, self._stage(1, "cannot receive: failed to read from stream", time.monotonic())]
        error, at = end["receive"]
        said = describe_receive_errno(error, self._stream.target, self._stream.into(part)) if error else ""
        return [*ends, self._stage(1, said, at)]

    def _stage(self, number: int, said: str, ended: float) -> StageEnd:
        return StageEnd(self._argvs[number], int(bool(said)), said, ended)

    def _without_a_word(self, why: str) -> list[StageEnd]:
        code = 1 if why else -signal.SIGKILL
        return [StageEnd(argv, code, why, time.monotonic()) for argv in self._argvs]


class StreamHelpers:
    """The helper processes: as many as there were streams at once, each for one at a time.

    One that hangs is left to the kernel, and the next stream has another. After ``idle`` seconds without a stream one
    is ended.
    """

    def __init__(
        self,
        idle: float = IDLE_HELPER_TIME,
        argv: Sequence[str] = (sys.executable, "-I", "-S", str(LZC_STREAM_CHILD)),
    ) -> None:
        self._argv = argv
        self._patience = idle
        self._idle: dict[JsonChild, float] = {}
        self._ends: set[asyncio.Task[None]] = set()
        self._closed = False

    async def start(self, stream: SmallStream, hear: HearBytes) -> HelperStream:
        """Begin a stream. Raises ToolMissing where libzfs_core cannot be used."""
        while self._idle:
            with contextlib.suppress(ConnectionError):  # it ended while it had no stream
                return await self._begin(self._idle.popitem()[0], stream, hear)
        try:
            return await self._begin(await self._another(), stream, hear)
        except ConnectionError:
            raise _make_unusable("it ended as soon as it was there") from None

    async def _begin(self, child: JsonChild, stream: SmallStream, hear: HearBytes) -> HelperStream:
        try:
            await child.tell(stream.request())
        except BaseException:
            await child.close()
            raise
        return HelperStream(child, stream, hear, self._take_back)

    async def close(self) -> None:
        """End those that have no stream; the others once they have none."""
        self._closed = True
        while self._idle:  # one whose time is over meanwhile takes itself out
            await self._idle.popitem()[0].close()
        for task in self._ends:
            task.cancel()

    async def _another(self) -> JsonChild:
        child = await JsonChild.start(self._argv)
        try:
            await child.read(deadline=HELPER_START_DEADLINE)
        except ToolFailed as error:
            raise _make_unusable(error.why) from None
        except asyncio.CancelledError:
            await child.close()
            raise
        return child

    def _take_back(self, child: JsonChild) -> None:
        task = asyncio.ensure_future(self._end_if_idle(child))
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    async def _end_if_idle(self, child: JsonChild) -> None:
        if not self._closed:
            self._idle[child] = since = time.monotonic()
            await asyncio.sleep(self._patience)
            if self._idle.get(child) != since:
                return  # it has had another stream
            del self._idle[child]
        await child.close()


def _make_unusable(why: str) -> ToolMissing:
    return ToolMissing(
        "libzfs_core cannot be used for streams",
        why,
        "small streams go through 'zfs send' and 'zfs receive' all the same, slower",
    )
