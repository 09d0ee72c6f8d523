"""Carry out what a plan wants changed on the vault before its streams: small steps, each told before it is made."""

from __future__ import annotations

from zvault.api.events import Emit, MessageEvent, ResumeAborted, WarningEvent
from zvault.core.errors import Conflict
from zvault.core.names import SnapshotName
from zvault.core.policy.automatic_repairs import GIVE_UP_RECEIVE, MAY_DESTROY, USELESS
from zvault.core.replication.base_names import KEEP_HOLD
from zvault.core.replication.plan_model import TransferAction, TransferPlan
from zvault.core.replication.resume_receive import classify_resume_fault
from zvault.core.replication.vault_changes import (
    AbortReceive,
    BranchDataset,
    RenameDataset,
    RenameSnapshot,
    RollbackDataset,
    VaultChange,
)
from zvault.ops.replication.snapshot_holders import RECEIVING_CLONE, describe_clones, describe_holds
from zvault.zfs import rename_clone_rollback
from zvault.zfs.client import Zfs


async def apply_changes(
    vault: Zfs, plan: TransferPlan, kind: str, emit: Emit, *, may_destroy: bool = True
) -> None:
    """Make the changes of a plan, in their order; ``kind`` is the dataset's type.

    Each can be repeated: after a crash between any two the next plan begins with the one that was not made.
    Raises Conflict when what a rollback would give up is needed by somebody, and without ``may_destroy`` before an
    interrupted receive would be given up.
    """
    for change in plan.changes:
        if isinstance(change, AbortReceive):
            _refuse_to_abort(change, may_destroy=may_destroy)
        gives_up = isinstance(change, AbortReceive | RollbackDataset)
        text = f"{plan.dataset}: {change}"
        emit(WarningEvent(text=text) if gives_up else MessageEvent(text=text))
        await _make(vault, change, kind)
        if isinstance(change, AbortReceive):
            emit(ResumeAborted(dataset=plan.dataset, reason=classify_resume_fault(change.reason)))
    if plan.action is TransferAction.CONFLICT:
        raise Conflict(f"{plan.dataset} cannot follow onto {plan.target}", plan.reason, plan.next)


def _refuse_to_abort(change: AbortReceive, *, may_destroy: bool) -> None:
    """Raise Conflict unless an interrupted receive may be given up: the planner asked, but ZFS may refuse it later."""
    unmet = GIVE_UP_RECEIVE.find_unmet({USELESS: bool(change.reason), MAY_DESTROY: may_destroy})
    if unmet is not None:
        raise Conflict(
            f"an interrupted receive of {change.dataset} cannot go on: {change.reason}",
            f"zvault gives it up only where {unmet.says}",
            f"run 'zfs receive -A {change.dataset}' on the vault's host",
        )


async def _make(vault: Zfs, change: VaultChange, kind: str) -> None:
    match change:
        case RenameDataset(old, new):
            await vault.make_parents(new)
            await rename_clone_rollback.rename_dataset(vault.host, old, new)
        case RenameSnapshot():
            await rename_clone_rollback.rename_dataset(vault.host, change.old, change.new)
            vault.forget(change.old.dataset)
        case AbortReceive(dataset):
            await vault.abort_receive(dataset)
        case RollbackDataset(dataset, snapname, lost):
            await _free(vault, [dataset.snapshot(one) for one in lost])
            await rename_clone_rollback.roll_dataset_back(vault.host, dataset.snapshot(snapname))
            vault.forget(dataset)
        case BranchDataset(origin, new):
            if not await vault.exists(new):
                await vault.make_parents(new)
                await rename_clone_rollback.clone_snapshot(vault.host, origin, new, kind)
            await rename_clone_rollback.promote_clone(vault.host, new)
            vault.forget(new)
            vault.forget(origin.dataset)


async def _free(vault: Zfs, snapshots: list[SnapshotName]) -> None:
    """See to it that nobody needs them: ``zfs rollback -r`` destroys one after another until it meets one that is held.

    What zvault itself holds there is released. That is nothing that retention keeps: the plan gives up none of that.
    """
    holds, clones = await vault.holds(snapshots), await vault.clones(snapshots)
    for name in snapshots:
        partial = name.dataset.child(RECEIVING_CLONE)
        why = describe_holds(name, holds.get(name, set()) - {KEEP_HOLD})
        why = why or describe_clones([clone for clone in clones.get(name, []) if clone != partial])
        if why:
            raise Conflict(f"cannot give up '{name}'", why, "the vault's dataset is left as it is")
    if held := [name for name in snapshots if KEEP_HOLD in holds.get(name, set())]:
        await vault.lzc.release(held, KEEP_HOLD)
