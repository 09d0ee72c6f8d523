"""Calculates module parameters from the measurement of a device, with the arithmetic, and selects candidates to try.

The model: a request takes a fixed time plus the time for its bytes, and the device works on several requests in
parallel (measurement.py). A transaction group ends with small writes that wait for each other; no data is written
meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from zvault.core.tuning.measurement import LARGEST, SMALL, Knee
from zvault.core.tuning.parameters import KNOWN
from zvault.core.tuning.tuning import AGGREGATION, DIRTY, Host, default_of, most_dirty
from zvault.core.units import format_rate, format_size

LIMIT = AGGREGATION[False]
"""For rotating devices tuning.py uses the other aggregation limit instead."""
MOST, LEAST = "zfs_vdev_async_write_max_active", "zfs_vdev_async_write_min_active"
THROTTLE = "zio_dva_throttle_enabled"
TIMEOUT = "zfs_txg_timeout"
GROUPS = (DIRTY, TIMEOUT)

SERIAL = 20
"""Approximate number of serial writes at the end of a transaction group: the levels of its tree, its space maps, the
labels with their flushes. On a model of slow disks, 35 ms a request, a group's end took 0.9 s."""

LOST = 0.05
"""Share of the time that these writes may take."""

LONGEST = 30
"""Maximum seconds of a transaction group. After a crash, a receive must repeat what the lost groups contained."""

LARGEST_RECORD = 1 << 20
"""Bytes: the largest recordsize to advise. Larger ones were slower again in a published report."""

BETTER = 1.05
"""How many times faster another candidate must be to replace the calculated one: less is noise."""

NOISE = 1.2
"""Ratio by which two receives with the same settings may differ. If the two best are this close, both run again."""

AHEAD = 2
"""Requests in flight for each one that the device works on. A request of some MiB is on its way to the device for a
while, and so is the answer; meanwhile another one has to wait there, or the device has nothing to do. On a model of
slow disks that works on 4 requests of 105 ms at once, on a busy host, answers came 10 to 40 ms late. With 5 in flight
2.5 of the 4 were at work on average, with 8 there were 3.1, and a receive of 1.5 GiB made 93 MiB/s in place of 78."""

FAR = 2
"""A profile is tried only if its depth differs from the measured one by at most this factor. The neighbours that are
tried show the better direction; anything beyond them is slower still."""


@dataclass(frozen=True, slots=True)
class ParameterChoice:
    """A module parameter's value and the arithmetic behind it."""

    name: str
    value: str
    why: str


@dataclass(frozen=True, slots=True)
class Candidate:
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

    candidate: Candidate
    rate: float
    stopped: bool = False
    runs: int = 1


def settings(knee: Knee, host: Host) -> tuple[ParameterChoice, ...]:
    """The parameters for a device. Where more is better, none is below OpenZFS's default."""
    return (*_requests(knee), *_groups(knee, host))


def _requests(knee: Knee) -> list[ParameterChoice]:
    if knee.size <= SMALL:
        why = f"requests of {format_size(SMALL)} reach {format_rate(knee.unmerged.bandwidth)}, and larger ones no more"
        return [ParameterChoice(MOST, str(max(knee.depth, _default(MOST))), why)]
    alone, size, depth = knee.alone, format_size(knee.size), str(knee.depth * AHEAD)
    merged = (
        f"requests of {size} reach {format_rate(knee.bandwidth)}, those of {format_size(SMALL)} only"
        f" {format_rate(knee.unmerged.bandwidth)}: even a small one takes {_time(knee.small.latency)}"
    )
    little = (
        f"Little's law: {format_rate(knee.slots * alone.size / alone.latency)} in requests of"
        f" {format_size(alone.size)} that take {_time(alone.latency)} each are {knee.slots:.1f} at once; as many"
        " again are on their way to it or back"
    )
    return [
        ParameterChoice(LIMIT, str(knee.size), merged),
        ParameterChoice(MOST, depth, little),
        ParameterChoice(LEAST, depth, f"the same as {MOST}, so that the depth is constant"),
        ParameterChoice(
            THROTTLE, "0", "writes that the throttle holds back are not in the queue and cannot be merged"
        ),
    ]


def _groups(knee: Knee, host: Host) -> list[ParameterChoice]:
    """Parameters for transaction groups so large that their end takes only a small share of the time."""
    end = SERIAL * knee.small.latency
    long = min(end / LOST, LONGEST)
    ends = f"a transaction group ends with about {SERIAL} writes one after another, of {_time(knee.small.latency)} each"
    default = int(default_of(DIRTY, host) or 0)
    dirty = min(most_dirty(host), math.ceil(long * knee.bandwidth))
    found = []
    if dirty > default:
        why = (
            f"{ends}: for that to be a {round(1 / LOST)}th of its time it has to last {_time(long)}, at"
            f" {format_rate(knee.bandwidth)}; memory must also hold the next group meanwhile"
        )
        found.append(ParameterChoice(DIRTY, str(dirty), why))
    timeout = min(LONGEST, math.ceil(end / LOST))
    if timeout > _default(TIMEOUT):
        found.append(
            ParameterChoice(
                TIMEOUT, str(timeout), f"{ends}: with a slow source, the timeout must not end it sooner"
            )
        )
    return found


def _default(name: str) -> int:
    return int(KNOWN[name].default or 0)


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


Profiles = Mapping[str, Mapping[str, str]]
"""Module parameters by profile."""


def candidates(knee: Knee, host: Host, largest: int, profiles: Profiles) -> list[Candidate]:
    """The candidates in the order to try them: calculated settings, neighbours, similar profiles, OpenZFS's defaults.
    They differ only in request size and depth, because a stream of a few seconds says nothing about transaction groups.

    ``largest`` is the device's maximum request size in bytes.
    """
    found = [Candidate("worked out", settings(knee, host))]
    groups = [one for one in found[0].choices if one.name in GROUPS]
    worked_out = knee.depth * AHEAD
    for what, size, depth in (
        ("half the depth", knee.size, worked_out // 2),
        ("twice the size, half the depth", knee.size * 2, worked_out // 2),
    ):
        if knee.size > SMALL and size <= min(largest, LARGEST):
            other = Candidate(what, _with(found[0].choices, knee, size, depth))
            if other.module not in [one.module for one in found]:
                found.append(other)
    for name, module in profiles.items():
        if _near(knee, module, largest) and all(
            _requested(one.module) != _requested(module) for one in found
        ):
            why = f"from profile {name}, which was faster than what was worked out"
            bound = most_dirty(host)
            theirs = [
                ParameterChoice(
                    key, str(min(int(value), bound)) if key == DIRTY and value.isdecimal() else value, why
                )
                for key, value in module.items()
            ]
            ours = [one for one in groups if one.name not in module]
            found.append(Candidate(f"as {name}", (*theirs, *ours)))
    return [*found, Candidate("OpenZFS's defaults")]


def _requested(module: Mapping[str, str]) -> tuple[str | None, ...]:
    return tuple(module.get(name) for name in (LIMIT, MOST, LEAST, THROTTLE))


def _near(knee: Knee, module: Mapping[str, str], largest: int) -> bool:
    """True if a profile suits a device like this one."""
    try:
        size, depth = int(module[LIMIT]), int(module[MOST])
    except (KeyError, ValueError):
        return False
    return size <= largest and knee.depth <= FAR * depth and depth <= FAR * knee.depth


def _with(
    choices: Sequence[ParameterChoice], knee: Knee, size: int, depth: int
) -> tuple[ParameterChoice, ...]:
    other = {LIMIT: size, MOST: depth, LEAST: depth}
    was = {LIMIT: knee.size, MOST: knee.depth * AHEAD, LEAST: knee.depth * AHEAD}
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
    return format_size(value) if name == LIMIT else str(value)


def contested(tries: Sequence[CandidateTrial]) -> list[int]:
    """The indexes of the two best trials if they are too close to call; the best one last. Else empty."""
    ended = sorted((one.rate, place) for place, one in enumerate(tries) if not one.stopped)
    two = ended[-2:]
    near = len(two) == 2 and two[1][0] < NOISE * two[0][0]
    return [place for _, place in two] if near else []


def both(first: CandidateTrial, second: CandidateTrial) -> CandidateTrial:
    """Combine two trials of one candidate into one: all bytes divided by all seconds."""
    return replace(first, rate=2 / (1 / first.rate + 1 / second.rate), runs=first.runs + second.runs)


def winner(tries: Sequence[CandidateTrial]) -> CandidateTrial:
    """The first trial, unless another that ran to its end was clearly faster. Raises ValueError if there is none.

    If some ran more than once, one of them: a single receive may have been lucky.
    """
    if not tries:
        raise ValueError("nothing was tried")
    runs = max(one.runs for one in tries)
    best, *others = [one for one in tries if one.runs == runs]
    for one in others:
        # The defaults win without a margin: changing nothing is the safest choice.
        margin = BETTER if one.candidate.choices else 1.0
        if not one.stopped and (best.stopped or one.rate > margin * best.rate):
            best = one
    return best


def advice(knee: Knee) -> str:
    """Advice on the recordsize of the source, in words; empty if it does not matter."""
    if knee.size <= SMALL:
        return ""
    alone, small = knee.alone, knee.small
    rate = (alone.size - small.size) / max(alone.latency - small.latency, 1e-6)
    half = max(small.latency - small.size / rate, 0.0) * rate
    record = next((size for size in (SMALL << step for step in range(4)) if size >= half), LARGEST_RECORD)
    if record <= SMALL:
        return ""
    return (
        f"recordsize={format_size(record)} at the source suits this device; it applies to files written from then on."
        f" A restore reads record by record, and below {format_size(round(half))} the fixed time of a request"
        " exceeds the time for its bytes"
    )
