"""Plans for a vault that is older than it was, as its store was put back: nothing is begun anew over it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from zvault.core.replication.lineage import ASIDE_INFIX
from zvault.core.replication.plan_model import TransferAction, TransferPlan
from zvault.core.replication.vault_changes import RenameDataset, VaultChange


def keep_older_vault(plans: Sequence[TransferPlan], why: str, advice: str) -> list[TransferPlan]:
    """The plans, with a conflict for each that would send in full, or set aside, roll back or give up what is there.

    What the vault misses is sent where both sides share a base. ``why``: how old the vault is, in words.
    """
    return [_keep(plan, why, advice) for plan in plans]


def _keep(plan: TransferPlan, why: str, advice: str) -> TransferPlan:
    harmless = tuple(change for change in plan.changes if _is_move(change))
    full = any(step.kind is TransferAction.FULL for step in plan.steps)
    if plan.action is not TransferAction.CONFLICT and not full and harmless == plan.changes:
        return plan
    return replace(
        plan,
        action=TransferAction.CONFLICT,
        reason=f"{plan.reason}; the vault is not what it was: {why}",
        steps=(),
        next=advice,
        changes=harmless,
        after=(),
    )


def _is_move(change: VaultChange) -> bool:
    """True if a change only follows a rename at the source."""
    return isinstance(change, RenameDataset) and ASIDE_INFIX not in change.new
