"""From what was measured of a device to module parameters, each with its arithmetic; and which of them to try out.

The model: a request costs a fixed time and its bytes, and the device works on so many side by side (core/measure.py).
A transaction group ends with small writes that wait for each other, in which no data go.
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
"""core/tuning.py gives it to devices that rotate under its other name."""
MOST, LEAST = "zfs_vdev_async_write_max_active", "zfs_vdev_async_write_min_active"
THROTTLE = "zio_dva_throttle_enabled"
TIMEOUT = "zfs_txg_timeout"
GROUPS = (DIRTY, TIMEOUT)

SERIAL = 20
"""Writes one after another at the end of a transaction group, about: the levels of its tree, its space maps, the labels
with their flushes. On a model of slow disks, 35 ms a request, a group's end took 0.9 s."""

LOST = 0.05
"""The part of the time that may go to them."""

LONGEST = 30
"""Seconds a transaction group may take at most: what a crash costs of a receive is received again."""

LARGEST_RECORD = 1 << 20
"""Bytes: the largest recordsize to advise. Larger ones were slower again in a published report."""

BETTER = 1.05
"""What another candidate must have, to be taken for the one that was worked out: less is noise."""

NOISE = 1.2
"""Two receives with the same settings may differ by so much: the two best are tried again where they are this near."""

MORE = "a few more at once"
"""A request that already waits in the device begins while the answer to another is on its way. On a model of slow disks
that works on 4 at once, groups of 1.2 GB were written out with 108 to 115 MiB/s by 4, with 136 by 5, with 137 by 6."""

FAR = 2
"""How many times as deep or as shallow as was measured a profile may be to be tried. Its neighbours that are tried show
which way is better; what lies beyond them is slower still."""


@dataclass(frozen=True, slots=True)
class ParameterChoice:
    """A module parameter's value, and the arithmetic it comes from."""

    name: str
    value: str
    why: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """Settings to try out; none are OpenZFS's defaults. ``what`` says in words how they differ."""

    what: str
    choices: tuple[ParameterChoice, ...] = ()

    @property
    def module(self) -> dict[str, str]:
        """Values by parameter."""
        return {one.name: one.value for one in self.choices}


@dataclass(frozen=True, slots=True)
class CandidateTrial:
    """A candidate that was tried out: bytes a second, or, ``stopped``, that it had no more than that."""

    candidate: Candidate
    rate: float
    stopped: bool = False


def settings(knee: Knee, host: Host) -> tuple[ParameterChoice, ...]:
    """The parameters for a device, none of them below what OpenZFS has by itself where more is better."""
    return (*_requests(knee), *_groups(knee, host))


def _requests(knee: Knee) -> list[ParameterChoice]:
    if knee.size <= SMALL:
        why = f"requests of {format_size(SMALL)} have {format_rate(knee.unmerged.bandwidth)}, and larger ones no more"
        return [ParameterChoice(MOST, str(max(knee.depth, _default(MOST))), why)]
    alone, size = knee.alone, format_size(knee.size)
    merged = (
        f"requests of {size} have {format_rate(knee.bandwidth)}, of {format_size(SMALL)} only"
        f" {format_rate(knee.unmerged.bandwidth)}: each takes {_time(knee.small.latency)}, however small"
    )
    little = (
        f"Little's law: {format_rate(knee.slots * alone.size / alone.latency)} in requests of"
        f" {format_size(alone.size)} that take {_time(alone.latency)} each are {knee.slots:.1f} at once; what is sent"
        " beyond that waits in the device, where nothing is merged any more"
    )
    return [
        ParameterChoice(LIMIT, str(knee.size), merged),
        ParameterChoice(MOST, str(knee.depth), little),
        ParameterChoice(LEAST, str(knee.depth), f"the same as {MOST}, so that it is the depth at any time"),
        ParameterChoice(
            THROTTLE, "0", "what the throttle holds back is not in the queue, and cannot be merged"
        ),
    ]


def _groups(knee: Knee, host: Host) -> list[ParameterChoice]:
    """How much a transaction group holds: enough that its end is a small part of it."""
    end = SERIAL * knee.small.latency
    long = min(end / LOST, LONGEST)
    ends = f"a transaction group ends with about {SERIAL} writes one after another, of {_time(knee.small.latency)} each"
    default = int(default_of(DIRTY, host) or 0)
    dirty = min(most_dirty(host), math.ceil(long * knee.bandwidth))
    found = []
    if dirty > default:
        why = (
            f"{ends}: for that to be a {round(1 / LOST)}th of its time it has to last {_time(long)}, at"
            f" {format_rate(knee.bandwidth)}; while one is written the next one takes its place in memory"
        )
        found.append(ParameterChoice(DIRTY, str(dirty), why))
    timeout = min(LONGEST, math.ceil(end / LOST))
    if timeout > _default(TIMEOUT):
        found.append(ParameterChoice(TIMEOUT, str(timeout), f"{ends}: a slow source must not end it sooner"))
    return found


def _default(name: str) -> int:
    return int(KNOWN[name].default or 0)


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


Profiles = Mapping[str, Mapping[str, str]]
"""Module parameters by profile."""


def candidates(knee: Knee, host: Host, largest: int, profiles: Profiles) -> list[Candidate]:
    """What to try out, in this order: what was worked out, its neighbours, profiles in files that are near it, and
    OpenZFS's defaults last. They differ in their requests: a stream of seconds says nothing about transaction groups.

    ``largest`` is the most bytes in one request of the device.
    """
    found = [Candidate("worked out", settings(knee, host))]
    groups = [one for one in found[0].choices if one.name in GROUPS]
    for what, size, depth in (
        (MORE, knee.size, knee.depth + max(1, knee.depth // 4)),
        ("twice the size", knee.size * 2, knee.depth),
        ("half the depth", knee.size, knee.depth // 2),
        ("twice the depth", knee.size, knee.depth * 2),
    ):
        if knee.size > SMALL and size <= min(largest, LARGEST) and depth >= 1:
            other = Candidate(what, _with(found[0].choices, knee, size, depth))
            if other.module not in [one.module for one in found]:
                found.append(other)
    for name, module in profiles.items():
        if _near(knee, module, largest) and all(
            _requested(one.module) != _requested(module) for one in found
        ):
            why = f"that is the profile {name}'s, which was faster than what was worked out"
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
    """Whether a profile is one for a device like this."""
    try:
        size, depth = int(module[LIMIT]), int(module[MOST])
    except (KeyError, ValueError):
        return False
    return size <= largest and knee.depth <= FAR * depth and depth <= FAR * knee.depth


def _with(
    choices: Sequence[ParameterChoice], knee: Knee, size: int, depth: int
) -> tuple[ParameterChoice, ...]:
    other = {LIMIT: size, MOST: depth, LEAST: depth}
    was = {LIMIT: knee.size, MOST: knee.depth, LEAST: knee.depth}
    return tuple(
        ParameterChoice(
            one.name,
            str(other[one.name]),
            f"worked out were {_figure(one.name, was[one.name])}, and this was faster",
        )
        if one.name in other and other[one.name] != was[one.name]
        else one
        for one in choices
    )


def _figure(name: str, value: int) -> str:
    return format_size(value) if name == LIMIT else str(value)


def contested(tries: Sequence[CandidateTrial]) -> list[int]:
    """The places of the two best where one receive is not enough to tell which is better, the best one last."""
    ended = sorted((one.rate, place) for place, one in enumerate(tries) if not one.stopped)
    two = ended[-2:]
    near = len(two) == 2 and two[1][0] < NOISE * two[0][0]
    return [place for _, place in two] if near else []


def both(first: CandidateTrial, second: CandidateTrial) -> CandidateTrial:
    """Two tries of one candidate as one: all bytes by all seconds."""
    return replace(first, rate=2 / (1 / first.rate + 1 / second.rate))


def winner(tries: Sequence[CandidateTrial]) -> CandidateTrial:
    """The first, unless another that ran to its end was clearly faster. Raises ValueError where none was tried."""
    if not tries:
        raise ValueError("nothing was tried")
    best = tries[0]
    for one in tries[1:]:
        # The defaults need not be better by a margin: whoever changes nothing does no harm.
        margin = BETTER if one.candidate.choices else 1.0
        if not one.stopped and (best.stopped or one.rate > margin * best.rate):
            best = one
    return best


def advice(knee: Knee) -> str:
    """What the records that are sent should be like, in words; empty where it does not matter."""
    if knee.size <= SMALL:
        return ""
    alone, small = knee.alone, knee.small
    rate = (alone.size - small.size) / max(alone.latency - small.latency, 1e-6)
    half = max(small.latency - small.size / rate, 0.0) * rate
    record = next((size for size in (SMALL << step for step in range(4)) if size >= half), LARGEST_RECORD)
    if record <= SMALL:
        return ""
    return (
        f"recordsize={format_size(record)} at the source suits this device, for files that are written from then on:"
        f" they are read back record by record, and below {format_size(round(half))} a request takes longer for itself"
        " than for its bytes"
    )
