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


class CreationStep(TypedDict):
    """One command of making a vault; ``device`` is None for the pool's."""

    device: str | None
    what: str
    command: str


class Creation(TypedDict):
    """What making a vault's pool runs, in order."""

    vault: str
    pool: str
    steps: list[CreationStep]


class TakeoverDevice(TypedDict):
    """One device of a vault that is to be taken over; ``device`` is None for a pool without any."""

    device: str | None
    spec: str
    holder: str | None
    state: str
    by_hand: str | None
    steps: list[dict[str, str]]


class Takeover(TypedDict):
    """Who has a vault, and what taking it over does."""

    vault: str
    pool: str
    holders: list[str | None]
    devices: list[TakeoverDevice]
    command: str


class Device(TypedDict):
    """One device of a vault's stack."""

    name: str
    spec: str
    path: str | None
    state: str
    detail: str
    size: int | None


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
    error: Trouble | None


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


class TunedVault(TypedDict):
    """A vault in ``GET /v1/tuning``; ``host`` where it is on another one, which zvault does not tune."""

    name: str
    pool: str
    profile: str
    host: str | None
    tuned: bool
    measured: Document | None


class Parameter(TypedDict):
    """A module parameter in ``GET /v1/tuning``. All values are texts, as the kernel shows them.

    ``before`` is what goes back, ``value`` what zvault sets, ``wanted`` what each vault's profile asks for.
    """

    name: str
    what: str | None
    unit: str
    default: str | None
    before: str | None
    now: str | None
    value: str | None
    wanted: dict[str, str]
    state: Literal["set", "when up", "changed", "not set", "absent", "unused", "load-time", "conflict"]
    why: str
    next: str


class Tuning(TypedDict):
    """``GET /v1/tuning``."""

    openzfs: str
    memory: int
    other_pools: list[str]
    vaults: list[TunedVault]
    parameters: list[Parameter]
    modprobe: list[dict[str, str]]
    warnings: list[str]


class FitDevice(TypedDict):
    """A device in ``GET /v1/fit/NAME``; sizes in bytes, ``unit`` None where any sector is written by itself."""

    name: str
    vdev: str
    unit: int | None
    kind: str
    largest: int


class FitDataset(TypedDict):
    """A dataset in ``GET /v1/fit/NAME``; see core/alignment.py's Fit."""

    dataset: str
    store: str
    record: int
    ratio: float
    block: int
    request: int
    touched: float
    partly: float
    moved: float
    puts: float
    gets: float
    cost: float | None


class Advice(TypedDict):
    """Something to change, in ``GET /v1/fit/NAME``."""

    about: list[str]
    what: str
    why: str


class Fit(TypedDict):
    """``GET /v1/fit/NAME``."""

    backup: str
    vault: str
    sector: int
    merged: int
    devices: list[FitDevice]
    datasets: list[FitDataset]
    advice: list[Advice]
    unknown: list[str]


class Knob(TypedDict):
    """The one thing to change, in ``GET /v1/doctor/NAME``."""

    name: str
    where: str
    now: str | None
    value: str | None


class Diagnosis(TypedDict):
    """What bounds a vault, in ``GET /v1/doctor/NAME``."""

    bound: str
    sentence: str
    knob: Knob | None
    why: str


class Doctor(TypedDict):
    """``GET /v1/doctor/NAME``; see core/vitals.py for what is counted."""

    vault: str
    pool: str
    seconds: float
    verdict: Diagnosis
    streams: list[dict[str, Any]]
    devices: list[dict[str, Any]]
    queue: dict[str, Any] | None
    request: float | None
    groups: list[dict[str, Any]]
    waits: dict[str, int]
    threads: dict[str, float]
    idle: float | None
    last: dict[str, Any] | None


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
