"""Why something is as it is with a dataset or snapshot: what `zvaultctl explain` shows."""

from typing import Literal, TypedDict

from zvault.api.backups import Side
from zvault.api.health import HealthLevel

ExplainTopic = Literal[
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


class ReasonDocument(TypedDict):
    """One thing about it: its ``state`` in a word or two, ``why`` it is so, and what a person can do ``next``.

    ``side`` where it is about one side only. ``why`` and ``next`` may be empty.
    """

    topic: ExplainTopic
    side: Side | None
    state: str
    why: str
    next: str
    level: HealthLevel


class AccountDocument(TypedDict):
    """The account of one backup: ``dataset`` on its source, ``vault_dataset`` on its vault, where known.

    ``vault`` is None where the backup makes snapshots only.

    ``takes``: whether the backup takes it; None where that is not known. Without ``vault_seen`` the vault is down, and
    what is told of it was seen ``vault_seen_at``, if ever.
    """

    backup: str
    source: str
    vault: str | None
    dataset: str | None
    vault_dataset: str | None
    takes: bool | None
    vault_seen: bool
    vault_seen_at: float | None
    reasons: list[ReasonDocument]


class ExplainDocument(TypedDict):
    """The knowledge of a dataset or snapshot ``at`` this time. ``uncovered`` says why nothing backs it up, if so."""

    name: str
    at: float
    uncovered: str
    accounts: list[AccountDocument]
