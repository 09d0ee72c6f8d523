"""Streams of real processes under one limit: all together keep to it, also when it changes on the way."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence

import pytest

from tests.unit.patience import PATIENCE
from zvault.core.replication.bandwidth import ALLOWANCE_BURST
from zvault.ops.stream.bandwidth import limit_rate

MIB = 1 << 20


class Streams:
    """Endless streams through throttles; counts what arrives."""

    def __init__(self, throttle: Sequence[str], senders: Sequence[str]) -> None:
        self.throttle = " ".join(throttle)
        self.senders = senders
        self.arrived = [0] * len(senders)

    async def __aenter__(self) -> "Streams":
        pipe = asyncio.subprocess.PIPE
        self.processes = [
            await asyncio.create_subprocess_shell(
                f"{sender} | exec {self.throttle}", stdout=pipe, stderr=pipe, start_new_session=True
            )
            for sender in self.senders
        ]
        self.tasks = [asyncio.create_task(self.read(number)) for number in range(len(self.processes))]
        return self

    async def read(self, number: int) -> None:
        out = self.processes[number].stdout
        assert out is not None
        while chunk := await out.read(MIB):
            self.arrived[number] += len(chunk)

    async def rates(self, seconds: float) -> list[float]:
        """MiB a second of each, from now on."""
        before, began = list(self.arrived), time.monotonic()
        await asyncio.sleep(seconds)
        took = time.monotonic() - began
        return [(now - then) / took / MIB for now, then in zip(self.arrived, before, strict=True)]

    async def keep_to(self, limit: float, seconds: float, fair: Callable[[list[float]], bool]) -> None:
        """For some seconds they go about as fast as they may, all together; never faster, but for what was saved up.

        A machine that is busy, or stands still for a moment, may need more than one try to go that fast.
        """
        async with asyncio.timeout(PATIENCE):
            while True:
                rates = await self.rates(seconds)
                assert sum(rates) < limit * (1 + ALLOWANCE_BURST / seconds) * 1.15
                if limit * 0.6 < sum(rates) < limit * 1.15 and fair(rates):
                    return

    async def __aexit__(self, *_: object) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*self.tasks)
            await asyncio.gather(*(process.wait() for process in self.processes))


FAST = "head -c 10G /dev/zero"
SLOW = "sh -c 'while sleep 0.1; do echo x; done'"


async def test_all_together_keep_to_it_and_a_slow_one_leaves_its_share_to_the_others() -> None:
    async with limit_rate(lambda: 8 * MIB) as throttle, Streams(throttle, [FAST, FAST, SLOW]) as streams:
        await asyncio.sleep(0.5)
        await streams.keep_to(8, 1.5, lambda rates: 0.6 * rates[1] < rates[0] < 1.7 * rates[1])
        assert streams.arrived[2] < MIB


async def test_a_new_rate_is_in_force_at_once_and_no_limit_is_none() -> None:
    rate: list[int | None] = [4 * MIB]
    async with limit_rate(lambda: rate[0]) as throttle, Streams(throttle, [FAST]) as streams:
        await asyncio.sleep(0.5)
        await streams.keep_to(4, 1.0, any)
        rate[0] = None
        await asyncio.sleep(0.2)
        async with asyncio.timeout(PATIENCE):
            while (await streams.rates(0.5))[0] < 3 * 4:  # how fast it can be is the machine's affair
                pass
        rate[0] = 2 * MIB
        await asyncio.sleep(0.5)
        await streams.keep_to(2, 1.0, any)


async def test_a_limit_that_cannot_be_told_ends_the_streams_and_is_raised() -> None:
    def rate() -> int | None:
        return 1 // 0

    async def stream() -> None:
        async with (
            limit_rate(rate) as throttle,
            Streams(throttle, [FAST]) as streams,
            asyncio.timeout(PATIENCE),
        ):
            await streams.processes[0].wait()
            assert streams.arrived == [0]

    with pytest.raises(ZeroDivisionError):
        await stream()


async def test_with_nobody_to_give_leave_a_stream_ends() -> None:
    async with limit_rate(lambda: MIB) as throttle:
        streams = Streams(throttle, ["sleep 1; " + FAST])
        await streams.__aenter__()
        await asyncio.sleep(0.3)
    async with asyncio.timeout(PATIENCE):
        await streams.processes[0].wait()
    assert streams.processes[0].returncode == 1
    await streams.__aexit__()
