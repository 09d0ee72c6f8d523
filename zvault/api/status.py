"""The state of everything: the daemon, the backups, the vaults."""

from typing import Literal, NotRequired, TypedDict

from zvault.api.health import HealthDocument
from zvault.api.restore import RestoreTimeDocument
from zvault.api.runs import RunResult
from zvault.api.vaults import JudgedVault
from zvault.core.errors import ErrorDocument


class DaemonDocument(TypedDict):
    """The daemon itself. ``warnings``: what it complains of, also of backups and vaults, in words."""

    version: str
    pid: int
    started: float
    warnings: list[str]
    verdict: HealthDocument


class ProofDocument(TypedDict):
    """The times at which a level of a backup's verification last passed and was last tried; ``max_age`` is its
    interval, if any.
    """

    proven: float | None
    tried: float | None
    result: Literal["ok", "differs", "nothing"] | None
    max_age: float | None
    told: str


class TurnDocument(TypedDict):
    """The turn of a backup whose vault several hosts share: what this one waits for, and what another claims of the
    last run.

    ``claimed_by`` made it, ``claimed_lag`` is the lag by now that follows from what it says; nobody here has seen it.
    ``own_lag`` is what this host has read itself, None where it is not known.
    """

    waits: str | None
    claimed_by: str | None
    claimed_lag: float | None
    own_lag: float | None
    skipped: int


class BackupDocument(TypedDict):
    """One backup. ``run``, ``bytes_done`` and ``bytes_total`` are of the run under way.

    ``proofs`` are by level; they are kept on the vault, and None until it was seen. While a run waits to try again,
    ``retry_at``, ``retry_since`` and ``retry_error`` say when, since when, and why. ``held_back`` counts the datasets,
    on either side, of which prune_limit held something back at the last pruning. One that makes snapshots only has no
    ``vault``, nor a lag; ``snapshot_age_seconds`` is then how old the newest snapshot is of the dataset where it is the
    oldest, None where one has none or nobody knows. With neither ``vault`` nor ``makes_snapshots`` it only prunes.
    ``turn``: None where no other host shares the vault; ``lag_seconds`` is then the lesser of what was read here and
    what another host says it has done. ``waits_for`` is what its run waits for that others have (slots for streams, a
    look at damage in the vault's pool), None where it waits for nothing. ``next_run`` is None where nothing is
    ``scheduled``, and until it is known when the backup last ran. ``next_snapshot`` is when it makes one apart from its
    runs, None where it makes none so. ``restore`` says how long it takes to restore all of it, None where it has no
    vault; ``max_restore_seconds`` is how long it may.
    """

    name: str
    source: str
    vault: str | None
    into: str | None
    makes_snapshots: bool
    snapshot_age_seconds: float | None
    state: Literal["idle", "running", "waiting"]
    lag_seconds: float | None
    max_lag_seconds: float | None
    late: bool
    restore: RestoreTimeDocument | None
    max_restore_seconds: float | None
    last_success: float | None
    last_run: float | None
    last_result: RunResult | None
    last_error: ErrorDocument | None
    scheduled: bool
    next_run: float | None
    next_snapshot: float | None
    run: str | None
    retry_at: float | None
    retry_since: float | None
    retry_error: ErrorDocument | None
    datasets: int | None
    proofs: dict[str, ProofDocument] | None
    pending: int | None
    held_back: int | None
    bytes_done: int
    bytes_total: int | None
    turn: TurnDocument | None
    waits_for: str | None
    verdict: HealthDocument


NEXT_RUN_UNKNOWN = "not known until its source and vault have been looked at"
"""What is told in place of ``next_run`` where there is none of a backup that is scheduled."""


class HostDocument(TypedDict):
    """A host that zvaultctl asked among others: its daemon, or the error for which it could not."""

    name: str
    daemon: DaemonDocument | None
    error: ErrorDocument | None


class StatusDocument(TypedDict):
    """Everything at a glance. ``hosts``: only where zvaultctl asked several; names are HOST:NAME then, and ``daemon``
    has what all of them complain of.
    """

    daemon: DaemonDocument
    backups: list[BackupDocument]
    vaults: list[JudgedVault]
    hosts: NotRequired[list[HostDocument]]
