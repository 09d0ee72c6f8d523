"""Calculates the parameters for reading a measured device, with the arithmetic. Pure.

What a device works on at once, it works on for reads as for writes, as far as is known: reads are not measured, because
the blocks of a blank device are not there, and a store answers for them without looking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zvault.core.tuning.alignment import TuningAdvice
from zvault.core.tuning.candidates import AGGREGATION_LIMIT, MOST_ACTIVE_PARAMETER, ParameterChoice
from zvault.core.tuning.parameters import KNOWN_PARAMETERS
from zvault.core.units import format_size

ASYNC_READS, SYNC_READS = "zfs_vdev_async_read_max_active", "zfs_vdev_sync_read_max_active"
SCRUB_READS, SCRUB_DELAY = "zfs_vdev_scrub_max_active", "zfs_vdev_nia_delay"
SEND_QUEUE, SCAN_LIMIT = "zfs_send_queue_length", "zfs_scan_vdev_limit"

READ_AHEAD_REQUESTS = 4
"""Requests' worth of data to read ahead for each request in flight: what waits can be merged, and a send needs some of
it in order before it goes on. On a model of slow disks a send with the default of 16 MiB in all, four requests, made
12.8 MiB/s, with 128 MiB 75."""

MOST_READ_AHEAD = 256 << 20


def derive_reading(module: Mapping[str, str]) -> tuple[ParameterChoice, ...]:
    """The parameters for reading a device whose parameters for writing are ``module``; none if no depth is in them.

    None is below OpenZFS's default.
    """
    try:
        depth = int(module[MOST_ACTIVE_PARAMETER])
        size = int(module.get(AGGREGATION_LIMIT) or KNOWN_PARAMETERS[AGGREGATION_LIMIT].default or 0)
    except (KeyError, ValueError):
        return ()
    ahead = min(MOST_READ_AHEAD, READ_AHEAD_REQUESTS * depth * size)
    same = f"as many as writes ({MOST_ACTIVE_PARAMETER}): reads were not measured"
    room = f"{READ_AHEAD_REQUESTS} requests of {format_size(size)} for each of {depth} in flight"
    found = [
        ParameterChoice(name, str(value), why)
        for name, value, why in (
            (ASYNC_READS, depth, same),
            (SYNC_READS, depth, same),
            (SCRUB_READS, depth, same),
            (SEND_QUEUE, ahead, room),
            (SCAN_LIMIT, ahead, room),
        )
        if value > int(KNOWN_PARAMETERS[name].default or 0)
    ]
    scrub = any(one.name == SCRUB_READS for one in found)
    why = "a scrub of a vault that nobody else uses has no reason to begin slowly"
    return (*found, *([ParameterChoice(SCRUB_DELAY, "0", why)] if scrub else []))


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
