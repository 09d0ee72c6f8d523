"""One run of a backup: vault up, snapshot, look, plan, transfer, prune, lag, vault down."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from zvault.config.schema import Backup
from zvault.core.errors import Conflict, Refused, ZvaultError
from zvault.core.lag import DatasetLag, dataset_lag
from zvault.core.model import Snapshot
from zvault.core.names import snapshot_tag
from zvault.core.replication import Action, Step, TransferPlan, find_base, sent_by
from zvault.ops.context import Context, Emit
from zvault.ops.hooks import About, RunHooks
from zvault.ops.plan import Sides, look, moves, ours_of, plan_all, plan_prune, selected
from zvault.ops.protect import Guard, marks_by_vault
from zvault.ops.prune import prune
from zvault.ops.transfer import Progress, has_mbuffer, stream
from zvault.ops.vault import OpenVault, Vaults
from zvault.zfs.lzc import LzcFailure
from zvault.zfs.stream import Flags, receive_argv, send_argv

SNAPSHOT_TRIES = 5
"""Names hold whole seconds: a run started by hand right after another may find its name taken."""


@dataclass
class Outcome:
    """What a run did. ``result`` is ok, partial or failed; ``error`` the first thing that went wrong."""

    result: str = "ok"
    bytes: int = 0
    datasets: int = 0
    sent: int = 0
    pruned: int = 0
    error: ZvaultError | None = None
    lags: dict[str, DatasetLag] = field(default_factory=dict)

    def blame(self, error: ZvaultError) -> None:
        """Note a failure; the first one is the run's."""
        self.error = self.error or error


@dataclass
class Run:
    """One execution of one backup."""

    context: Context
    vaults: Vaults
    name: str
    emit: Emit
    outcome: Outcome = field(default_factory=Outcome)
    total: int | None = None
    id: str = ""

    def __post_init__(self) -> None:
        """The hooks belong to this run and no other."""
        about = About(self.name, self.id, self.backup.source, self.backup.vault)
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
                selected(self.backup, await self.context.source.tree(self.backup.source))
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
        await self._announce(plans, sides)
        failed = await self._transfer_all(plans, sides, vault)
        after = await look(self.context, self.backup, vault.zfs)
        self.outcome.lags = lags(self.context, self.backup, after)
        self.outcome.pruned = await prune(
            self.context, vault.zfs, plan_prune(self.context, self.backup, after), self.emit, self.name
        )
        if failed:
            self.outcome.result = "partial" if len(failed) < len(plans) else "failed"

    async def _snapshot(self) -> str:
        """One moment for all selected datasets: one call, all or none."""
        source = await self.context.source.tree(self.backup.source)
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

    def _flags(self, dataset_name: str, sides: Sides) -> Flags:
        return Flags.of(self.backup.send, sides.source.datasets[dataset_name])

    async def _announce(self, plans: list[TransferPlan], sides: Sides) -> None:
        """Estimate every stream and tell the plan."""
        rows = []
        total = 0
        for plan in plans:
            sizes = [
                await self.context.source.estimate(step, self._flags(plan.dataset, sides))
                for step in plan.steps
            ]
            size = sum(size or 0 for size in sizes)
            total += size
            rows.append(
                {"dataset": plan.dataset, "action": str(plan.action), "bytes": size, "reason": plan.reason}
            )
        self.total = total
        self.emit("plan", datasets=rows, bytes_total=total)

    async def _transfer_all(
        self, plans: list[TransferPlan], sides: Sides, vault: OpenVault
    ) -> dict[str, ZvaultError]:
        """Carry out every plan, parents first; what one dataset suffers stops only itself and what lies below it."""
        failed: dict[str, ZvaultError] = {}
        if not has_mbuffer() and any(moves(plan) for plan in plans):
            self.emit("warning", text="mbuffer is not installed: streams go without a buffer, slower")
        for plan in plans:
            try:
                self._refuse_orphan(plan, failed)
                await self._transfer(plan, sides, vault)
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

    async def _transfer(self, plan: TransferPlan, sides: Sides, vault: OpenVault) -> None:
        if plan.action is Action.CONFLICT:
            raise Conflict(f"{plan.dataset} cannot follow onto {plan.target}", plan.reason, plan.next)
        dataset = sides.source.datasets[plan.dataset]
        guard = Guard.of(self.context.source.lzc, vault.guid, dataset, dict(sides.holds))
        if plan.abort:
            self.emit("warning", text=f"giving up the interrupted receive of {plan.target}: {plan.abort}")
            await vault.zfs.abort_receive(plan.target)
        if plan.action is Action.NOTHING:
            there = sides.vault.get(plan.target)
            found = find_base(dataset, there) if there is not None else None
            base = next((s for s in dataset.snapshots if found and s.guid == found[1].guid), None)
            if base is not None and not guard.settled(base):
                await guard.settle(base)
                self.context.source.forget(plan.dataset)
            return
        if plan.action is Action.FULL:
            await vault.zfs.make_parents(plan.target)
        if isinstance(plan.base, Snapshot):
            await guard.cover(plan.base)
        try:
            for step in plan.steps:
                await guard.cover(*sent_by(step, dataset.snapshots))
                await self._stream(step, plan, self._flags(plan.dataset, sides), dataset.type, vault)
                await guard.settle(step.to)
        finally:
            self.context.source.forget(plan.dataset)

    async def _stream(
        self, step: Step, plan: TransferPlan, flags: Flags, kind: str, vault: OpenVault
    ) -> None:
        size = await self.context.source.estimate(step, flags)
        self.emit(
            "transfer-started",
            dataset=plan.dataset,
            kind=str(step.kind),
            **{"from": step.base.tag if step.base else None},
            to=step.to.tag,
            bytes=size,
            reason=step.reason,
        )
        before = self.outcome.bytes

        def report(progress: Progress) -> None:
            self.emit(
                "progress",
                dataset=plan.dataset,
                bytes=progress.done,
                total=size,
                rate=progress.rate(),
                buffer=progress.buffer,
                run_bytes=before + progress.done,
                run_total=self.total,
            )

        done = await stream(
            self.context.runner,
            send_argv(step, flags),
            receive_argv(plan.target, kind),
            buffer=vault.profile.stream if has_mbuffer() else None,
            total=size,
            report=report,
            trouble=vault.trouble,
        )
        self.outcome.bytes += done.bytes
        self.outcome.sent += 1
        self.emit("transfer-finished", dataset=plan.dataset, bytes=done.bytes, seconds=done.seconds)


def lags(context: Context, backup: Backup, sides: Sides) -> dict[str, DatasetLag]:
    """Each selected dataset's lag, read from the vault's GUIDs.

    While the vault is down its GUIDs are read from the source's bookmarks, each made only after the vault had
    what it marks. Where bookmarks of several vaults leave open which is meant, the lag is unknown.
    """
    ours, now = ours_of(backup), context.clock.time()
    found = {}
    for dataset, target in sides.pairs:
        if sides.vault_seen:
            there = sides.vault.get(target)
            guids = {snap.guid for snap in there.snapshots} if there is not None else set()
        else:
            marks = marks_by_vault(dataset)
            guids = {mark.guid for mark in next(iter(marks.values()))} if len(marks) == 1 else set()
        wanted = [snap for snap in dataset.snapshots if ours(snap)]
        found[dataset.name] = dataset_lag(wanted, guids, now, dataset=dataset.name)
    return found


def age(lag: DatasetLag, now: float) -> float | None:
    """A lag some time after it was read: it grows with the clock until the vault is read again."""
    newest = lag.newest_on_vault
    return None if newest is None else now - newest.creation
