"""Finds what bounds a vault that is only read: a restore, a scrub, a verification. Pure; see doctor.py."""

from __future__ import annotations

from zvault.core.diagnosis.doctor_text import Bottleneck, SettingChange, describe_disk_reads, format_percent
from zvault.core.diagnosis.doctor_vault import (
    FEW_WRITES,
    NEAR_BANDWIDTH_SHARE,
    NEAR_MAXIMUM_SHARE,
    SIZE_MATTERS_LATENCY,
    diagnose_processors,
)
from zvault.core.diagnosis.observations import DiskRequests, Observations
from zvault.core.tuning.reading import ASYNC_READS, SCRUB_READS, SYNC_READS
from zvault.core.units import format_rate

READ_DEPTHS = (ASYNC_READS, SCRUB_READS, SYNC_READS)
"""The parameters that bound reads at a device: those of a send, of a scrub, and those that somebody waits for."""

BESIDES = 1.5
"""How many times a limit may be in flight: some reads of another kind are there besides."""


def diagnose_reads(seen: Observations) -> Bottleneck:
    """The bottleneck of a vault that nothing is written to, and that is read all the time."""
    disk = max(seen.disks, key=lambda one: one.reads_in_flight)
    rate = format_rate(_rate(disk))
    found = diagnose_processors(seen, None, rate, besides=disk.reads_in_flight < 1)
    return found or _depth(seen, disk) or _device(seen, disk)


def _rate(disk: DiskRequests) -> float:
    """Bytes a second that are read from it."""
    return disk.read / disk.seconds if disk.seconds > 0 else 0.0


def _depth(seen: Observations, disk: DiskRequests) -> Bottleneck | None:
    """Whether the few reads in flight are all that a parameter allows, and the device was seen to read more."""
    if seen.measured_reads is not None and _rate(disk) >= NEAR_BANDWIDTH_SHARE * seen.measured_reads:
        return None
    took = disk.read_time / disk.reads if disk.reads else 0.0
    if took < SIZE_MATTERS_LATENCY:
        return None
    flying = disk.reads_in_flight
    limits = [(seen.parameters[name], name) for name in READ_DEPTHS if name in seen.parameters]
    near = [one for one in limits if NEAR_MAXIMUM_SHARE * one[0] <= flying <= BESIDES * one[0]]
    if not near:
        return None
    most, name = min(near)
    wanted = seen.wanted.get(name, 0)
    if flying > FEW_WRITES and 0 < wanted <= most:
        return None
    return Bottleneck(
        "queue-depth",
        f"the depth of its reads bounds vault {seen.vault}: {describe_disk_reads(disk)}, and only {most} may be in"
        " flight",
        SettingChange(name, f"[reading] of profile {seen.profile}", str(most), str(max(wanted, 2 * most))),
        "it is in force while zvault restores, verifies or scrubs; storage behind a network handles several reads at"
        " a time",
    )


def _device(seen: Observations, disk: DiskRequests) -> Bottleneck:
    best = f" (measured: {format_rate(seen.measured_reads)})" if seen.measured_reads is not None else ""
    return Bottleneck(
        "object-store" if seen.store else "device",
        f"vault {seen.vault} is only read, and its device bounds that: {disk.name} delivers no more than"
        f" {describe_disk_reads(disk)}{best}, and is busy {format_percent(disk.busy)} of the time",
        None,
        "no parameter holds its reads back",
    )
