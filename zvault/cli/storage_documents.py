"""The API's documents about a vault's storage as the verbs read them: made, taken over, tuned, fitted, examined.

Durations are seconds, sizes bytes. None means "not known", never zero.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from zvault.cli.documents import Document


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


class Asked(TypedDict):
    """What a transaction group asks of the storage for itself; ``moved`` in bytes. See core/groups.py."""

    puts: float
    gets: float
    moved: float
    cost: float | None


class AskedByRun(Asked):
    """The same of the groups of a run."""

    groups: int


class Fit(TypedDict):
    """``GET /v1/fit/NAME``. ``first`` is a run that makes a dataset on the vault, ``run`` a later one."""

    backup: str
    vault: str
    sector: int
    merged: int
    devices: list[FitDevice]
    group: Asked
    run: AskedByRun
    first: AskedByRun
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
