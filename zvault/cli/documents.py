"""The documents of the daemon's API as the verbs read them.

Times are seconds since the epoch, durations seconds, sizes bytes. None means "not known", never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

Document = dict[str, Any]
Row = Mapping[str, Any]
Event = Mapping[str, Any]
RunId = str | int

Result = Literal["ok", "partial", "failed", "interrupted"]


class Trouble(TypedDict):
    """An error as the API sends it (ZvaultError.as_dict)."""

    reason: str
    what: str
    why: str
    next: str


class Daemon(TypedDict):
    """The daemon itself."""

    version: str
    pid: int
    started: float
    warnings: list[str]


class Proof(TypedDict):
    """When a rung of a backup's verification last passed and was last tried; ``max_age`` is its interval, if any."""

    proven: float | None
    tried: float | None
    result: Literal["ok", "differs", "nothing"] | None
    max_age: float | None
    told: str


class Backup(TypedDict):
    """One backup in ``GET /v1/status``."""

    name: str
    source: str
    vault: str
    into: str
    state: Literal["idle", "running", "waiting"]
    lag_seconds: float | None
    max_lag_seconds: float | None
    late: bool
    last_success: float | None
    last_run: float | None
    last_result: Result | None
    last_error: Trouble | None
    next_run: float | None
    run: RunId | None
    retry_at: float | None
    datasets: int | None
    pending: int | None
    bytes_done: int
    bytes_total: int | None
    proofs: dict[str, Proof]


class Device(TypedDict):
    """One device of a vault's stack; ``store`` is what a block store's server said last, None for others."""

    name: str
    spec: str
    path: str | None
    state: str
    detail: str
    size: int | None
    store: Document | None


class Damage(TypedDict):
    """One damaged file, or object without a name; ``dataset`` None where nobody knows whose it is."""

    dataset: str | None
    snapshot: str | None
    file: str


class Scrub(TypedDict):
    """A vault's newest scrub and what is damaged, as last seen. ``last`` is when the last whole scrub ended."""

    seen: float
    state: Literal["none", "scanning", "paused", "finished", "canceled", "resilver"]
    started: float | None
    ended: float | None
    last: float | None
    share: float | None
    bytes_done: int
    bytes_total: int
    rate: float | None
    left_seconds: float | None
    found: int
    held: bool
    pausing: str
    errors: int
    files: int
    damages: list[Damage]


class Vault(TypedDict):
    """One vault in ``GET /v1/status`` and ``GET /v1/vaults``."""

    name: str
    pool: str
    state: Literal["up", "down", "partial", "gone"]
    health: str | None
    size: int | None
    allocated: int | None
    free: int | None
    devices: list[Device]
    users: list[str]
    pinned: bool
    inhibitor: bool
    inhibitor_since: float | None
    error: Trouble | None
    scrub: Scrub | None


class Status(TypedDict):
    """``GET /v1/status``."""

    daemon: Daemon
    backups: list[Backup]
    vaults: list[Vault]


Step = TypedDict("Step", {"kind": str, "from": str | None, "to": str, "bytes": int | None, "reason": str})
"""One stream of a planned transfer; ``from`` is None for a full stream."""


class PlannedDataset(TypedDict):
    """What a run would do with one dataset."""

    dataset: str
    vault_dataset: str
    action: Literal["full", "incremental", "resume", "nothing", "conflict"]
    written: int
    changes: list[str]
    steps: list[Step]
    reason: str
    next: str


class Gone(TypedDict):
    """What a vault has of a dataset that is no longer on the source, or that was set aside."""

    backup: str
    vault_dataset: str
    state: Literal["gone", "set aside"]
    used: int
    snapshots_vault: int
    newest: float | None


class Verdict(TypedDict):
    """Whether a snapshot would be pruned, and why."""

    side: Literal["source", "vault"]
    snapshot: str
    keep: bool
    reason: str
    bytes: int | None


class Excess(TypedDict):
    """A dataset of which prune_limit lets nothing go: ``doomed`` of so many, where ``allowed`` may."""

    side: Literal["source", "vault"]
    dataset: str
    doomed: int
    snapshots: int
    allowed: int


class Prunes(TypedDict):
    """``GET /v1/prune/NAME``; ``freed`` are exact bytes by side."""

    backup: str
    vault: str
    prune: list[Verdict]
    freed: dict[str, int | None]
    over_limit: list[Excess]


class Keepsake(TypedDict):
    """A hold or bookmark of zvault's on a source, in ``GET /v1/holds``."""

    kind: Literal["hold", "bookmark"]
    host: str | None
    dataset: str
    name: str
    guid: str
    creation: int
    vault_guid: str
    vault: str | None
    state: Literal["in use", "orphan", "unknown"]
    reason: str


class Plan(Prunes):
    """``GET /v1/plan/NAME``."""

    datasets: list[PlannedDataset]
    gone: list[Gone]


class Run(TypedDict):
    """One run in ``GET /v1/history``."""

    id: RunId
    backup: str
    trigger: str
    started: float
    ended: float | None
    result: Result | None
    bytes: int
    seconds: float
    datasets: int
    sent: int
    pruned: int
    error: Trouble | None
    warning: str | None
