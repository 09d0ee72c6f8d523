"""Words for the doctor's verdicts: Little's law, shares, times, and the setting to change. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from zvault.core.diagnosis.observations import DiskRequests, Observations, StreamFlow, TcpPath
from zvault.core.tuning.tuning import AGGREGATION_LIMITS, DIRTY_DATA_PARAMETER
from zvault.core.units import format_rate, format_size

BottleneckKind = Literal[
    "nothing",
    "suspended",
    "limit",
    "source",
    "ssh",
    "buffer",
    "receive",
    "processor",
    "txg-sync",
    "request-size",
    "queue-depth",
    "reads",
    "device",
    "object-store",
]


@dataclass(frozen=True, slots=True)
class SettingChange:
    """The one setting to change: its name, its place in the configuration, its value now and the value to try."""

    name: str
    where: str
    now: str | None
    value: str | None


def suggest_compressed_send(flow: StreamFlow | None) -> SettingChange | None:
    """The setting that has blocks sent as they are on disk; None where that is set already, or nobody knows."""
    if flow is None or not flow.send_off:
        return None
    value = ", ".join(f"{key} = true" for key in flow.send_off)
    return SettingChange("send", f"[backup.{flow.backup}]", None, f"{{ {value} }}")


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """A vault's bottleneck: ``sentence`` has the arithmetic, ``knob`` is the setting to change, ``why`` it helps."""

    bound: BottleneckKind
    sentence: str
    knob: SettingChange | None = None
    why: str = ""


def suggest_module_parameter(seen: Observations, name: str, value: int) -> SettingChange:
    """A parameter in the profile's table [module]."""
    big = name in {*AGGREGATION_LIMITS.values(), DIRTY_DATA_PARAMETER}
    now = seen.parameters.get(name)
    return SettingChange(
        name,
        f"[module] of profile {seen.profile}",
        None if now is None else format_size(now) if big else str(now),
        f'"{format_size(value)}"' if big else str(value),
    )


def describe_disk_writes(disk: DiskRequests) -> str:
    """Little's law of a device's writes."""
    if disk.latency is None or disk.size is None:
        return f"no write ended in {format_latency(disk.seconds)}"
    return f"{format_littles_law(disk.in_flight, disk.latency, disk.size)} = {format_rate(disk.rate)}"


def format_littles_law(flying: float, latency: float, size: float) -> str:
    """``4.0 in flight / 105ms x 4M``; seconds and bytes."""
    return f"{flying:.1f} in flight / {format_latency(latency)} x {format_size(round(size))}"


def format_latency(value: float | None) -> str:
    """A time as ``zpool iostat -l`` prints it: ``22ms``, ``480us``, ``1.2s``."""
    if value is None:
        return "?"
    if value >= 1:
        return f"{value:.1f}s"
    return f"{value * 1e3:.0f}ms" if value >= 0.001 else f"{value * 1e6:.0f}us"


def format_percent(value: float | None) -> str:
    """``98%``; a ``?`` for what is not known."""
    return "?" if value is None else f"{value:.0%}"


def format_known_size(value: int | None) -> str | None:
    """A size, where it is known."""
    return None if value is None else format_size(value)


def describe_packets(way: TcpPath) -> str:
    """Little's law of a connection's packets."""
    if not way.segment or way.rtt <= 0:
        return "figures about its packets are missing"
    flying = way.flying / way.segment
    return f"{format_littles_law(flying, way.rtt, way.segment)} = {format_rate(way.flying / way.rtt)}"


def describe_disk_reads(disk: DiskRequests) -> str:
    """Little's law of a device's reads."""
    if not disk.reads or disk.seconds <= 0:
        return "nothing was read from it"
    size, took = disk.read / disk.reads, disk.read_time / disk.reads
    return f"{format_littles_law(disk.reads_in_flight, took, size)} = {format_rate(disk.read / disk.seconds)}"
