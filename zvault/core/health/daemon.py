"""What can be wrong with the daemon and its host, and whether it is. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from zvault.core.health.daemon_conditions import (
    CLOCK_BACK,
    CONFIG_CHANGED,
    CONFIG_REFUSED,
    DAEMON_CONDITIONS,
    HOOK_FAILED,
    INHIBITOR_STUCK,
    KERNEL_CRASHED,
    METRICS_UNSERVED,
    NOT_OBSERVED,
    NOT_TUNED,
    OTHER_WARNING,
    PAGE_UNSERVED,
    STALLED_ELSEWHERE,
    STATE_SPACE,
    STATE_UNWRITABLE,
    UNCHECKED,
    UNDELIVERED,
)
from zvault.core.health.verdict import HealthCondition, HealthFinding, HealthVerdict, make_finding
from zvault.core.units import format_duration, format_size

DAEMON_SUBJECT = "zvaultd"
"""The name of the daemon as a subject."""

LEAST_SPACE = 16 << 20
"""Bytes free for the state below which that is told: the history of a year takes a few megabytes."""

WARNING_SUBJECTS: Mapping[str, HealthCondition] = {
    "config": CONFIG_REFUSED,
    "metrics": METRICS_UNSERVED,
    "page": PAGE_UNSERVED,
    "hooks": HOOK_FAILED,
    "observe": NOT_OBSERVED,
    "inhibitor": INHIBITOR_STUCK,
    "notify": UNDELIVERED,
}
"""What a warning is about, by the first word of its subject."""


@dataclass(frozen=True, slots=True)
class DaemonFacts:
    """The facts about the daemon and its host from which it is judged. None: nobody has looked yet.

    ``warnings``: what it complains of, by subject. ``config_differs``: how the configuration on disk differs from that
    in force, empty if it does not. ``unwritable``: why the state cannot be kept, empty if it can. ``space``: bytes free
    for it. ``clock_behind``: seconds by which the clock is behind of where it was. ``stalls``: of no known vault.
    ``crashes``: of the kernel in this boot, in words.
    """

    warnings: Mapping[str, str] = field(default_factory=dict)
    config_differs: str | None = None
    unwritable: str | None = None
    space: int | None = None
    clock_behind: float = 0.0
    stalls: tuple[str, ...] = ()
    tuning: tuple[str, ...] = ()
    crashes: tuple[str, ...] = ()


def judge_daemon(facts: DaemonFacts) -> HealthVerdict:
    """Judge the daemon and its host by these facts."""
    return HealthVerdict.of(_found(facts), DAEMON_CONDITIONS)


def _found(facts: DaemonFacts) -> Iterator[HealthFinding]:
    for text in facts.crashes:
        yield make_finding(KERNEL_CRASHED, DAEMON_SUBJECT, text)
    for subject, text in facts.warnings.items():
        yield make_finding(
            WARNING_SUBJECTS.get(subject.partition(" ")[0], OTHER_WARNING), DAEMON_SUBJECT, text
        )
    if facts.config_differs and "config" not in facts.warnings:
        yield make_finding(
            CONFIG_CHANGED,
            DAEMON_SUBJECT,
            f"the configuration on disk is not in force: {facts.config_differs}",
        )
    if facts.unwritable:
        yield make_finding(STATE_UNWRITABLE, DAEMON_SUBJECT, facts.unwritable)
    elif facts.space is not None and facts.space < LEAST_SPACE:
        yield make_finding(
            STATE_SPACE,
            DAEMON_SUBJECT,
            f"only {format_size(facts.space)} is free for the state that zvaultd keeps",
        )
    if facts.clock_behind > 0:
        behind = format_duration(facts.clock_behind)
        yield make_finding(
            CLOCK_BACK, DAEMON_SUBJECT, f"the clock was set back, and is {behind} behind where it was"
        )
    for text in facts.stalls:
        yield make_finding(STALLED_ELSEWHERE, DAEMON_SUBJECT, text)
    for text in facts.tuning:
        yield make_finding(NOT_TUNED, DAEMON_SUBJECT, text)
    if facts.config_differs is None or facts.unwritable is None:
        yield make_finding(
            UNCHECKED,
            DAEMON_SUBJECT,
            "the configuration on disk and the state directory were not looked at yet",
        )
