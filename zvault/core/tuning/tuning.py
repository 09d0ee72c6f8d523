"""Decides which module parameters to set for the vaults that are up, and why. Pure: the host is an argument.

OpenZFS's parameters apply to every pool of a host. So zvault sets few of them, and only while a vault needs them. If
two vaults want different values, the parameter's rule decides (``parameters.KNOWN_PARAMETERS``), never the order in
which they came up.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from zvault.core.tuning.parameters import KNOWN_PARAMETERS, KnownParameter
from zvault.core.units import format_size
from zvault.core.zfs_version import Version, format_version

AGGREGATION_LIMITS = {
    True: "zfs_vdev_aggregation_limit",
    False: "zfs_vdev_aggregation_limit_non_rotating",
}
"""The aggregation limit that OpenZFS uses, by whether the device is rotational (vdev_queue_aggregate)."""

DIRTY_DATA_PARAMETER = "zfs_dirty_data_max"
DIRTY_BOUND = "zfs_dirty_data_max_max"
DIRTY_SHARE = 4
"""Dirty data gets at most 1/DIRTY_SHARE of memory, like the default of zfs_dirty_data_max_max (arc.c). The kernel
accepts any value (seen with 2.3.9), and a host whose memory is full of dirty data hangs."""

READ_AHEAD_PARAMETERS = ("zfs_send_queue_length", "zfs_scan_vdev_limit")
READ_AHEAD_SHARE = 16
"""What is read ahead gets at most 1/READ_AHEAD_SHARE of memory: datasets that are sent at once each have their own."""

MODPROBE_COMMAND = "zvaultctl tune modprobe"

ParameterFate = Literal["set", "absent", "unused", "load-time", "conflict"]
"""``absent``: this OpenZFS does not have it. ``unused``: the vault's devices do not use it. ``load-time``: OpenZFS
reads it only when it is loaded. ``conflict``: vaults want different values and no rule decides."""


@dataclass(frozen=True, slots=True)
class KernelParameter:
    """A parameter of the running kernel; ``writable`` is false if OpenZFS reads it only when it is loaded."""

    value: str
    writable: bool


@dataclass(frozen=True, slots=True)
class TunedHost:
    """A host: its OpenZFS version, bytes of memory, and every parameter by name."""

    version: Version
    memory: int
    parameters: Mapping[str, KernelParameter]


@dataclass(frozen=True, slots=True)
class TuningRequest:
    """The parameters that one vault's profile wants, and whether its devices are rotational, if known.

    ``reasons``: by parameter, why it has this value, if the value was measured for this vault.
    """

    vault: str
    module: Mapping[str, str]
    rotational: frozenset[bool] = frozenset()
    reasons: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ParameterDecision:
    """The decision on one parameter: the ``value`` to set; None leaves it unchanged.

    ``wanted``: the value that each vault wants. ``fate``: why zvault does not set it, else "set".
    """

    name: str
    wanted: Mapping[str, str]
    value: str | None
    why: str
    fate: ParameterFate = "set"
    next: str = ""

    @property
    def trouble(self) -> bool:
        """True if a vault does not get its value, and a person can change that."""
        return self.fate in {"load-time", "conflict"}


@dataclass
class _Wanted:
    """The values that vaults want for one parameter, and why it replaces another parameter (``instead``)."""

    by: dict[str, str] = field(default_factory=dict)
    instead: str = ""
    reasons: dict[str, str] = field(default_factory=dict)


def decide_parameters(requests: Iterable[TuningRequest], host: TunedHost) -> list[ParameterDecision]:
    """A decision on each parameter that any vault wants, sorted by name."""
    wanted: dict[str, _Wanted] = {}
    found: dict[str, ParameterDecision] = {}
    for request in sorted(requests, key=lambda request: request.vault):
        for name, value, instead in _meant(request):
            one = wanted.setdefault(name, _Wanted())
            one.by[request.vault] = value
            one.instead = one.instead or instead
            if reason := _reason(request, name):
                one.reasons[request.vault] = reason
        for name in _pointless(request):
            before = found[name].wanted if name in found else {}
            found[name] = _not_needed(name, {**before, request.vault: request.module[name]})
    for name, one in wanted.items():
        verdict = _verdict(name, one, host)
        also = found[name].wanted if name in found else {}
        found[name] = replace(verdict, wanted={**also, **verdict.wanted})
    return _in_order(found, host)


# What a request means for the vault's devices


def _limits(request: TuningRequest) -> dict[bool, str]:
    """The aggregation limits in a profile, by whether they are for rotational devices."""
    return {kind: request.module[name] for kind, name in AGGREGATION_LIMITS.items() if name in request.module}


def _meant(request: TuningRequest) -> Iterator[tuple[str, str, str]]:
    """Name, value, and why it is this name: zvault sets the aggregation limit that applies to the vault's devices."""
    for name, value in request.module.items():
        if name not in AGGREGATION_LIMITS.values():
            yield name, value, ""
    limits = _limits(request)
    for kind in sorted(request.rotational or limits.keys()):
        if limits:
            instead = "" if kind in limits else _says(kind)
            yield AGGREGATION_LIMITS[kind], limits.get(kind, limits.get(not kind, "")), instead


def _reason(request: TuningRequest, name: str) -> str:
    """Why a vault wants this value. An aggregation limit that replaces the other one has the other one's reason."""
    names = AGGREGATION_LIMITS.values() if name in AGGREGATION_LIMITS.values() else [name]
    return next((request.reasons[one] for one in (name, *names) if one in request.reasons), "")


def _pointless(request: TuningRequest) -> list[str]:
    return [
        AGGREGATION_LIMITS[kind]
        for kind in _limits(request)
        if request.rotational and kind not in request.rotational
    ]


def _says(rotates: bool) -> str:
    return f"its device is {'rotational' if rotates else 'not rotational'}, so this limit applies"


def _not_needed(name: str, wanted: Mapping[str, str]) -> ParameterDecision:
    other = next(limit for limit in AGGREGATION_LIMITS.values() if limit != name)
    return ParameterDecision(name, wanted, None, f"no device uses it: {other} applies instead", "unused")


# One parameter


def _verdict(name: str, wanted: _Wanted, host: TunedHost) -> ParameterDecision:
    known, here = KNOWN_PARAMETERS.get(name), host.parameters.get(name)
    if here is None:
        return ParameterDecision(name, wanted.by, None, _missing(name, known, host), "absent")
    value, why = _reconciled(wanted.by, known)
    if value is None:
        return ParameterDecision(
            name, wanted.by, None, why, "conflict", "set the same value in both profiles"
        )
    chosen = value
    value, bound = _within_memory(name, value, host)
    reasons = (wanted.reasons[vault] for vault in sorted(wanted.reasons) if wanted.by[vault] == chosen)
    why = "; ".join(filter(None, (wanted.instead, why, next(reasons, ""), bound)))
    if not here.writable and here.value != value:
        why = f"OpenZFS reads it only when it is loaded, and it is {here.value}; {why}"
        return ParameterDecision(name, wanted.by, None, why, "load-time", f"see '{MODPROBE_COMMAND}'")
    return ParameterDecision(name, wanted.by, value, why)


def _missing(name: str, known: KnownParameter | None, host: TunedHost) -> str:
    lacks = f"this OpenZFS {format_version(host.version)} has no {name}"
    if known is None:
        near = difflib.get_close_matches(name, host.parameters, n=1)
        return f"{lacks}, and zvault does not know it" + (f"; is {near[0]} meant?" if near else "")
    if host.version and host.version >= known.gone:
        return f"{lacks}: {format_version(known.gone)} removed it; {known.lost}"
    if host.version and host.version < known.since:
        return f"{lacks}: {format_version(known.since)} added it; {known.lost}"
    return lacks


def _reconciled(wanted: Mapping[str, str], known: KnownParameter | None) -> tuple[str | None, str]:
    """The value for all vaults that want the parameter, and why; None if no rule decides."""
    values = sorted(set(wanted.values()), key=lambda text: (_number(text) is None, _number(text), text))
    vaults = ", ".join(sorted(wanted))
    if len(values) == 1:
        return values[0], f"wanted by {vaults}"
    who = ", ".join(f"{vault} wants {value}" for vault, value in sorted(wanted.items()))
    if known is None or known.rule is None or any(_number(value) is None for value in values):
        return None, f"{who}, and no rule decides between them"
    return values[0 if known.rule == "smaller" else -1], f"{who}; the {known.rule} one: {known.because}"


def _within_memory(name: str, value: str, host: TunedHost) -> tuple[str, str]:
    number = _number(value)
    bounds = {DIRTY_DATA_PARAMETER: limit_dirty_data(host)}
    bounds |= dict.fromkeys(READ_AHEAD_PARAMETERS, host.memory // READ_AHEAD_SHARE)
    most = bounds.get(name)
    if number is None or most is None or number <= most:
        return value, ""
    cut = f"cut from {format_size(number)} to {format_size(most)}, the most that this host's memory allows"
    return str(most), cut


def limit_dirty_data(host: TunedHost) -> int:
    """Bytes of dirty data that a host's memory allows."""
    bounds = [host.memory // DIRTY_SHARE]
    if DIRTY_BOUND in host.parameters:
        bounds += [_number(host.parameters[DIRTY_BOUND].value) or bounds[0]]
    return min(bounds)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() else None


# All together


def _in_order(verdicts: Mapping[str, ParameterDecision], host: TunedHost) -> list[ParameterDecision]:
    """Sorted by name. No minimum is above its maximum: OpenZFS does not define that case (vdev_queue.c)."""
    done = dict(sorted(verdicts.items()))
    for name, verdict in done.items():
        if not name.endswith("_min_active") or verdict.value is None:
            continue
        highest = name.replace("_min_active", "_max_active")
        top = done[highest].value if highest in done else None
        if top is None and highest in host.parameters:
            top = host.parameters[highest].value
        if top is not None and (_number(verdict.value) or 0) > (_number(top) or 0):
            why = f"{verdict.why}; cut to {highest}, which is {top}"
            done[name] = replace(verdict, value=top, why=why)
    return list(done.values())


def find_default(name: str, host: TunedHost) -> str | None:
    """A parameter's default in OpenZFS; None if zvault does not know it."""
    if name == DIRTY_DATA_PARAMETER and DIRTY_BOUND in host.parameters:
        return str(min(host.memory // 10, _number(host.parameters[DIRTY_BOUND].value) or 0))
    return KNOWN_PARAMETERS[name].default if name in KNOWN_PARAMETERS else None


def list_modprobe_options(requests: Sequence[TuningRequest], host: TunedHost) -> list[tuple[str, str, str]]:
    """Load-time parameters for modprobe(8): name, value, and why. Parameters on which vaults disagree are left out."""
    lines: list[tuple[str, str, str]] = []
    for request in requests:
        for name in request.module:
            if name not in {line[0] for line in lines} and name in host.parameters:
                everyone = {one.vault: one.module[name] for one in requests if name in one.module}
                value, why = _reconciled(everyone, KNOWN_PARAMETERS.get(name))
                if not host.parameters[name].writable and value is not None:
                    lines.append((name, value, why))
    return sorted(lines)
