"""One run of a backup: vault up, snapshot, look, plan, transfer, prune, lag, vault down."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from zvault.config.schema import Backup
from zvault.core.errors import Refused, ZvaultError
from zvault.core.names import snapshot_tag
from zvault.core.replication import Action, TransferPlan
from zvault.ops.context import Context, Emit
from zvault.ops.hooks import About, RunHooks
from zvault.ops.lag import lags
from zvault.ops.outcome import Outcome
from zvault.ops.plan import look, moves, plan_all, plan_prune, selected
from zvault.ops.prune import prune
from zvault.ops.stream import has_mbuffer
from zvault.ops.transfer import Transfers
from zvault.ops.vault import OpenVault, Vaults
from zvault.zfs.lzc import LzcFailure

SNAPSHOT_TRIES = 5
"""Names hold whole seconds: a run started by hand right after another may find its name taken."""


@dataclass
class Run:
    """One execution of one backup."""

    context: Context
    vaults: Vaults
    name: str
    emit: Emit
    outcome: Outcome = field(default_factory=Outcome)
    id: str = ""

    def __post_init__(self) -> None:
        """The hooks belong to this run and no other."""
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
                # A source that is not there is told before anything is brought up.
                selected(self.backup, await self.context.source.tree(self.backup.source.dataset))
                async with self.vaults[self.backup.vault].use(f"backup {self.name}", self.say) as vault:
                    await self._on(vault)
        except ZvaultError as error:
            self.outcome.blame(error)
            self.outcome.result = "failed"

    def _ending(self) -> tuple[str, str]:
        return self.outcome.result, str(self.outcome.error or "")

    def _blemish(self, error: ZvaultError) -> None:
        """A hook after something failed: what is done is done, but all is not well."""
        self.outcome.blame(error)
        self.outcome.result = "partial" if self.outcome.result == "ok" else self.outcome.result

    async def _on(self, vault: OpenVault) -> None:
        self.emit("vault-up", vault=vault.name, message=f"pool {vault.pool} is up")
        lock = vault.lock
        held = "sleep and shutdown wait for this run" if lock.held else str(lock.problem)
        self.emit("inhibitor", held=lock.held, message=held)
        async with self.hooks.around("snapshot", self.backup.snapshot.hooks):
            tag = self.hooks.tag = await self._snapshot()
        sides = await look(self.context, self.backup, vault.zfs)
        self.outcome.datasets = len(sides.pairs)
        self.emit("snapshot", tag=tag, datasets=len(sides.pairs))
        plans = await plan_all(self.context, self.backup, sides)
        transfers = Transfers(self.context, self.backup, sides, vault, self.emit, self.outcome)
        await transfers.announce(plans)
        failed = await self._transfer_all(plans, transfers)
        after = await look(self.context, self.backup, vault.zfs)
        self.outcome.lags = lags(self.context, self.backup, after)
        self.outcome.pruned = await prune(
            self.context, vault.zfs, plan_prune(self.context, self.backup, after), self.emit, self.name
        )
        if failed:
            self.outcome.result = "partial" if len(failed) < len(plans) else "failed"

    async def _snapshot(self) -> str:
        """One moment for all selected datasets: one call, all or none."""
        source = await self.context.source.tree(self.backup.source.dataset)
        names = [dataset.name for dataset in selected(self.backup, source)]
        for _ in range(SNAPSHOT_TRIES):
            tag = snapshot_tag(self.backup.snapshot.prefix, self.context.clock.now())
            try:
                await self.context.source.lzc.snapshot([f"{name}@{tag}" for name in names], {})
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

    async def _transfer_all(self, plans: list[TransferPlan], transfers: Transfers) -> dict[str, ZvaultError]:
        """Carry out every plan, parents first; what one dataset suffers stops only itself and what lies below it."""
        failed: dict[str, ZvaultError] = {}
        if not has_mbuffer() and any(moves(plan) for plan in plans):
            self.emit("warning", text="mbuffer is not installed: streams go without a buffer, slower")
        for plan in plans:
            try:
                self._refuse_orphan(plan, failed)
                await transfers.carry_out(plan)
            except ZvaultError as error:
                failed[plan.target] = error
                self.outcome.blame(error)
                self.emit("dataset-failed", dataset=plan.dataset, error=error.as_dict())
        return failed

    def _refuse_orphan(self, plan: TransferPlan, failed: dict[str, ZvaultError]) -> None:
        """A dataset whose parent never reached the vault cannot be received below it."""
        for target in failed:
            if plan.target.startswith(f"{target}/") and plan.action is Action.FULL:
                raise Refused(
                    f"{plan.dataset} was not sent",
                    f"its parent {target} is not on the vault",
                    "it follows once the parent is there",
                )
