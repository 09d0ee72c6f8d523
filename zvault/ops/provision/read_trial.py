"""Trying parameters for reading out: a copy in the scratch dataset is sent to nowhere, and a small pool is scrubbed.

A scrub reads the whole pool, so it is tried only where little else is in it. It always ends as a complete one: what is
stopped halfway would leave a pool that was never scrubbed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from zvault.core.errors import Busy, ToolFailed
from zvault.core.tuning.candidates import (
    CandidateTrial,
    TuningCandidate,
    combine_trials,
    find_contested,
    select_winner,
)
from zvault.core.units import format_size
from zvault.ops.provision.receive_trial import FIRST_DEADLINE, ReceiveTrial, describe_trial, run_stages
from zvault.system.tasks import finish_work
from zvault.zfs import trial_dataset
from zvault.zfs.pool.scrub import Scrubber
from zvault.zfs.pool.vdev_properties import count_device_reads

LARGEST_SCRUBBED_SHARE = 2
"""How many times the size of the stream may be in a pool whose scrub is tried: more would take minutes."""

LEAST_READ_SHARE = 0.5
"""Share of a stream that has to come from the devices; else memory was measured."""


@dataclass
class ReadTrial:
    """Candidates on the pool of ``receives``, with its scratch dataset; ``writes`` won for writing."""

    receives: ReceiveTrial
    writes: TuningCandidate

    async def send(self, candidates: Sequence[TuningCandidate]) -> list[CandidateTrial]:
        """Receive a copy, and send it with each of the candidates. Raises ToolFailed, DeadlineExceeded."""
        trial = self.receives
        await trial.settle(self.writes.module)
        trial.say(f"receiving {format_size(trial.size)} to read")
        await trial.receive(trial_dataset.trial_keep_argv(trial.pool))
        await trial_dataset.sync_pool(trial.pool, trial.context.env.runner, FIRST_DEADLINE)

        async def act(_: float) -> None:
            await run_stages(trial.context.env.runner, [trial_dataset.trial_read_argv(trial.pool)])

        return await self._race(candidates, act, f"sending {format_size(trial.size)}", trial.size)

    async def scrub(self, candidates: Sequence[TuningCandidate]) -> list[CandidateTrial]:
        """Scrub the pool with each of the candidates; none where much is in it, or a scrub is under way.

        Raises ToolFailed, DeadlineExceeded.
        """
        trial, context = self.receives, self.receives.context
        state = await context.clients.zpool.state(trial.pool)
        health = await self._scrubber.health(trial.pool, context.env.clock.time())
        if state is None or health.scan.open or state.allocated > LARGEST_SCRUBBED_SHARE * trial.size:
            trial.say("not trying a scrub out: it would read all of the pool")
            return []
        context.activity.measured.add(trial.vault.name)
        try:
            tries = await self._race(
                candidates, self._scrub, f"scrubbing {format_size(state.allocated)}", state.allocated
            )
            if tries[-1].stopped:
                await trial.settle({**self.writes.module, **select_winner(tries).candidate.module})
                await self._scrub(FIRST_DEADLINE)
            return tries
        finally:
            context.activity.measured.discard(trial.vault.name)

    @property
    def _scrubber(self) -> Scrubber:
        return Scrubber(self.receives.context.env.runner)

    async def _scrub(self, limit: float) -> None:
        """One complete scrub. Raises ToolFailed where somebody paused it or stopped it."""
        trial = self.receives
        try:
            # The caller ends it at its own limit, before this one does.
            await self._scrubber.run_whole(trial.pool, 2 * limit + FIRST_DEADLINE)
        except Busy as error:  # another's, begun since it was looked: that one goes on
            raise ToolFailed("a scrub cannot be tried out", error.why) from None
        except BaseException:
            await finish_work(self._scrubber.stop(trial.pool))
            raise
        health = await self._scrubber.health(trial.pool, trial.context.env.clock.time())
        if health.scan.state != "finished":
            raise ToolFailed("the scrub that was tried out did not end", f"it is {health.scan.state}")

    async def _race(
        self,
        candidates: Sequence[TuningCandidate],
        act: Callable[[float], Awaitable[None]],
        what: str,
        size: int,
    ) -> list[CandidateTrial]:
        """Try them in turn, and the two best again where they are near each other."""
        tries: list[CandidateTrial] = []
        for candidate in candidates:
            self.receives.say(f"trying {candidate.what}: {what}")
            tries.append(await self._try(candidate, select_winner(tries) if tries else None, act, size))
            self.receives.say(f"{candidate.what}: {describe_trial(tries[-1])}")
        for place in find_contested(tries):
            candidate = tries[place].candidate
            self.receives.say(f"trying {candidate.what} again: {what}")
            tries[place] = combine_trials(tries[place], await self._try(candidate, None, act, size))
            self.receives.say(f"{candidate.what}: together {describe_trial(tries[place])}")
        return tries

    async def _try(
        self,
        candidate: TuningCandidate,
        best: CandidateTrial | None,
        act: Callable[[float], Awaitable[None]],
        size: int,
    ) -> CandidateTrial:
        """Read once; stop as soon as the best one before was faster."""
        trial = self.receives
        limit = FIRST_DEADLINE if best is None else size / best.rate
        await trial.settle({**self.writes.module, **candidate.module})
        before = await count_device_reads(trial.context.env.runner, trial.pool)
        started, stopped = time.monotonic(), False
        try:
            async with asyncio.timeout(limit):
                await act(limit)
        except TimeoutError:
            stopped = True
        seconds = time.monotonic() - started
        after = await count_device_reads(trial.context.env.runner, trial.pool)
        if (
            not stopped
            and before is not None
            and after is not None
            and after - before < LEAST_READ_SHARE * size
        ):
            raise ToolFailed(
                "reads cannot be tried out",
                f"only {format_size(after - before)} of {format_size(size)} came from the devices",
            )
        return CandidateTrial(candidate, size / (limit if stopped else seconds), stopped)
