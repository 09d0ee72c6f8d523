"""Decisions of planner, retention and others as reasons that a person reads: each says what was decided, and why. Pure.

Nothing is decided here: every reason is the one that the decision itself came with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from zvault.core.errors import ErrorDocument
from zvault.core.health.verdict import VerdictLevel
from zvault.core.integrity.damage import DamagedFile
from zvault.core.name_rules import DatasetChoice
from zvault.core.policy.retention import KeepDecision
from zvault.core.replication.plan_model import TransferAction, TransferPlan
from zvault.core.replication.sent_reason import SnapshotFate, describe_blocked_wait
from zvault.core.units import format_duration

ExplainedSide = Literal["source", "vault"]
ReasonTopic = Literal[
    "selected",
    "snapshot",
    "made",
    "sent",
    "there",
    "base",
    "kept",
    "held",
    "lag",
    "damage",
    "backup",
    "vault",
    "last run",
    "next run",
    "next snapshot",
]

FILES_NAMED = 3
"""Damaged files named in one sentence."""


@dataclass(frozen=True, slots=True)
class ExplainedDecision:
    """One thing about a dataset or snapshot: its ``state``, ``why``, and what a person can do ``next``."""

    topic: ReasonTopic
    state: str
    why: str = ""
    next: str = ""
    level: VerdictLevel = "ok"
    side: ExplainedSide | None = None


def explain_choice(topic: Literal["selected", "snapshot"], choice: DatasetChoice) -> ExplainedDecision:
    """Explain why a backup takes a dataset or not, or why a run makes a snapshot of it or not."""
    return ExplainedDecision(topic, "yes" if choice.taken else "no", choice.reason)


def explain_transfer(plan: TransferPlan, blocked_by: TransferPlan | None = None) -> ExplainedDecision:
    """Explain what a run would do with a dataset as it is. ``blocked_by``: see core/replication/sent_reason.py."""
    changes = "".join(f"; first: {change}" for change in plan.changes)
    if blocked_by is not None:
        why = f"{plan.reason}{changes}; but {describe_blocked_wait(blocked_by)}"
        return ExplainedDecision("sent", str(plan.action), why, blocked_by.next, "warning")
    level: VerdictLevel = "warning" if plan.action is TransferAction.CONFLICT else "ok"
    return ExplainedDecision("sent", str(plan.action), f"{plan.reason}{changes}", plan.next, level)


def explain_sent_snapshot(fate: SnapshotFate) -> ExplainedDecision:
    """Explain what a run would do with a snapshot."""
    return ExplainedDecision(
        "sent", fate.fate, fate.reason, fate.next, "warning" if fate.fate == "blocked" else "ok"
    )


def explain_retention(verdict: KeepDecision, side: ExplainedSide) -> ExplainedDecision:
    """Explain whether the next pruning keeps a snapshot."""
    state = "kept" if verdict.keep else "to be pruned"
    return ExplainedDecision("kept", state, verdict.reason, side=side)


def summarize_retention(
    verdicts: Sequence[KeepDecision], side: ExplainedSide, backup: str
) -> ExplainedDecision:
    """Explain what the next pruning keeps of a dataset's snapshots."""
    selected = sum(not one.keep for one in verdicts)
    if not verdicts:
        return ExplainedDecision("kept", "no snapshots", side=side)
    state = f"{len(verdicts) - selected} of {len(verdicts)} kept"
    common = Counter(_kind(one.reason) for one in verdicts if one.keep).most_common(FILES_NAMED)
    why = ", ".join(f"{count}: {reason}" for reason, count in common)
    pruned = f"the next pruning takes {selected}, which no rule keeps" if selected else ""
    each = f"'zvaultctl prune {backup} -n -v' has the reason for each"
    return ExplainedDecision("kept", state, "; ".join(filter(None, (why, pruned))), each, side=side)


def _kind(reason: str) -> str:
    """The reason without the period that it names: one for all of a rule."""
    rule = reason.partition(" ")[0]
    return rule if rule in ("hourly", "daily", "weekly", "monthly", "yearly") else reason


def explain_lag(seconds: float | None, max_lag: float | None, basis: str, cause: str) -> ExplainedDecision:
    """A lag, what it rests on, and what it comes from."""
    why = "; ".join(filter(None, (basis, cause)))
    if seconds is None:
        return ExplainedDecision("lag", "unknown", why, level="unknown")
    late = max_lag is not None and seconds > max_lag
    limit = f" (max_lag is {format_duration(max_lag)})" if max_lag is not None else ""
    state = f"{format_duration(max(0.0, seconds))}{limit}"
    return ExplainedDecision("lag", state, why, level="warning" if late else "ok")


def find_lag_cause(
    plan: TransferPlan | None,
    blocked_by: TransferPlan | None = None,
    *,
    running: bool,
    error: ErrorDocument | None,
    scheduled: bool,
) -> str:
    """Why the vault has not yet what the source has, by the first cause that stands in the way."""
    if plan is not None and plan.action is TransferAction.CONFLICT:
        return f"nothing is sent while {plan.reason}"
    if blocked_by is not None:
        return describe_blocked_wait(blocked_by)
    if running:
        return "a run is under way"
    if error is not None:
        return f"the last run left it out: {format_error_line(error)}"
    return "the next run sends it" if scheduled else "it is sent when a run is started by hand"


def format_error_line(error: ErrorDocument) -> str:
    """An error in one line."""
    return f"{error['what']}: {error['why']}" if error["why"] else error["what"]


def explain_damage(
    found: Sequence[DamagedFile], seen: str, why: Sequence[str], vault: str
) -> ExplainedDecision:
    """Explain the damage of a dataset on the vault, as last ``seen``; ``why``: what kept it from being healed, where
    known.
    """
    if not found:
        return ExplainedDecision("damage", "none known", seen, side="vault")
    files = sorted({one.path for one in found})
    named = ", ".join(files[:FILES_NAMED]) + (
        f" and {len(files) - FILES_NAMED} more" if len(files) > FILES_NAMED else ""
    )
    unhealed = "; ".join(dict.fromkeys(why)) or "no healing has said yet why it stays"
    state = f"{len(files)} damaged"
    advice = f"'zvaultctl heal {vault}' brings back what the source still has"
    return ExplainedDecision("damage", state, f"{named}; {seen}; {unhealed}", advice, "warning", "vault")
