"""Whether a plan brings one snapshot of a dataset to the vault, and why. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from zvault.core.model import Dataset, Snapshot
from zvault.core.replication.plan_model import SnapshotFilter, TransferAction, TransferPlan, list_sent_by

SentFate = Literal["there", "to be sent", "blocked", "not sent"]


@dataclass(frozen=True, slots=True)
class SnapshotFate:
    """The fate of one snapshot under a plan, and the reason in words; ``next`` is what a person can do, empty where
    nothing.
    """

    fate: SentFate
    reason: str
    next: str = ""


def describe_blocked_wait(blocked_by: TransferPlan) -> str:
    """That a plan waits for one that is in conflict, in words."""
    return f"it comes after {blocked_by.dataset}, which is in conflict: {blocked_by.reason}"


def find_blocking_plan(plan: TransferPlan, plans: Mapping[str, TransferPlan]) -> TransferPlan | None:
    """The plan in conflict that has to be carried out before this one, if there is any: so this one is not, either.

    ``plans`` are all of a run, by dataset.
    """
    seen, waiting = {plan.dataset}, list(plan.after)
    while waiting:
        name = waiting.pop(0)
        if name in seen or (other := plans.get(name)) is None:
            continue
        if other.action is TransferAction.CONFLICT:
            return other
        seen.add(name)
        waiting += other.after
    return None


def find_snapshot_fate(  # noqa: PLR0911 - a list of reasons
    snap: Snapshot,
    plan: TransferPlan,
    dataset: Dataset,
    there: Collection[int],
    *,
    wanted: SnapshotFilter,
    newest_only: bool = False,
    blocked_by: TransferPlan | None = None,
) -> SnapshotFate:
    """Decide what the plan of a source's ``dataset`` means for one of its snapshots.

    ``there`` are the GUIDs that the vault has of the dataset; ``wanted`` and ``newest_only`` are what the plan was made
    with; ``blocked_by`` see ``find_blocking_plan``.
    """
    if snap.guid in there:
        return SnapshotFate("there", f"{plan.target} has it, by its GUID")
    for step in plan.steps:
        if any(one.guid == snap.guid for one in list_sent_by(step, dataset.snapshots)):
            if blocked_by is not None:
                return SnapshotFate("blocked", describe_blocked_wait(blocked_by), blocked_by.next)
            return SnapshotFate("to be sent", f"{step.kind}: {step.reason or plan.reason}")
    if not wanted(snap):
        why = "this backup did not make it, and nothing in also matches its name"
        return SnapshotFate("not sent", why, "add a pattern to 'also' if it is to be sent")
    first = plan.steps[0] if plan.steps else None
    base = plan.base or (first.base if first is not None else None)
    if base is not None and snap.createtxg <= base.createtxg:
        return SnapshotFate(
            "not sent", f"streams go on from {base.shortname}, which is newer, and never back"
        )
    if plan.action is TransferAction.CONFLICT:
        return SnapshotFate("blocked", plan.reason, plan.next)
    if newest_only:
        return SnapshotFate("not sent", "backlog is 'newest': only the newest of several goes")
    if first is not None and snap.createtxg < first.to.createtxg:
        return SnapshotFate("not sent", f"the stream begins with @{first.to.snapname}: {plan.reason}")
    return SnapshotFate("not sent", plan.reason, plan.next)
