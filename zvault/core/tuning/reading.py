"""Calculates the parameters for reading a measured device, with the arithmetic, and selects candidates to try. Pure.

Where no read of a device was measured, it is taken to work on as many reads at once as on writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zvault.core.tuning.alignment import TuningAdvice
from zvault.core.tuning.candidates import (
    AGGREGATION_LIMIT,
    DEFAULTS,
    MOST_ACTIVE_PARAMETER,
    REQUESTS_PER_WORKER,
    ParameterChoice,
    TuningCandidate,
)
from zvault.core.tuning.measurement import UNMERGED_WRITE, BandwidthKnee
from zvault.core.tuning.parameters import KNOWN_PARAMETERS
from zvault.core.tuning.store_guess import StoreGuess
from zvault.core.units import format_rate, format_size

ASYNC_READS, SYNC_READS = "zfs_vdev_async_read_max_active", "zfs_vdev_sync_read_max_active"
SCRUB_READS, SCRUB_DELAY = "zfs_vdev_scrub_max_active", "zfs_vdev_nia_delay"
SEND_QUEUE, SCAN_LIMIT = "zfs_send_queue_length", "zfs_scan_vdev_limit"

READ_AHEAD_REQUESTS = 4
"""Requests' worth of data to read ahead for each request in flight: what waits can be merged, and a send needs some of
it in order before it goes on. On a model of slow disks a send with the default of 16 MiB in all, four requests, made
12.8 MiB/s, with 128 MiB 75."""

MOST_READ_AHEAD = 256 << 20


SCRUB_PARAMETERS = frozenset({SCRUB_READS, SCRUB_DELAY, SCAN_LIMIT})
"""Those of a candidate that only a scrub uses; all others are for a send and for whoever reads files."""


def derive_reading(module: Mapping[str, str]) -> tuple[ParameterChoice, ...]:
    """The parameters for reading a device whose parameters for writing are ``module``; none if no depth is in them.

    None is below OpenZFS's default.
    """
    depth, size = _find_depth(module), _find_limit(module)
    if depth is None or size is None:
        return ()
    return _list_choices(depth, size, f"as many as writes ({MOST_ACTIVE_PARAMETER}): reads were not measured")


def guess_reading(guess: StoreGuess, module: Mapping[str, str]) -> tuple[ParameterChoice, ...]:
    """The parameters for reading a device in a store that was probed, as long as its own reads were not measured.

    None is below OpenZFS's default; ``module`` are the parameters of its writes.
    """
    why = (
        f"the probe of its store got {format_rate(guess.get_rate)} by gets of 8 MiB, nearly all of it by {guess.gets}"
        " at once"
    )
    return _list_choices(guess.reads, _find_limit(module) or 0, why)


def calculate_reading(knee: BandwidthKnee, module: Mapping[str, str]) -> tuple[ParameterChoice, ...]:
    """The parameters for reading a device whose reads have this ``knee``, beside the ``module`` of its writes.

    None is below OpenZFS's default, and reads are merged at least as far as writes are.
    """
    return _calculate(knee, module, knee.depth * REQUESTS_PER_WORKER, "")


def list_reading_candidates(
    knee: BandwidthKnee, module: Mapping[str, str], guess: StoreGuess | None = None
) -> list[TuningCandidate]:
    """The candidates for reading in the order to try them: as calculated, as the store's probe has it where there is a
    ``guess``, as many reads as writes, half the depth, and OpenZFS's defaults, which have no parameters.
    """
    worked_out = knee.depth * REQUESTS_PER_WORKER
    deep = _find_depth(module)
    found = [TuningCandidate("worked out", calculate_reading(knee, module))]
    probed = guess.reads if guess is not None else None
    for what, depth in (
        ("as its store's probe", probed),
        ("as deep as writes", deep),
        ("half the depth", worked_out // 2),
    ):
        if depth is not None:
            why = f"{worked_out} were worked out, but this was faster"
            other = TuningCandidate(what, _calculate(knee, module, depth, why))
            if other.module not in [{}, *(one.module for one in found)]:
                found.append(other)
    return [one for one in found if one.choices] + [TuningCandidate(DEFAULTS)]


def list_scrub_candidates(
    sends: TuningCandidate, candidates: Sequence[TuningCandidate]
) -> list[TuningCandidate]:
    """The candidates for a scrub: as deep as the ``sends`` that won, else as was worked out, and OpenZFS's defaults."""
    best = sends if sends.choices else candidates[0]
    choices = tuple(one for one in best.choices if one.name in SCRUB_PARAMETERS)
    found = [TuningCandidate("as deep as sends" if sends.choices else best.what, choices)] if choices else []
    return [*found, TuningCandidate(DEFAULTS)]


def combine_reading(sends: TuningCandidate, scrubs: TuningCandidate) -> tuple[ParameterChoice, ...]:
    """The parameters for reading: those for sends of the one that won there, those for a scrub of the other one."""
    return (
        *(one for one in sends.choices if one.name not in SCRUB_PARAMETERS),
        *(one for one in scrubs.choices if one.name in SCRUB_PARAMETERS),
    )


def _calculate(
    knee: BandwidthKnee, module: Mapping[str, str], depth: int, why: str
) -> tuple[ParameterChoice, ...]:
    alone, limit = knee.alone, _find_limit(module) or 0
    little = (
        f"Little's law: {format_rate(knee.slots * alone.size / alone.latency)} of reads in requests of"
        f" {format_size(alone.size)} that take {alone.latency * 1000:.3g} ms each are {knee.slots:.1f} at once; as many"
        " again are on their way to it or back"
    )
    size = max(knee.size, limit)
    chosen = _list_choices(depth, size, why or little)
    if knee.size <= max(limit, UNMERGED_WRITE):
        return chosen
    merged = (
        f"reads of {format_size(knee.size)} reach {format_rate(knee.bandwidth)}, those of"
        f" {format_size(UNMERGED_WRITE)} only {format_rate(knee.unmerged.bandwidth)}"
    )
    return (ParameterChoice(AGGREGATION_LIMIT, str(knee.size), merged), *chosen)


def _list_choices(depth: int, size: int, deep: str) -> tuple[ParameterChoice, ...]:
    """Those of ``depth`` reads in requests of ``size`` bytes that are above OpenZFS's default; ``deep`` says why."""
    ahead = min(MOST_READ_AHEAD, READ_AHEAD_REQUESTS * depth * size)
    room = f"{READ_AHEAD_REQUESTS} requests of {format_size(size)} for each of {depth} in flight"
    found = [
        ParameterChoice(name, str(value), why)
        for name, value, why in (
            (ASYNC_READS, depth, deep),
            (SYNC_READS, depth, deep),
            (SCRUB_READS, depth, deep),
            (SEND_QUEUE, ahead, room),
            (SCAN_LIMIT, ahead, room),
        )
        if value > int(KNOWN_PARAMETERS[name].default or 0)
    ]
    scrub = any(one.name == SCRUB_READS for one in found)
    why = "a scrub of a vault that nobody else uses has no reason to begin slowly"
    return (*found, *([ParameterChoice(SCRUB_DELAY, "0", why)] if scrub else []))


def _find_depth(module: Mapping[str, str]) -> int | None:
    """How many writes go at once with these parameters; None where they do not say."""
    text = module.get(MOST_ACTIVE_PARAMETER, "")
    return int(text) if text.isascii() and text.isdecimal() else None


def _find_limit(module: Mapping[str, str]) -> int | None:
    """Bytes up to which requests are merged with these parameters; None for a text that is no number."""
    text = module.get(AGGREGATION_LIMIT) or KNOWN_PARAMETERS[AGGREGATION_LIMIT].default or "0"
    return int(text) if text.isascii() and text.isdecimal() else None


def advise_on_reads(profile: str, devices: Sequence[str], reading: Mapping[str, str]) -> list[TuningAdvice]:
    """Advice for a vault whose devices are behind a network, and are read as OpenZFS does by default; else none.

    ``devices`` are those of its configuration, ``reading`` the parameters that its profile has for reading.
    """
    default = int(KNOWN_PARAMETERS[ASYNC_READS].default or 0)
    depth = reading.get(ASYNC_READS, "")
    if not devices or (depth.isdecimal() and int(depth) > default):
        return []
    return [
        TuningAdvice(
            tuple(devices),
            f'set profile = "auto", or {ASYNC_READS} in [reading] of the profile',
            f"with profile {profile} a restore and a scrub have {default} reads at the device at a time; on a model of"
            " an object store they took ten times as long as with 32",
        )
    ]


def advise_on_measuring_reads(vault: str, devices: Sequence[str]) -> TuningAdvice:
    """Advice for a vault that zvault tunes by measuring it, and whose reads were never measured."""
    return TuningAdvice(
        tuple(devices),
        f"run 'zvaultctl tune measure {vault}'",
        "its reads were not measured: a restore and a scrub have as many at the device at a time as its writes",
    )


def advise_on_probing(vault: str, devices: Sequence[str]) -> TuningAdvice:
    """Advice for a vault that zvault tunes by measuring it, and whose object stores nobody probed with speeds."""
    return TuningAdvice(
        tuple(devices),
        f"run 'zvaultctl blockstore probe {vault}'",
        "a measurement of the device sees its journal, not the store: the probe tells how many puts and gets at once"
        " are worth it, and the next 'vault up' begins with that",
    )
