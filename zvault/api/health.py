"""How a backup, a vault or the daemon is, as zvaultd judges it."""

from typing import Literal, TypedDict, final

HealthLevel = Literal["ok", "unknown", "warning", "critical"]


@final
class FindingDocument(TypedDict):
    """A condition of docs/reference/health.md that holds: what is wrong, why, and what to do next."""

    condition: str
    level: HealthLevel
    state: str
    what: str
    why: str
    next: str


@final
class HealthDocument(TypedDict):
    """A verdict: the ``level`` and the one-word ``state`` of the worst finding (``ok`` for none); worst first."""

    level: HealthLevel
    state: str
    findings: list[FindingDocument]
