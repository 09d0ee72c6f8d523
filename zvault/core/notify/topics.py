"""What conditions are about: those of one topic are one incident, told once, however it changes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zvault.core.health.verdict import HealthVerdict, SubjectKind, VerdictLevel

UNDELIVERED_TOPIC = "notify"
"""The topic of notifications that cannot be delivered."""

CONDITION_TOPICS: Mapping[str, tuple[str, ...]] = {
    "lag": ("very-late", "late", "overdue", "lag-unknown-long", "not-started"),
    "run": ("failed", "partial", "conflict", "not-snapshotted"),
    "contents": ("differs",),
    "base": ("base-at-risk",),
    "prune": ("held-back",),
    "verification": ("proof-overdue", "never-proven"),
    "restore": ("restore-slow",),
    "unknown": ("backup-unknown-long", "vault-unknown-long"),
    "storage": ("device-gone", "gone", "journal-missing", "pool-unwell", "half-up", "read-only", "error"),
    "encryption": ("exposed",),
    "redundancy": ("degraded", "was-degraded"),
    "damage": ("damaged",),
    "foreign": ("foreign-device",),
    "older": ("put-back",),
    "properties": ("risky-properties",),
    "space": ("almost-full",),
    "filling": ("full-soon",),
    "store": ("store-trouble",),
    "stall": ("stalled", "stalled-elsewhere"),
    "kernel": ("kernel-crashed",),
    "scrub": ("scrub-overdue", "scrub-missed"),
    "writes": ("drift",),
    "journal": ("backlog",),
    "configuration": ("config-refused", "config-changed"),
    "state": ("state-unwritable", "state-space"),
    "clock": ("clock-back",),
    "metrics": ("metrics-unserved",),
    "page": ("page-unserved",),
    "hook": ("hook-failed",),
    "observation": ("not-observed",),
    "inhibitor": ("inhibitor-stuck",),
    "tuning": ("not-tuned",),
    UNDELIVERED_TOPIC: ("undelivered",),
    "other": ("other",),
}
"""The conditions of each topic, by their keys in docs/reference/health.md."""

TOPIC_OF: Mapping[str, str] = {key: topic for topic, keys in CONDITION_TOPICS.items() for key in keys}

HIDDEN_TOPICS: Mapping[str, frozenset[str]] = {
    "interrupted": frozenset({"run"}),
    "new": frozenset({"lag", "base"}),
    "first-run": frozenset({"lag", "base"}),
    "lag-unknown": frozenset({"lag", "base"}),
    "lag-not-read": frozenset({"lag", "base"}),
    "snapshots-unknown": frozenset({"lag"}),
    "proof-unknown": frozenset({"contents", "verification"}),
    "restore-unknown": frozenset({"restore"}),
    "never-seen": frozenset({"storage", "redundancy", "damage", "space", "scrub"}),
    "half-received-errors": frozenset({"damage"}),
    "unproven": frozenset({"damage"}),
    "unchecked": frozenset({"configuration", "state"}),
}
"""While such a condition holds, these topics are not known to be well: what was wrong of them is not over.

A run that was cut short is nothing to tell of: the next one resumes it, and if none does, the backup becomes late.
"""

UNIMPORTED_TOPICS = frozenset({"storage", "redundancy", "space"})
"""Topics of a vault that can be seen to be well only while its pool is imported."""


@dataclass(frozen=True, slots=True)
class TopicFinding:
    """The news of one topic of a subject: of its worst condition, and of the others why they hold."""

    level: VerdictLevel
    conditions: tuple[str, ...]
    what: str
    why: str
    means: str
    next: str


@dataclass(frozen=True, slots=True)
class SubjectTopics:
    """One subject as it was looked at: what is wrong by topic, and the topics of which nobody knows."""

    wrong: Mapping[str, TopicFinding] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()


NotifySubject = tuple[SubjectKind, str]


def sort_by_topic(verdict: HealthVerdict, hidden: frozenset[str] = frozenset()) -> SubjectTopics:
    """A verdict by topics. ``hidden``: topics of which nobody knows, for reasons that the verdict has not."""
    wrong: dict[str, TopicFinding] = {}
    for one in verdict.findings:
        condition = one.condition
        if condition.level == "unknown":
            hidden |= {"unknown"}
        if condition.level == "unknown" or condition.key in HIDDEN_TOPICS:
            hidden |= HIDDEN_TOPICS.get(condition.key, frozenset())
            continue
        topic = TOPIC_OF.get(condition.key, condition.key)
        before = wrong.get(topic)
        wrong[topic] = (
            TopicFinding(
                condition.level, (condition.key,), condition.says, one.why, condition.means, one.next
            )
            if before is None
            else TopicFinding(
                before.level,
                tuple(dict.fromkeys((*before.conditions, condition.key))),
                before.what,
                "; ".join(filter(None, (before.why, one.why))),
                before.means,
                before.next,
            )
        )
    return SubjectTopics(wrong, hidden)
