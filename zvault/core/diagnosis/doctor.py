"""Finds a vault's bottleneck in the counters (observations.py): one verdict, its arithmetic, one setting. Pure.

The slowest stage limits a stream. It is the last stage whose input pipe is full; all later stages wait for bytes. If
it is ``zfs receive``, the vault is slow, and Little's law applies: in flight / latency x size = bandwidth. The verdict
names the cheapest of the three that can still grow: size before depth, because OpenZFS merges only requests that wait
in its queue (docs/explanation/tuning.md).
"""

from __future__ import annotations

from zvault.core.diagnosis.doctor_reads import diagnose_reads
from zvault.core.diagnosis.doctor_text import (
    Bottleneck,
    SettingChange,
    describe_disk_reads,
    describe_packets,
    format_known_size,
    format_percent,
    suggest_compressed_send,
)
from zvault.core.diagnosis.doctor_vault import AT_WORK, CPU_BOUND, diagnose_processors, diagnose_vault
from zvault.core.diagnosis.observations import Observations, StreamFlow, StreamStage, TcpPath
from zvault.core.units import format_duration, format_rate, format_size

FULL_PIPE_SHARE = 0.5
"""A pipe that is this full on average blocks its writer."""

BY_TURNS = (0.2, 0.8)
"""How full the receiver's pipe is on average while source and vault take turns at being the slower side."""

BUFFER_MARKS = (10, 90)
"""Percent full: an mbuffer that reached both values within seconds is too small."""


def diagnose_bottleneck(seen: Observations) -> Bottleneck:
    """Return the one verdict."""
    if seen.health == "SUSPENDED":
        return Bottleneck(
            "suspended",
            f"the pool of vault {seen.vault} is suspended: all I/O waits until its device is back",
            why=f"'zpool status {seen.pool}' names the device; once it is back, zvault resumes the pool by itself,"
            f" unless it has multihost=on: 'zvaultctl vault status {seen.vault}' says what it waits for",
        )
    if not seen.flows:
        if _read(seen):
            return diagnose_reads(seen)
        return diagnose_vault(seen, None) if _written(seen) else _nothing(seen)
    flow = max(seen.flows, key=lambda one: one.rate)
    stage = find_slowest_stage(flow)
    if _too_small(flow):
        return _buffer(seen, flow)
    if stage.kind == "receive":
        return diagnose_vault(seen, flow)
    say = {"limit": _limit, "source": _source, "ssh": _ssh}.get(stage.kind, _program)
    return say(seen, flow, stage)


def find_slowest_stage(flow: StreamFlow) -> StreamStage:
    """The slowest stage: the last one whose input is full, else the first. If the first has ended, the last."""
    full = [stage for stage in flow.stages[1:] if stage.full is not None and stage.full >= FULL_PIPE_SHARE]
    if full:
        return full[-1]
    return flow.stages[0] if flow.stages[0].cpu is not None else flow.stages[-1]


def _written(seen: Observations) -> bool:
    return any(disk.busy >= AT_WORK and disk.written for disk in seen.disks)


def _read(seen: Observations) -> bool:
    """True if it is read and hardly written: a scrub writes a little with each transaction group."""
    return any(disk.busy >= AT_WORK and disk.reads and disk.read > disk.written for disk in seen.disks)


def _nothing(seen: Observations) -> Bottleneck:
    text = f"no stream writes to vault {seen.vault}"
    if seen.down:
        text = f"vault {seen.vault} is down: no stream writes to it"
    if seen.last is None:
        return Bottleneck("nothing", text, why="ask again during a run; 'zvaultctl run' starts one")
    last = seen.last
    rate = f" ({format_rate(last.moved / last.seconds)})" if last.moved and last.seconds > 0 else ""
    moved = f"{format_size(last.moved)} in {format_duration(last.seconds)}{rate}"
    return Bottleneck(
        "nothing", f"{text}; its last run, of backup {last.backup}, moved {moved}", why=last.drift
    )


# The stream


def _too_small(flow: StreamFlow) -> bool:
    """True if mbuffer and the receiver's pipe alternate between full and empty."""
    fed = flow.stages[-1].full
    if flow.marks is None or fed is None or not BY_TURNS[0] < fed < BY_TURNS[1]:
        return False
    return flow.marks[0] <= BUFFER_MARKS[0] and flow.marks[1] >= BUFFER_MARKS[1]


def _buffer(seen: Observations, flow: StreamFlow) -> Bottleneck:
    low, high = flow.marks or (0, 100)
    return Bottleneck(
        "buffer",
        f"mbuffer bounds vault {seen.vault}: within seconds it was {low}% and {high}% full, so source and vault wait"
        f" for each other; the stream runs at {format_rate(flow.rate)}",
        SettingChange(
            "buffer",
            f"[stream] of profile {seen.profile}",
            format_known_size(seen.buffer),
            f'"{format_size(4 * seen.buffer)}"' if seen.buffer else "four times as much",
        ),
        "a larger buffer lets one side go on while the other pauses",
    )


def _limit(seen: Observations, flow: StreamFlow, stage: StreamStage) -> Bottleneck:
    if stage.cpu is not None and stage.cpu >= CPU_BOUND:
        return _program(seen, flow, stage)  # busy with work of its own, not waiting for the limit
    allowed = f" of {format_rate(flow.limit)} allowed" if flow.limit else ""
    return Bottleneck(
        "limit",
        f"the limit of backup {flow.backup} bounds vault {seen.vault}: it lets {format_rate(flow.rate)}{allowed}"
        f" through, and the pipe before it is {format_percent(stage.full)} full",
        SettingChange(
            "limit", f"[backup.{flow.backup}]", format_known_size(flow.limit), "more, or none at some hours"
        ),
        "all stages before the limit wait for it, and all stages after it wait for bytes",
    )


def _source(seen: Observations, flow: StreamFlow, stage: StreamStage) -> Bottleneck:
    rate = format_rate(flow.rate)
    if stage.cpu is not None and stage.cpu >= CPU_BOUND:
        return Bottleneck(
            "source",
            f"zfs send bounds vault {seen.vault}: it takes {format_percent(stage.cpu)} of one processor for {rate}",
            (knob := suggest_compressed_send(flow)),
            "blocks sent as they are on disk need no decompression, and large records mean fewer of them"
            if knob is not None
            else "blocks are sent as they are on disk already: with more 'transfers' several datasets are read at once",
        )
    if (found := diagnose_processors(seen, flow, rate)) is not None:
        return found
    disk = max(seen.source_disks, key=lambda one: one.busy, default=None)
    how = (
        f"; its disk {disk.name} is busy {format_percent(disk.busy)} of the time: {describe_disk_reads(disk)}"
        if disk
        else ""
    )
    return Bottleneck(
        "source",
        f"reading the source bounds vault {seen.vault}: zfs send delivers {rate}, and all later stages wait for"
        f" bytes{how}",
        SettingChange(
            "schedule", f"[backup.{flow.backup}]", None, "an hour at which the source is less busy"
        ),
        "no change to the vault helps: look at 'zpool iostat -lq' of the source's pool",
    )


def _ssh(seen: Observations, flow: StreamFlow, stage: StreamStage) -> Bottleneck:
    if stage.cpu is not None and stage.cpu >= CPU_BOUND:
        return Bottleneck(
            "ssh",
            f"ssh bounds vault {seen.vault}: it takes {format_percent(stage.cpu)} of one processor for"
            f" {format_rate(flow.rate)}",
            SettingChange("Ciphers", "ssh_config(5) of root", None, "aes128-gcm@openssh.com"),
            "one connection encrypts on one processor; with more 'transfers' each dataset has its own connection",
        )
    if stage.way is not None and stage.way.unsent >= FULL_PIPE_SHARE and stage.way.closed < FULL_PIPE_SHARE:
        return _network(seen, flow, stage, stage.way)
    return _far_source(seen, flow, stage) if stage is flow.stages[0] else _far_vault(seen, flow, stage)


def _network(seen: Observations, flow: StreamFlow, stage: StreamStage, way: TcpPath) -> Bottleneck:
    end = "from" if stage is flow.stages[0] else "to"
    text = (
        f"the network {end} {stage.host} bounds vault {seen.vault}: {describe_packets(way)}, and "
        f"{format_percent(way.unsent)} of the"
        " time more bytes wait to be sent"
    )
    if all(one.kind != "codec" for one in flow.stages):
        knob = SettingChange("compression", f"[host.{stage.host}]", None, '"zstd"')
        why = "fewer bytes take less time; blocks that are sent compressed do not shrink further"
        return Bottleneck("ssh", text, knob, why)
    now = seen.transfers
    knob = SettingChange("transfers", f"[vault.{seen.vault}]", str(now) if now else None, str((now or 1) + 1))
    return Bottleneck(
        "ssh", text, knob, "a lost packet slows down one connection only; the others keep their rate"
    )


def _far_source(seen: Observations, flow: StreamFlow, stage: StreamStage) -> Bottleneck:
    """The source on another host is slow; as far as is known, the network is not."""
    host, rate = stage.host, format_rate(flow.rate)
    if stage.way is None:
        return Bottleneck(
            "source",
            f"{host} or the network from it bounds vault {seen.vault}: {rate} arrive, ssh takes only"
            f" {format_percent(stage.cpu)} of one processor, and all later stages wait for bytes",
            None,
            f"look on {host}: 'zpool iostat -lq' shows whether its disks are busy, 'ss -ti' whether the network is",
        )
    return Bottleneck(
        "source",
        f"reading the source bounds vault {seen.vault}: {host} delivers {rate}, and "
        f"{format_percent(1 - stage.way.unsent)} of"
        f" the time its TCP has no bytes waiting to be sent: {describe_packets(stage.way)}",
        SettingChange(
            "schedule", f"[backup.{flow.backup}]", None, "an hour at which the source is less busy"
        ),
        f"no change to the network or the vault helps: look at 'zpool iostat -lq' on {host}",
    )


def _far_vault(seen: Observations, flow: StreamFlow, stage: StreamStage) -> Bottleneck:
    """The vault on another host is slow: ssh has bytes to send and cannot send them faster."""
    fed = (
        f"ssh takes {format_rate(flow.rate)} at {format_percent(stage.cpu)} of one processor, and the pipe before it is"
        f" {format_percent(stage.full)} full"
    )
    if stage.way is None:
        return Bottleneck(
            "ssh",
            f"the network to {stage.host} or that host bounds vault {seen.vault}: {fed}",
            None,
            f"run 'zvaultctl doctor' on {stage.host}: either the network or its pool takes no more",
        )
    return Bottleneck(
        "device",
        f"the vault's own host bounds vault {seen.vault}: {fed}, while {_no_more(stage.way)}",
        None,
        f"run 'zvaultctl doctor' on {stage.host}: its devices can be examined only there",
    )


def _no_more(way: TcpPath) -> str:
    """The evidence that the receiving host is the limit, not the network."""
    if way.closed >= FULL_PIPE_SHARE:
        return f"{format_percent(way.closed)} of the time its TCP receive window is full"
    return f"{format_percent(1 - way.unsent)} of the time TCP has no bytes waiting to be sent"


def _program(seen: Observations, flow: StreamFlow, stage: StreamStage) -> Bottleneck:
    name = stage.name
    knob = SettingChange("compression", "[host.…]", None, '"off"') if stage.kind == "codec" else None
    return Bottleneck(
        "processor",
        f"{name} bounds vault {seen.vault}: it takes {format_percent(stage.cpu)} of one processor at"
        f" {format_rate(flow.rate)}, and its input is {format_percent(stage.full)} full",
        knob,
        f"all stages before {name} wait for it, and all stages after it wait for bytes",
    )
