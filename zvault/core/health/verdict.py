"""Levels, conditions, findings and verdicts: what a judgement of health consists of. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

VerdictLevel = Literal["ok", "unknown", "warning", "critical"]
VERDICT_LEVELS: tuple[VerdictLevel, ...] = get_args(VerdictLevel)
"""From good to bad; the metric ``zvault_health`` is the index."""

Trouble = Literal["unknown", "warning", "critical"]

SubjectKind = Literal["daemon", "vault", "backup"]
SUBJECT_KINDS: tuple[SubjectKind, ...] = get_args(SubjectKind)

DAY_SECONDS = 86400.0
"""Seconds that something may be unknown before that is a warning, where no ``max_lag`` says less or more."""


@dataclass(frozen=True, slots=True)
class HealthCondition:
    """Something that can be wrong with a subject of a ``kind``.

    ``word``: the state in one word; empty for the state of the pool. ``says``: the same in a sentence without its
    subject. ``when``: exactly when it holds. ``means``: why it matters. ``next``: the step to take, with ``{name}`` for
    the subject's name. ``alert``: the rule that fires for it; empty for the general rule of its level.
    """

    key: str
    kind: SubjectKind
    level: Trouble
    word: str
    says: str
    when: str
    means: str
    next: str
    alert: str = ""


@dataclass(frozen=True, slots=True)
class HealthFinding:
    """A condition that holds for a subject: ``why`` has the facts, ``next`` the step to take, ``word`` the state."""

    condition: HealthCondition
    why: str
    next: str
    word: str


@dataclass(frozen=True, slots=True)
class HealthVerdict:
    """The findings about one subject, in the order of the table of conditions: worst first."""

    findings: tuple[HealthFinding, ...] = ()

    @classmethod
    def of(cls, found: Iterable[HealthFinding], table: Sequence[HealthCondition]) -> HealthVerdict:
        """The verdict from findings in any order, by a ``table`` that has the worst conditions first."""
        return cls(tuple(sorted(found, key=lambda one: table.index(one.condition))))

    @property
    def level(self) -> VerdictLevel:
        """That of the worst finding; ``ok`` where there is none."""
        return self.findings[0].condition.level if self.findings else "ok"

    @property
    def word(self) -> str:
        """The state in one word: that of the first finding."""
        return self.findings[0].word if self.findings else "ok"

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the conditions that hold, worst first."""
        return tuple(one.condition.key for one in self.findings)

    @property
    def open(self) -> bool:
        """True if anything is unknown."""
        return any(one.condition.level == "unknown" for one in self.findings)


def make_finding(
    condition: HealthCondition, name: str, why: str = "", next: str = "", word: str = ""
) -> HealthFinding:
    """A condition that holds for the subject ``name``; without ``next`` with the step that the condition has."""
    return HealthFinding(condition, why, next or condition.next.format(name=name), word or condition.word)


def select_worst_level(levels: Iterable[VerdictLevel]) -> VerdictLevel:
    """The worst of several levels; ``ok`` for none."""
    return max(levels, key=VERDICT_LEVELS.index, default="ok")
