"""Watches a vault's writes during a run, for the metrics, and warns when they drift.

A sample runs three short programs; the longer a run takes, the rarer the samples. None of them delays a stream. If one
hangs with its pool, the watch ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from itertools import chain, repeat

from zvault.api.events import Emit, WarningEvent
from zvault.core.diagnosis.write_drift import DriftWatch, ExpectedWrites, WriteSample
from zvault.core.errors import ZvaultError
from zvault.core.policy.backoff import iterate_delays
from zvault.core.tuning.tuning import AGGREGATION_LIMITS
from zvault.devices import request_queue
from zvault.ops.context import Context
from zvault.ops.tuning.measurements import load_vault_profile
from zvault.ops.vaults.vault import OpenVault
from zvault.system.process.runner import ProcessRunner
from zvault.system.tasks import cancel_tasks
from zvault.zfs.pool import statistics

FIRST_SAMPLE_PAUSE, EARLY_SAMPLES, LONGEST_SAMPLE_PAUSE = 3.0, 6, 60.0
"""Seconds before each of the first samples (FIRST), and their number (OFTEN); then the pause doubles each time, up to
LONGEST seconds."""

WATCHED = 2.0
"""Seconds over which a sample averages waits."""

WRITE_SAMPLE_DEADLINE = 10.0
"""Seconds for each program of a sample."""

TXG_TIMEOUT = 5.0
"""Seconds: zfs_txg_timeout's default, zfs(4)."""


@contextlib.asynccontextmanager
async def watch_drift(context: Context, vault: OpenVault, emit: Emit) -> AsyncIterator[None]:
    """Watch a vault's writes while the block runs, unless another run watches them already."""
    name, writes = vault.name, context.activity.writes
    if context.env.vault(name).host is not None or name in writes.watched:
        yield
        return
    writes.watched.add(name)
    writes.drifts.pop(name, None)
    watching = asyncio.create_task(_watch(context, vault, emit), name=f"drift {name}")
    try:
        yield
    finally:
        try:
            await cancel_tasks(watching)
        finally:
            writes.watched.discard(name)
            writes.samples.pop(name, None)


async def _watch(context: Context, vault: OpenVault, emit: Emit) -> None:
    await asyncio.sleep(FIRST_SAMPLE_PAUSE)  # most runs are over by then
    look, writes = _Look(context.env.runner, vault.pool), context.activity.writes
    with contextlib.suppress(ZvaultError):
        watch = DriftWatch(vault.name, await _expected(context, vault))
        await look.sample()
        for pause in chain(
            repeat(FIRST_SAMPLE_PAUSE, EARLY_SAMPLES),
            iterate_delays(2 * FIRST_SAMPLE_PAUSE, LONGEST_SAMPLE_PAUSE),
        ):
            await asyncio.sleep(pause)
            sample = await look.sample()
            writes.samples[vault.name] = sample
            if (found := watch.note(sample)) is not None:
                cause, text = found
                writes.drifts[vault.name] = text
                emit(WarningEvent(text=text, vault=vault.name, drift=cause))


async def _expected(context: Context, vault: OpenVault) -> ExpectedWrites:
    """What the profile expects of the vault's devices."""
    module = load_vault_profile(context, context.env.vault(vault.name), vault.guid).module
    paths = [one.path for one in await vault.managed.devices() if one.path is not None]
    rotates = any(request_queue.is_rotational(path) for path in paths)
    wanted = module.get(AGGREGATION_LIMITS[rotates], module.get(AGGREGATION_LIMITS[not rotates]))
    merged = int(wanted) if wanted is not None and wanted.isdecimal() else None
    found = [request_queue.read_queue_setting(path.removeprefix("/dev/"), "max_sectors_kb") for path in paths]
    largest = [int(kib) << 10 for kib in found if kib is not None]
    timeout = module.get("zfs_txg_timeout", "")
    return ExpectedWrites(
        None if merged is None else min([merged, *largest]),
        float(timeout) if timeout.isdecimal() else TXG_TIMEOUT,
    )


class _Look:
    """Samples one pool; each sample covers the time since the previous one."""

    def __init__(self, runner: ProcessRunner, pool: str) -> None:
        self.runner = runner
        self.pool = pool
        self._sizes: statistics.WriteSizes = {}
        self._newest = 0

    async def sample(self) -> WriteSample:
        """Take a sample. Raises ZvaultError if the pool does not answer."""
        waits = statistics.parse_queue(await self._said(statistics.queue_argv(self.pool, WATCHED, 1)))
        before = self._sizes
        self._sizes = statistics.parse_requests(await self._said(statistics.requests_argv(self.pool)))
        groups, self._newest = statistics.parse_groups(
            await self._said(statistics.groups_argv(self.pool)), self._newest
        )
        size = statistics.estimate_request_size(before, self._sizes)
        return WriteSample(
            statistics.estimate_bytes_written(before, self._sizes),
            size,
            waits.wait if waits is not None else None,
            waits.disk_wait if waits is not None else None,
            max((group.sync for group in groups.values() if group.written), default=None),
        )

    async def _said(self, argv: list[str]) -> str:
        result = await self.runner.run(argv, deadline=WRITE_SAMPLE_DEADLINE, check=False)
        return result.stdout
