"""Trying settings out: a stream of bounded size, received into a scratch dataset of the vault's pool with each of them.

Whatever happens, the scratch dataset goes and the parameters are settled again: by this process, or by whoever brings
the vault up after it was killed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from zvault.config.schema import Vault
from zvault.core.errors import ToolFailed
from zvault.core.tuning.candidates import (
    CandidateTrial,
    TuningCandidate,
    combine_trials,
    find_contested,
    select_winner,
)
from zvault.core.units import format_rate, format_size
from zvault.devices import fio
from zvault.devices.stack import SayProgress
from zvault.ops.context import Context
from zvault.ops.tuning.measurements import destroy_scratch_dataset, note_scratch
from zvault.ops.tuning.set_parameters import record_wanted_parameters
from zvault.system.process.runner import ProcessRunner
from zvault.system.tasks import finish_work
from zvault.zfs import trial_dataset

TRIAL_SECONDS = 4.0
"""How much of the best that the device took a stream is, in seconds of it: a transaction group and its end."""

LEAST_TRIAL_STREAM, LARGEST_TRIAL_STREAM = 64 << 20, 1 << 30
"""Bytes of a stream. A smaller one would be over before the device is busy."""

INFLATED = 32
"""OpenZFS takes a write to need up to 24 times its size (spa_asize_inflation), and ends a transaction group early
where the pool has no room for that: a stream may be this part of what is free."""

FIRST_DEADLINE = 90.0
"""Seconds for the first candidate; each of the others has as long as the best one before it took."""

TRIAL_SYNC_DEADLINE = 600.0
KILL_PATIENCE = 10.0


def choose_stream_size(bandwidth: float, free: int) -> int | None:
    """Bytes of a stream to try settings out with; None where the pool has no room for one."""
    size = (
        min(max(LEAST_TRIAL_STREAM, round(TRIAL_SECONDS * bandwidth)), LARGEST_TRIAL_STREAM, free // INFLATED)
        >> 20
        << 20
    )
    return size if size >= LEAST_TRIAL_STREAM else None


@dataclass
class ReceiveTrial:
    """Candidates on the pool of a vault that is up, with a stream of ``size`` bytes; ``say`` tells how it goes."""

    context: Context
    vault: Vault
    size: int
    say: SayProgress

    @property
    def pool(self) -> str:
        return self.vault.pool

    async def run(self, candidates: Sequence[TuningCandidate]) -> list[CandidateTrial]:
        """Try them in turn in the scratch dataset, and the two best again where they are near each other.

        Raises ToolFailed, DeadlineExceeded; the caller settles the parameters afterwards.
        """
        tries: list[CandidateTrial] = []
        # The first receive after an import also reads the space maps that it allocates from: it does not count.
        self.say(f"warming up: receiving {format_size(self.size)}")
        await self._try(candidates[0], None)
        for candidate in candidates:
            self.say(f"trying {candidate.what}: receiving {format_size(self.size)}")
            tries.append(await self._try(candidate, select_winner(tries) if tries else None))
            self.say(f"{candidate.what}: {describe_trial(tries[-1])}")
        for place in find_contested(tries):
            candidate = tries[place].candidate
            self.say(f"trying {candidate.what} again: receiving {format_size(self.size)}")
            again = await self._try(candidate, None)
            tries[place] = combine_trials(tries[place], again)
            self.say(f"{candidate.what}: {describe_trial(again)}, together {describe_trial(tries[place])}")
        return tries

    @asynccontextmanager
    async def hold_scratch(self) -> AsyncIterator[None]:
        """The scratch dataset with the stream's source in it, for a block."""
        context, runner = self.context, self.context.env.runner
        folder = context.env.paths.run / "scratch" / self.vault.name
        await destroy_scratch_dataset(context, self.vault)
        note_scratch(context.records, self.vault)
        try:
            file = await trial_dataset.make_scratch(self.pool, folder, runner)
            await runner.run(fio.fill_argv(str(file), self.size), deadline=TRIAL_SYNC_DEADLINE)
            await trial_dataset.freeze_scratch(self.pool, runner)
            yield
        finally:
            await finish_work(self._clean())

    async def _clean(self) -> None:
        await destroy_scratch_dataset(self.context, self.vault)
        folder = self.context.env.paths.run / "scratch"
        for place in (folder / self.vault.name, folder):
            if place.is_dir() and not any(place.iterdir()):
                place.rmdir()

    async def _try(self, candidate: TuningCandidate, best: CandidateTrial | None) -> CandidateTrial:
        """Receive once; stop as soon as the best one before was faster."""
        limit = FIRST_DEADLINE if best is None else self.size / best.rate
        await self.settle(candidate.module)
        started, stopped = time.monotonic(), False
        try:
            async with asyncio.timeout(limit):
                await self.receive(trial_dataset.trial_receive_argv(self.pool))
        except TimeoutError:
            stopped = True
        seconds = time.monotonic() - started
        if stopped and best is not None:
            # What it left dirty is written out with settings that are known to be good.
            await self.settle(best.candidate.module)
        await trial_dataset.drop_scratch_copy(self.pool, self.context.env.runner)
        await trial_dataset.sync_pool(self.pool, self.context.env.runner, TRIAL_SYNC_DEADLINE)
        return CandidateTrial(candidate, self.size / (limit if stopped else seconds), stopped)

    async def settle(self, module: Mapping[str, str]) -> None:
        """Set the module parameters to try."""
        await record_wanted_parameters(self.context, self.vault, module, (), lambda _: None)

    async def receive(self, argv: Sequence[str]) -> None:
        """The stream, until all of it is on the device: the end of a receive waits for its transaction group."""
        async with self.context.clients.damage_names.receive_full(None, self.pool):
            await run_stages(self.context.env.runner, [trial_dataset.trial_send_argv(self.pool), argv])


async def run_stages(runner: ProcessRunner, stages: Sequence[Sequence[str]]) -> None:
    """Run programs of a trial, joined by pipes, until all have ended; what the last one writes goes nowhere.

    Raises ToolFailed.
    """
    pipeline = await runner.pipeline(stages)
    try:
        ends = await pipeline.wait()
    except BaseException:
        await finish_work(pipeline.kill(KILL_PATIENCE))
        raise
    if failed := next((end for end in ends if not end.ok), None):
        raise ToolFailed(f"{' '.join(failed.argv[:2])} failed while settings were tried out", failed.stderr)


def describe_trial(one: CandidateTrial) -> str:
    """Say in words how the trial went."""
    return f"less than {format_rate(one.rate)}, stopped" if one.stopped else format_rate(one.rate)
