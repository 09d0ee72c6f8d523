"""One run of a backup: vault up, snapshot, look, plan, transfer, prune, lag, vault down; and again what failed."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from zvault.config.schema import Backup
from zvault.core.errors import NotFound, Refused, ZvaultError
from zvault.core.model import Tree
from zvault.core.names import snapshot_tag
from zvault.core.order import Order
from zvault.core.pace import Meter
from zvault.core.replication import TransferPlan
from zvault.core.retry import spread, waits
from zvault.ops.bases import Bases
from zvault.ops.context import Context, Emit
from zvault.ops.drift import drift_watched
from zvault.ops.hooks import About, RunHooks
from zvault.ops.lag import lags
from zvault.ops.limiter import limited
from zvault.ops.outcome import Outcome, datasets_failed
from zvault.ops.plan import look, moves, plan_all, plan_prune, selected
from zvault.ops.proofs import prove_guids
from zvault.ops.prune import prune
from zvault.ops.side_by_side import in_a_ring, orphaned, side_by_side
from zvault.ops.transfer import Transfers
from zvault.ops.vault import OpenVault, Vaults
from zvault.zfs.lzc import LzcFailure

A_MOMENT = 5.0
"""Seconds a listing of the source is good for within a run that has changed nothing yet."""

RECENT = 60.0
"""Seconds a listing of the source is good for after a run's transfers."""

SNAPSHOT_TRIES = 5
"""Names hold whole seconds: a run started by hand right after another may find its name taken."""

Pause = Callable[[float], Awaitable[bool]]
"""Waits so many seconds; tells whether to go on then, or to end."""


async def sleep(seconds: float) -> bool:
    """Wait, and go on."""
    await asyncio.sleep(seconds)
    return True


@dataclass
class Run:
    """One execution of one backup. Without ``snapshot`` it makes none and sends those that are there."""

    context: Context
    vaults: Vaults
    name: str
    emit: Emit
    outcome: Outcome = field(default_factory=Outcome)
    id: str = ""
    pause: Pause = sleep
    snapshot: bool = True

    def __post_init__(self) -> None:
        """The hooks, and what is known of each dataset, belong to this run and no other."""
        self.meter = Meter()
        self.settled: set[str] = set()
        self.failed: dict[str, ZvaultError] = {}
        self.last_try = True
        self._seen: tuple[float, Tree] | None = None
        self.limit = self.backup.limit
        about = About(self.name, self.id, str(self.backup.source), self.backup.vault)
        self.hooks = RunHooks(self.context, about, self.emit, self._blemish)

    @property
    def backup(self) -> Backup:
        """The backup's configuration."""
        return self.context.backup(self.name)

    def say(self, text: str) -> None:
        """Tell whoever follows the run."""
        self.emit("message", text=text)

    async def execute(self) -> None:
        """Run it. A failure ends up in the outcome; only cancellation is raised."""
        try:
            async with self.hooks.around("run", self.backup.hooks, self._ending):
                await self._try_on()
        except ZvaultError as error:
            self.outcome.blame(error)
            self.outcome.result = "failed"

    async def _try_on(self) -> None:
        """Try, and try again what may go better. Raises what kept the last try from getting to its end."""
        retries, first = self.backup.retries, self.backup.retry_wait
        for number, wait in enumerate([*waits(retries, first), None], 1):
            self.last_try = wait is None
            lost: ZvaultError | None = None
            try:
                await self._try()
            except ZvaultError as error:
                lost = error
            why = lost or next((error for error in self.failed.values() if error.retryable), None)
            if why is None or not why.retryable or wait is None:
                break
            seconds = spread(wait, random.random())  # noqa: S311 - it only spreads the load
            self.emit("retry", wait=seconds, number=number, retries=retries, error=why.as_dict())
            if not await self.pause(seconds):
                self.say("not tried again: a new run takes over")
                break
        if lost is not None:
            raise lost
        if self.failed:
            self.outcome.blame(datasets_failed(self.failed, self.outcome.datasets))
            self.outcome.result = "partial" if len(self.failed) < self.outcome.datasets else "failed"

    async def _try(self) -> None:
        self._seen = None
        # A source that is not there is told before anything is brought up.
        selected(self.backup, await self._source())
        async with self.vaults[self.backup.vault].use(f"backup {self.name}", self.say) as vault:
            await self._on(vault)

    def _ending(self) -> tuple[str, str]:
        return self.outcome.result, str(self.outcome.error or "")

    def _blemish(self, error: ZvaultError) -> None:
        """A hook after something failed: what is done is done, but all is not well."""
        self.outcome.blame(error)
        self.outcome.result = "partial" if self.outcome.result == "ok" else self.outcome.result

    async def _on(self, vault: OpenVault) -> None:
        self.emit("vault-up", vault=vault.name, message=f"pool {vault.pool} is up")
        awake = vault.keeper.awake
        held = "sleep and shutdown wait for this run" if awake.held else str(awake.problem)
        self.emit("inhibitor", held=awake.held, message=held)
        again = bool(self.hooks.tag)
        if again:
            self.say(f"going on with @{self.hooks.tag}")
        elif self.snapshot:
            async with self.hooks.around("snapshot", self.backup.snapshot.hooks):
                self.hooks.tag = await self._snapshot()
        seen = None if self.snapshot else await self._source()
        looked = time.monotonic()
        sides = await look(self.context, self.backup, vault.zfs, source=seen)
        self.outcome.datasets = len(sides.pairs)
        if self.snapshot and not again:
            self.emit("snapshot", tag=self.hooks.tag, datasets=len(sides.pairs))
        plans = [p for p in await plan_all(self.context, self.backup, sides) if p.dataset not in self.settled]
        source = self.context.source_of(self.backup)
        bases = Bases(source, vault.guid)
        await bases.learn([sides.source.datasets[plan.dataset] for plan in plans])
        transfers = Transfers(
            self.context,
            self.backup,
            sides,
            vault,
            self.emit,
            self.outcome,
            bases,
            meter=self.meter,
            name=self.name,
        )
        await self._transfer_all(plans, await transfers.announce(plans), transfers)
        if self.failed and (lost := await vault.trouble()) is not None:
            raise lost  # what befell the datasets is only its echo
        changed = bases.touched or any(moves(plan) or plan.changes for plan in plans)
        # Transfers change nothing of the source's snapshots, and those to be pruned are looked at once more.
        source_then = sides.source if time.monotonic() - looked < RECENT else None
        after = await look(self.context, self.backup, vault.zfs, source=source_then) if changed else sides
        self.outcome.lags = lags(self.context, self.backup, after)
        doomed = plan_prune(self.context, self.backup, after)
        self.outcome.pruned += await prune(source, vault.zfs, doomed, self.emit, self.name)
        self.outcome.proofs = await prove_guids(self.context, self.name, after, vault.zfs, self.emit)

    async def _source(self) -> Tree:
        """The source as it is now, give or take a moment; listed again if it took long to bring up the vault."""
        began = time.monotonic()
        if self._seen is None or began - self._seen[0] > A_MOMENT:
            source = self.context.source_of(self.backup)
            self._seen = began, await source.tree(self.backup.source.dataset)
        return self._seen[1]

    async def _snapshot(self) -> str:
        """One moment for all selected datasets: one call, all or none."""
        if self.backup.snapshot.hooks.before:
            self._seen = None  # who knows what they did
        names = [dataset.name for dataset in selected(self.backup, await self._source())]
        for _ in range(SNAPSHOT_TRIES):
            tag = snapshot_tag(self.backup.snapshot.prefix, self.context.clock.now())
            try:
                await self.context.source_of(self.backup).lzc.snapshot(
                    [f"{name}@{tag}" for name in names], {}
                )
            except LzcFailure as failure:
                if not all(kind == "SnapshotExists" for _, kind, _ in failure.errors):
                    raise
                await asyncio.sleep(1.0)
            else:
                return tag
        raise Refused(
            f"cannot name a snapshot of '{self.backup.source}'",
            f"'{tag}' and its predecessors exist already",
            "check that the clock runs",
        )

    async def _transfer_all(
        self, plans: list[TransferPlan], sizes: Mapping[str, int], transfers: Transfers
    ) -> None:
        """Carry out every plan; what one dataset suffers stops only itself and what needs it.

        What was tried is in ``settled`` afterwards, or in ``failed``, or in both if no further try would help.
        """
        self.failed = {name: error for name, error in self.failed.items() if name in self.settled}
        for text in await transfers.lacking([plan for plan in plans if moves(plan)]):
            self.emit("warning", text=text)
        planned = {plan.dataset: plan for plan in plans}
        order = Order({plan.dataset: plan.after for plan in plans}, sizes)

        async def carry_out(name: str) -> bool:
            error = await self._transfer(planned[name], transfers)
            if error is not None:
                for lost, cause in order.fail(name):
                    self._fail(lost, orphaned(lost, cause, error))
            return error is None

        def limits(name: str) -> Mapping[str, int]:
            return self._places() if name in sizes else {}

        limit = limited(self._rate) if self.backup.limit else contextlib.nullcontext(())
        try:
            await transfers.cover(plans)
            watch = drift_watched(self.context, transfers.vault, self.emit)
            async with limit as transfers.throttle, watch:
                await side_by_side(order, self.vaults.places, limits, carry_out)
            unsettled = await transfers.bases.settle()
        finally:
            await transfers.bases.stop()
        for name, error in unsettled.items():
            self.settled.discard(name)
            self._fail(name, error)
        for name in order.stuck():
            self._fail(name, in_a_ring(name))

    async def _transfer(self, plan: TransferPlan, transfers: Transfers) -> ZvaultError | None:
        try:
            await transfers.carry_out(plan)
        except ZvaultError as error:
            self._fail(plan.dataset, error)
            return error
        self.settled.add(plan.dataset)
        return None

    def _fail(self, dataset: str, error: ZvaultError) -> None:
        self.failed[dataset] = error
        if not error.retryable:
            self.settled.add(dataset)
        again = error.retryable and not self.last_try
        self.emit("dataset-failed", dataset=dataset, error=error.as_dict(), again=again)

    def _places(self) -> dict[str, int]:
        """What one of its streams takes a place of, and how many each has."""
        host = self.backup.source.host
        places = {f"vault {self.backup.vault}": self.context.vault(self.backup.vault).transfers}
        if host is not None:
            places[f"host {host.host}"] = self.context.host_config(host).transfers
        return places

    def _rate(self) -> int | None:
        """The limit at this moment; a new configuration is in force at once."""
        with contextlib.suppress(NotFound):  # while it runs it may vanish from the configuration
            self.limit = self.backup.limit
        return self.limit.rate(self.context.clock.now().astimezone(self.context.zone))
