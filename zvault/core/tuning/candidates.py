"""Calculates module parameters from the measurement of a device, with the arithmetic, and selects candidates to try.

The model: a request takes a fixed time plus the time for its bytes, and the device works on several requests in
parallel (measurement.py). A transaction group ends with small writes that wait for each other; no data is written
meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from zvault.core.tuning.measurement import LARGEST_MERGED, UNMERGED_WRITE, BandwidthKnee
from zvault.core.tuning.parameters import KNOWN_PARAMETERS
from zvault.core.tuning.tuning import (
    AGGREGATION_LIMITS,
    DIRTY_DATA_PARAMETER,
    TunedHost,
    find_default,
    limit_dirty_data,
)
from zvault.core.units import format_rate, format_size

AGGREGATION_LIMIT = AGGREGATION_LIMITS[False]
"""For rotating devices tuning.py uses the other aggregation limit instead."""
MOST_ACTIVE_PARAMETER, LEAST_ACTIVE_PARAMETER = (
    "zfs_vdev_async_write_max_active",
    "zfs_vdev_async_write_min_active",
)
ALLOCATION_THROTTLE = "zio_dva_throttle_enabled"
TXG_TIMEOUT = "zfs_txg_timeout"
GROUP_PARAMETERS = (DIRTY_DATA_PARAMETER, TXG_TIMEOUT)

SERIAL_WRITES = 20
"""Approximate number of serial writes at the end of a transaction group: the levels of its tree, its space maps, the
labels with their flushes. On a model of slow disks, 35 ms a request, a group's end took 0.9 s."""

SERIAL_TIME_SHARE = 0.05
"""Share of the time that these writes may take."""

LONGEST_GROUP = 30
"""Maximum seconds of a transaction group. After a crash, a receive must repeat what the lost groups contained."""

DEFAULTS = "OpenZFS's defaults"
"""What the candidate without parameters is called."""

LARGEST_RECORD = 1 << 20
"""Bytes: the largest recordsize to advise. Larger ones were slower again in a published report."""

BETTER_FACTOR = 1.05
"""How many times faster another candidate must be to replace the calculated one: less is noise."""

NOISE_FACTOR = 1.2
"""Ratio by which two receives with the same settings may differ. If the two best are this close, both run again."""

REQUESTS_PER_WORKER = 2
"""Requests in flight for each one that the device works on. A request of some MiB is on its way to the device for a
while, and so is the answer; meanwhile another one has to wait there, or the device has nothing to do. On a model of
slow disks that works on 4 requests of 105 ms at once, on a busy host, answers came 10 to 40 ms late. With 5 in flight
2.5 of the 4 were at work on average, with 8 there were 3.1, and a receive of 1.5 GiB made 93 MiB/s in place of 78."""

FAR_DEPTH_FACTOR = 2
"""A profile is tried only if its depth differs from the measured one by at most this factor. The neighbours that are
tried show the better direction; anything beyond them is slower still."""


@dataclass(frozen=True, slots=True)
class ParameterChoice:
    """A module parameter's value and the arithmetic behind it."""

    name: str
    value: str
    why: str


@dataclass(frozen=True, slots=True)
class TuningCandidate:
    """Settings to try out; without any, OpenZFS's defaults. ``what`` says in words how they differ."""

    what: str
    choices: tuple[ParameterChoice, ...] = ()

    @property
    def module(self) -> dict[str, str]:
        """Values by parameter."""
        return {one.name: one.value for one in self.choices}


@dataclass(frozen=True, slots=True)
class CandidateTrial:
    """The result of ``runs`` receives: bytes a second; if it was ``stopped`` early, an upper bound."""

    candidate: TuningCandidate
    rate: float
    stopped: bool = False
    runs: int = 1


def calculate_parameters(knee: BandwidthKnee, host: TunedHost) -> tuple[ParameterChoice, ...]:
    """The parameters for a device. Where more is better, none is below OpenZFS's default."""
    return (*_requests(knee), *_groups(knee, host))


def _requests(knee: BandwidthKnee) -> list[ParameterChoice]:
    if knee.size <= UNMERGED_WRITE:
        why = (
            f"requests of {format_size(UNMERGED_WRITE)} reach {format_rate(knee.unmerged.bandwidth)}, and "
            "larger ones no more"
        )
        return [
            ParameterChoice(MOST_ACTIVE_PARAMETER, str(max(knee.depth, _default(MOST_ACTIVE_PARAMETER))), why)
        ]
    alone, size, depth = knee.alone, format_size(knee.size), str(knee.depth * REQUESTS_PER_WORKER)
    merged = (
        f"requests of {size} reach {format_rate(knee.bandwidth)}, those of {format_size(UNMERGED_WRITE)} only"
        f" {format_rate(knee.unmerged.bandwidth)}: even a small one takes {_time(knee.small.latency)}"
    )
    little = (
        f"Little's law: {format_rate(knee.slots * alone.size / alone.latency)} in requests of"
        f" {format_size(alone.size)} that take {_time(alone.latency)} each are {knee.slots:.1f} at once; as many"
        " again are on their way to it or back"
    )
    return [
        ParameterChoice(AGGREGATION_LIMIT, str(knee.size), merged),
        ParameterChoice(MOST_ACTIVE_PARAMETER, depth, little),
        ParameterChoice(
            LEAST_ACTIVE_PARAMETER,
            depth,
            f"the same as {MOST_ACTIVE_PARAMETER}, so that the depth is constant",
        ),
        ParameterChoice(
            ALLOCATION_THROTTLE,
            "0",
            "writes that the throttle holds back are not in the queue and cannot be merged",
        ),
    ]


def _groups(knee: BandwidthKnee, host: TunedHost) -> list[ParameterChoice]:
    """Parameters for transaction groups so large that their end takes only a small share of the time."""
    end = SERIAL_WRITES * knee.small.latency
    long = min(end / SERIAL_TIME_SHARE, LONGEST_GROUP)
    ends = (
        f"a transaction group ends with about {SERIAL_WRITES} writes one after another, of "
        f"{_time(knee.small.latency)} each"
    )
    default = int(find_default(DIRTY_DATA_PARAMETER, host) or 0)
    dirty = min(limit_dirty_data(host), math.ceil(long * knee.bandwidth))
    found = []
    if dirty > default:
        why = (
            f"{ends}: for that to be a {round(1 / SERIAL_TIME_SHARE)}th of its time it has to last {_time(long)}, at"
            f" {format_rate(knee.bandwidth)}; memory must also hold the next group meanwhile"
        )
        found.append(ParameterChoice(DIRTY_DATA_PARAMETER, str(dirty), why))
    timeout = min(LONGEST_GROUP, math.ceil(end / SERIAL_TIME_SHARE))
    if timeout > _default(TXG_TIMEOUT):
        found.append(
            ParameterChoice(
                TXG_TIMEOUT, str(timeout), f"{ends}: with a slow source, the timeout must not end it sooner"
            )
        )
    return found


def _default(name: str) -> int:
    return int(KNOWN_PARAMETERS[name].default or 0)


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


ProfileParameters = Mapping[str, Mapping[str, str]]
"""Module parameters by profile."""


def list_candidates(
    knee: BandwidthKnee, host: TunedHost, largest: int, profiles: ProfileParameters
) -> list[TuningCandidate]:
    """The candidates in the order to try them: calculated settings, neighbours, similar profiles, OpenZFS's defaults.
    They differ only in request size and depth, because a stream of a few seconds says nothing about transaction groups.

    ``largest`` is the device's maximum request size in bytes.
    """
    found = [TuningCandidate("worked out", calculate_parameters(knee, host))]
    groups = [one for one in found[0].choices if one.name in GROUP_PARAMETERS]
    worked_out = knee.depth * REQUESTS_PER_WORKER
    for what, size, depth in (
        ("half the depth", knee.size, worked_out // 2),
        ("twice the size, half the depth", knee.size * 2, worked_out // 2),
    ):
        if knee.size > UNMERGED_WRITE and size <= min(largest, LARGEST_MERGED):
            other = TuningCandidate(what, _with(found[0].choices, knee, size, depth))
            if other.module not in [one.module for one in found]:
                found.append(other)
    for name, module in profiles.items():
        if _near(knee, module, largest) and all(
            _requested(one.module) != _requested(module) for one in found
        ):
            why = f"from profile {name}, which was faster than what was worked out"
            bound = limit_dirty_data(host)
            theirs = [
                ParameterChoice(
                    key,
                    str(min(int(value), bound))
                    if key == DIRTY_DATA_PARAMETER and value.isdecimal()
                    else value,
                    why,
                )
                for key, value in module.items()
            ]
            ours = [one for one in groups if one.name not in module]
            found.append(TuningCandidate(f"as {name}", (*theirs, *ours)))
    return [*found, TuningCandidate(DEFAULTS)]


def _requested(module: Mapping[str, str]) -> tuple[str | None, ...]:
    return tuple(
        module.get(name)
        for name in (AGGREGATION_LIMIT, MOST_ACTIVE_PARAMETER, LEAST_ACTIVE_PARAMETER, ALLOCATION_THROTTLE)
    )


def _near(knee: BandwidthKnee, module: Mapping[str, str], largest: int) -> bool:
    """True if a profile suits a device like this one."""
    try:
        size, depth = int(module[AGGREGATION_LIMIT]), int(module[MOST_ACTIVE_PARAMETER])
    except (KeyError, ValueError):
        return False
    return (
        size <= largest and knee.depth <= FAR_DEPTH_FACTOR * depth and depth <= FAR_DEPTH_FACTOR * knee.depth
    )


def _with(
    choices: Sequence[ParameterChoice], knee: BandwidthKnee, size: int, depth: int
) -> tuple[ParameterChoice, ...]:
    other = {AGGREGATION_LIMIT: size, MOST_ACTIVE_PARAMETER: depth, LEAST_ACTIVE_PARAMETER: depth}
    was = {
        AGGREGATION_LIMIT: knee.size,
        MOST_ACTIVE_PARAMETER: knee.depth * REQUESTS_PER_WORKER,
        LEAST_ACTIVE_PARAMETER: knee.depth * REQUESTS_PER_WORKER,
    }
    return tuple(
        ParameterChoice(
            one.name,
            str(other[one.name]),
            f"{_figure(one.name, was[one.name])} was worked out, but this was faster",
        )
        if one.name in other and other[one.name] != was[one.name]
        else one
        for one in choices
    )


def _figure(name: str, value: int) -> str:
    return format_size(value) if name == AGGREGATION_LIMIT else str(value)


def find_contested(tries: Sequence[CandidateTrial]) -> list[int]:
    """The indexes of the two best trials if they are too close to call; the best one last. Else empty."""
    ended = sorted((one.rate, place) for place, one in enumerate(tries) if not one.stopped)
    two = ended[-2:]
    near = len(two) == 2 and two[1][0] < NOISE_FACTOR * two[0][0]
    return [place for _, place in two] if near else []


def combine_trials(first: CandidateTrial, second: CandidateTrial) -> CandidateTrial:
    """Combine two trials of one candidate into one: all bytes divided by all seconds."""
    return replace(first, rate=2 / (1 / first.rate + 1 / second.rate), runs=first.runs + second.runs)


def select_winner(tries: Sequence[CandidateTrial]) -> CandidateTrial:
    """The first trial, unless another that ran to its end was clearly faster. Raises ValueError if there is none.

    If some ran more than once, one of them: a single receive may have been lucky.
    """
    if not tries:
        raise ValueError("nothing was tried")
    runs = max(one.runs for one in tries)
    best, *others = [one for one in tries if one.runs == runs]
    for one in others:
        # The defaults win without a margin: changing nothing is the safest choice.
        margin = BETTER_FACTOR if one.candidate.choices else 1.0
        if not one.stopped and (best.stopped or one.rate > margin * best.rate):
            best = one
    return best


def advise_on_recordsize(knee: BandwidthKnee) -> str:
    """Advice on the recordsize of the source, in words; empty if it does not matter."""
    if knee.size <= UNMERGED_WRITE:
        return ""
    alone, small = knee.alone, knee.small
    rate = (alone.size - small.size) / max(alone.latency - small.latency, 1e-6)
    half = max(small.latency - small.size / rate, 0.0) * rate
    record = next(
        (size for size in (UNMERGED_WRITE << step for step in range(4)) if size >= half), LARGEST_RECORD
    )
    if record <= UNMERGED_WRITE:
        return ""
    return (
        f"recordsize={format_size(record)} at the source suits this device; it applies to files written from then on."
        f" A restore reads record by record, and below {format_size(round(half))} the fixed time of a request"
        " exceeds the time for its bytes"
    )
