"""A plan as documents: what would be sent and renamed, what is not sent and why, and what is gone. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from zvault.api.backups import (
    GoneDocument,
    PlanDocument,
    PlannedDocument,
)
from zvault.config.schema import Backup
from zvault.core.model import Dataset
from zvault.core.names import DatasetName
from zvault.core.replication.plan_model import TransferAction, TransferPlan
from zvault.core.replication.vault_encryption import EncryptionOnVault
from zvault.ops.context import Context
from zvault.ops.replication.listing import BothListings, list_both_sides
from zvault.ops.replication.plan_all import plan_all
from zvault.ops.replication.vault_encryption import expect_encryptions
from zvault.ops.retention.prune_report import make_prune_part, make_vault_down_error
from zvault.ops.state.snapshot_obstacles import find_snapshot_obstacles, make_obstacle_documents
from zvault.ops.vaults.vault import Vaults
from zvault.system.side_threads import LongList, compute_aside
from zvault.zfs.stream_argv import SendFlags


async def make_plan_document(
    context: Context, vaults: Vaults, backup: Backup, *, bring_up: bool
) -> PlanDocument:
    """Plan what a run would do now. ``bring_up`` lets an on-demand vault be brought up to look at it."""
    if backup.vault is None:
        return await _planned(context, backup, await list_both_sides(context, backup, None))
    if bring_up:
        async with vaults[backup.vault].use(f"plan {backup.name}", lambda _: None) as vault:
            sides = await list_both_sides(context, backup, vault.zfs, elsewhere=True)
            return await _planned(context, backup, sides)
    if not await context.clients.pool_is_up(context.env.vault(backup.vault)):
        raise make_vault_down_error(backup.vault)
    sides = await list_both_sides(context, backup, context.clients.vault_of(backup), elsewhere=True)
    return await _planned(context, backup, sides)


async def _planned(context: Context, backup: Backup, sides: BothListings) -> PlanDocument:
    plans = await plan_all(context, backup, sides) if backup.vault is not None else []
    names = [dataset.name for dataset, _ in sides.pairs]
    return {
        **await make_prune_part(context, backup, sides),
        "makes_snapshot": backup.snapshot.make,
        "not_snapshotted": make_obstacle_documents(
            await find_snapshot_obstacles(context.clients, backup, names)
        ),
        "datasets": await make_planned_documents(context, backup, plans, sides)
        if backup.vault is not None
        else [*make_not_sent_documents(sides), *list_unlisted_documents(context, backup, sides)],
        "excluded": [dataset.name for dataset, _ in sides.left_out],
        "gone": list_gone_documents(backup.name, sides),
    }


async def make_planned_documents(
    context: Context, backup: Backup, plans: Sequence[TransferPlan], sides: BothListings
) -> list[PlannedDocument]:
    """Return the plan for each dataset, with the sizes of its streams."""
    lying = await sides.compute(expect_encryptions, sides, plans)
    rows = [await _plan_row(context, backup, plan, sides, lying.get(plan.dataset)) for plan in plans]
    return LongList([*rows, *list_unlisted_documents(context, backup, sides)])


def list_unlisted_documents(
    context: Context, backup: Backup, sides: BothListings
) -> Iterator[PlannedDocument]:
    """Yield rows for the datasets that cannot be listed: nothing is done with them."""
    for name, told in sides.unlisted.items():
        target = context.env.wanted_target_of(backup, DatasetName(name)) if backup.vault is not None else ""
        yield {
            "dataset": name,
            "vault_dataset": target,
            "action": str(TransferAction.CONFLICT),
            "written": 0,
            "steps": [],
            "changes": [],
            "reason": told.problem,
            "next": told.advice,
            "encryption": "",
        }


def make_not_sent_documents(sides: BothListings) -> list[PlannedDocument]:
    """The same where a backup has no vault."""
    return [
        {
            "dataset": dataset.name,
            "vault_dataset": "",
            "action": "nothing",
            "written": dataset.written,
            "steps": [],
            "changes": [],
            "reason": "this backup makes snapshots only",
            "next": "",
            "encryption": "",
        }
        for dataset, _ in sides.pairs
    ]


def list_gone_documents(backup: str, sides: BothListings) -> list[GoneDocument]:
    """List what the vault keeps of datasets that are no longer on the source, and what was set aside there."""
    pairing = sides.pairing
    return [
        *(make_gone_document(backup, one, "gone") for one in pairing.gone),
        *(make_gone_document(backup, one, "set aside") for one in pairing.aside),
    ]


def make_gone_document(backup: str, there: Dataset, state: Literal["gone", "set aside"]) -> GoneDocument:
    """Describe a vault's dataset that the source does not have."""
    newest = there.newest()
    return {
        "backup": backup,
        "vault_dataset": there.name,
        "state": state,
        "used": there.used,
        "snapshots_vault": len(there.snapshots),
        "newest": newest.creation if newest is not None else None,
    }


async def _plan_row(
    context: Context, backup: Backup, plan: TransferPlan, sides: BothListings, lying: EncryptionOnVault | None
) -> PlannedDocument:
    dataset = sides.source.datasets[plan.dataset]
    flags = SendFlags.of(backup.send, dataset)
    sizes = [await context.clients.source_of(backup).estimate(step, flags) for step in plan.steps]
    return await compute_aside(len(sizes), None, make_planned_document, plan, dataset.written, sizes, lying)


def make_planned_document(
    plan: TransferPlan,
    written: int,
    sizes: Sequence[int | None],
    lying: EncryptionOnVault | None = None,
) -> PlannedDocument:
    """Describe what a run would do with one dataset; ``sizes`` are those of the plan's steps.

    Of a conflict it is not told how it lies: it is not known whether it is sent at all.
    """
    return {
        "dataset": plan.dataset,
        "vault_dataset": plan.target,
        "action": str(plan.action),
        "written": written,
        "steps": [
            {
                "kind": str(step.kind),
                "from": step.base.shortname if step.base else None,
                "to": step.to.snapname,
                "bytes": size,
                "reason": step.reason,
            }
            for step, size in zip(plan.steps, sizes, strict=True)
        ],
        "changes": [str(change) for change in plan.changes],
        "reason": plan.reason,
        "next": plan.next,
        "encryption": str(lying) if lying is not None and plan.action is not TransferAction.CONFLICT else "",
    }
