"""Keeps all streams of a run together within the backup's bandwidth limit, whatever it is at the moment.

It gives leave through a pipe that the streams' throttles (system/process/throttle.py) share, so much at a time as the
limit allows. A stream takes what it can use: nothing is shared out beforehand, and nothing of the limit is left unused
because one of the streams is slow.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence

from zvault.core.replication.bandwidth import StreamAllowance
from zvault.system.process.throttle import QUANTUM, count_unread_bytes, throttle_argv
from zvault.system.tasks import cancel_tasks

GIVE_EVERY = 0.05
"""Seconds between two times that leave is given."""

MOST_READY_QUANTA = 1 << 20
"""Quanta kept ready at most, where the pipe can hold so many: 4 GiB pass between two times."""

CurrentRate = Callable[[], int | None]
"""The limit at this moment in bytes a second; None without one."""


@contextlib.asynccontextmanager
async def limit_rate(rate: CurrentRate) -> AsyncIterator[Sequence[str]]:
    """Give leave while the block runs, at the rate that is in force; yields the argv of a throttled stage."""
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    with contextlib.suppress(OSError):
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, MOST_READY_QUANTA)
    giving = asyncio.create_task(_give(rate, read, write))
    # However it ends, streams must not wait for leave that nobody gives: they see the pipe end.
    giving.add_done_callback(lambda _: os.close(write))
    try:
        # By its path, so that each stage has a file description of its own: only it waits for leave.
        yield throttle_argv(f"/proc/{os.getpid()}/fd/{read}")
    finally:
        try:
            await cancel_tasks(giving)
        finally:
            os.close(read)
        if not giving.cancelled():
            giving.result()


async def _give(rate: CurrentRate, read: int, write: int) -> None:
    # A pipe that is full to the brim may keep a writer of one byte waiting for a whole page (pipe(7)): leave some room.
    allowance = StreamAllowance(QUANTUM, fcntl.fcntl(write, fcntl.F_GETPIPE_SZ) // 2)
    last = time.monotonic()
    while True:
        now = time.monotonic()
        due = allowance.due(rate(), now - last, count_unread_bytes(read))
        last = now
        with contextlib.suppress(BlockingIOError):
            if due > 0:
                os.write(write, bytes(due))
            elif due < 0:
                os.read(read, -due)
        await asyncio.sleep(GIVE_EVERY)
