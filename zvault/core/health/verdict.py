"""Levels, conditions, findings and verdicts: what a judgement of health consists of. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Level = Literal["ok", "unknown", "warning", "critical"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""From good to bad; the metric ``zvault_health`` is the index."""

Trouble = Literal["unknown", "warning", "critical"]

Kind = Literal["daemon", "vault", "backup"]
KINDS: tuple[Kind, ...] = get_args(Kind)

DAY = 86400.0
"""Seconds that something may be unknown before that is a warning, where no ``max_lag`` says less or more."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that can be wrong with a subject of a ``kind``.

    ``word``: the state in one word; empty for the state of the pool. ``says``: the same in a sentence without its
    subject. ``when``: exactly when it holds. ``means``: why it matters. ``next``: the step to take, with ``{name}`` for
    the subject's name. ``alert``: the rule that fires for it; empty for the general rule of its level.
    """

    key: str
    kind: Kind
    level: Trouble
    word: str
    says: str
    when: str
    means: str
    next: str
    alert: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition that holds for a subject: ``why`` has the facts, ``next`` the step to take, ``word`` the state."""

    condition: Condition
    why: str
    next: str
    word: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The findings about one subject, in the order of the table of conditions: worst first."""

    findings: tuple[Finding, ...] = ()

    @classmethod
    def of(cls, found: Iterable[Finding], table: Sequence[Condition]) -> Verdict:
        """The verdict from findings in any order, by a ``table`` that has the worst conditions first."""
        return cls(tuple(sorted(found, key=lambda one: table.index(one.condition))))

    @property
    def level(self) -> Level:
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


def finding(condition: Condition, name: str, why: str = "", next: str = "", word: str = "") -> Finding:
    """A condition that holds for the subject ``name``; without ``next`` with the step that the condition has."""
    return Finding(condition, why, next or condition.next.format(name=name), word or condition.word)


def worst(levels: Iterable[Level]) -> Level:
    """The worst of several levels; ``ok`` for none."""
    return max(levels, key=LEVELS.index, default="ok")
