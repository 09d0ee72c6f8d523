"""Tuning: the module parameters that vaults want, and what was measured of a vault's device."""

from typing import Literal, TypedDict


class MeasuredPointDocument(TypedDict):
    """Requests of ``size`` bytes, ``depth`` at once: ``bandwidth`` in bytes a second, ``latency`` of each."""

    size: int
    depth: int
    bandwidth: float
    latency: float


class ChoiceDocument(TypedDict):
    """A module parameter's value, and the arithmetic it comes from."""

    name: str
    value: str
    why: str


class TryDocument(TypedDict):
    """Settings that were tried out; ``rate`` in bytes a second, a bound where it was ``stopped``."""

    what: str
    module: dict[str, str]
    rate: int
    stopped: bool
    won: bool


class MeasuredReading(TypedDict):
    """The measurement of a device's reads, and the sends and scrubs that were tried out on its pool."""

    points: list[MeasuredPointDocument]
    choices: list[ChoiceDocument]
    sends: list[TryDocument]
    scrubs: list[TryDocument]


class MeasuredDocument(TypedDict):
    """The measurements of a vault's device and the trials on its pool, and when they were made. ``reading`` is missing
    where reads were not measured.
    """

    time: float
    devices: list[str]
    way: Literal["read", "write"]
    points: list[MeasuredPointDocument]
    choices: list[ChoiceDocument]
    tries: list[TryDocument]
    advice: str
    reading: MeasuredReading | None


class MeasuredAnswer(TypedDict):
    """The outcome of a measurement."""

    measured: MeasuredDocument


class ProbedStoreDocument(TypedDict):
    """What ``blockstore probe`` found of a vault's object store, at ``time``: the least number of ``puts`` and ``gets``
    of 8 MiB at once that come near the fastest. ``uploads`` and ``reads`` are those that zvault takes from it.
    """

    time: float
    puts: int
    gets: int
    uploads: int
    reads: int


class TunedVault(TypedDict):
    """A vault; ``host`` where it is on another one, which zvault does not tune. ``probed`` is missing but with
    ``auto``.
    """

    name: str
    pool: str
    profile: str
    host: str | None
    tuned: bool
    measured: MeasuredDocument | None
    probed: ProbedStoreDocument | None


ParameterState = Literal[
    "set", "when up", "when read", "changed", "not set", "absent", "unused", "load-time", "conflict"
]
"""``when up``, ``when read``: zvault sets it once a vault that wants it is up, or is read."""


class ParameterDocument(TypedDict):
    """A module parameter. All values are texts, as the kernel shows them.

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
    state: ParameterState
    why: str
    next: str


class LoadTimeParameter(TypedDict):
    """A parameter that counts only when OpenZFS is loaded, for modprobe.d(5)."""

    name: str
    value: str
    why: str


class TuningDocument(TypedDict):
    """Everything that is tuned; ``other_pools`` are those for which the parameters hold as well."""

    openzfs: str
    memory: int
    other_pools: list[str]
    vaults: list[TunedVault]
    parameters: list[ParameterDocument]
    modprobe: list[LoadTimeParameter]
    warnings: list[str]
