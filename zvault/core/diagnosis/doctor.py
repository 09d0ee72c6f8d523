"""What bounds a vault now, from what was counted (observations.py): one verdict, its arithmetic, one knob. Pure.

A stream is as fast as the stage that holds it up: the last one whose input is full, since what comes after it waits
for bytes. Where that is ``zfs receive``, the vault is slow, and Little's law says by what:
in flight / latency x size = bandwidth. Then the cheapest of the three is named that can still grow: size before
depth, since only what waits can be merged (docs/explanation/tuning.md).
"""

from __future__ import annotations

from zvault.core.diagnosis.doctor_text import Bottleneck, Knob, packets, percent, reads, written_size
from zvault.core.diagnosis.doctor_vault import AT_WORK, CPU_BOUND, at_the_vault, out_of_processors
from zvault.core.diagnosis.observations import Observations, Stage, StreamFlow, TcpPath
from zvault.core.units import format_duration, format_rate, format_size

FULL = 0.5
"""A pipe that is this full on average is waited for by who writes into it."""

BY_TURNS = (0.2, 0.8)
"""How full the receiver's pipe is on average, where now the source and now the vault holds it up."""

MARKS = (10, 90)
"""Percent of mbuffer: one that was as empty and as full within seconds is too small."""


def diagnose(seen: Observations) -> Bottleneck:
    """The one verdict."""
    if seen.health == "SUSPENDED":
        return Bottleneck(
            "suspended",
            f"the pool of vault {seen.vault} is suspended: nothing moves until its device is back",
            why=f"'zpool status {seen.pool}' names the device; 'zpool clear {seen.pool}' goes on once it is back",
        )
    if not seen.flows:
        return at_the_vault(seen, None) if _written(seen) else _nothing(seen)
    flow = max(seen.flows, key=lambda one: one.rate)
    stage = holding_up(flow)
    if _too_small(flow):
        return _buffer(seen, flow)
    if stage.kind == "receive":
        return at_the_vault(seen, flow)
    say = {"limit": _limit, "source": _source, "ssh": _ssh}.get(stage.kind, _program)
    return say(seen, flow, stage)


def holding_up(flow: StreamFlow) -> Stage:
    """The stage that the others wait for: the last one whose input is full, else the first, unless it has ended."""
    full = [stage for stage in flow.stages[1:] if stage.full is not None and stage.full >= FULL]
    if full:
        return full[-1]
    return flow.stages[0] if flow.stages[0].cpu is not None else flow.stages[-1]


def _written(seen: Observations) -> bool:
    return any(disk.busy >= AT_WORK and disk.written for disk in seen.disks)


def _nothing(seen: Observations) -> Bottleneck:
    text = f"nothing is under way on vault {seen.vault}"
    if seen.down:
        text = f"vault {seen.vault} is down: nothing is under way"
    if seen.last is None:
        return Bottleneck("nothing", text, why="ask while a run is under way, or begin one: 'zvaultctl run'")
    last = seen.last
    rate = f" ({format_rate(last.moved / last.seconds)})" if last.moved and last.seconds > 0 else ""
    moved = f"{format_size(last.moved)} in {format_duration(last.seconds)}{rate}"
    return Bottleneck(
        "nothing", f"{text}; its last run, of backup {last.backup}, moved {moved}", why=last.drift
    )


# The stream


def _too_small(flow: StreamFlow) -> bool:
    """Whether its buffer runs full and empty by turns, and with it the receiver."""
    fed = flow.stages[-1].full
    if flow.marks is None or fed is None or not BY_TURNS[0] < fed < BY_TURNS[1]:
        return False
    return flow.marks[0] <= MARKS[0] and flow.marks[1] >= MARKS[1]


def _buffer(seen: Observations, flow: StreamFlow) -> Bottleneck:
    low, high = flow.marks or (0, 100)
    return Bottleneck(
        "buffer",
        f"mbuffer bounds vault {seen.vault}: within seconds it was {low}% and {high}% full, so source and vault wait"
        f" for each other, at {format_rate(flow.rate)}",
        Knob(
            "buffer",
            f"[stream] of profile {seen.profile}",
            written_size(seen.buffer),
            f'"{format_size(4 * seen.buffer)}"' if seen.buffer else "four times as much",
        ),
        "with room for what one side does while the other pauses, both go on",
    )


def _limit(seen: Observations, flow: StreamFlow, stage: Stage) -> Bottleneck:
    if stage.cpu is not None and stage.cpu >= CPU_BOUND:
        return _program(seen, flow, stage)  # it waits for no leave, it works
    allowed = f" of {format_rate(flow.limit)} allowed" if flow.limit else ""
    return Bottleneck(
        "limit",
        f"the limit of backup {flow.backup} bounds vault {seen.vault}: {format_rate(flow.rate)} pass{allowed}, and"
        f" {percent(stage.full)} of the pipe before it is full",
        Knob("limit", f"[backup.{flow.backup}]", written_size(flow.limit), "more, or none at some hours"),
        "everything before it waits for leave, and everything after it for bytes",
    )


def _source(seen: Observations, flow: StreamFlow, stage: Stage) -> Bottleneck:
    rate = format_rate(flow.rate)
    if stage.cpu is not None and stage.cpu >= CPU_BOUND:
        return Bottleneck(
            "source",
            f"zfs send bounds vault {seen.vault}: it takes {percent(stage.cpu)} of one processor for {rate}",
            Knob("send", f"[backup.{flow.backup}]", None, "{ compressed = true, large_blocks = true }"),
            "what goes as it lies on the disk needs not be unpacked, and large records are fewer",
        )
    if (found := out_of_processors(seen, rate)) is not None:
        return found
    disk = max(seen.source_disks, key=lambda one: one.busy, default=None)
    how = f"; its {disk.name} is busy {percent(disk.busy)} of the time: {reads(disk)}" if disk else ""
    return Bottleneck(
        "source",
        f"reading the source bounds vault {seen.vault}: zfs send gives {rate}, and all after it wait for bytes{how}",
        Knob("schedule", f"[backup.{flow.backup}]", None, "an hour at which the source has less to do"),
        "nothing about the vault makes it faster: look at 'zpool iostat -lq' of the source's pool",
    )


def _ssh(seen: Observations, flow: StreamFlow, stage: Stage) -> Bottleneck:
    if stage.cpu is not None and stage.cpu >= CPU_BOUND:
        return Bottleneck(
            "ssh",
            f"ssh bounds vault {seen.vault}: it takes {percent(stage.cpu)} of one processor for"
            f" {format_rate(flow.rate)}",
            Knob("Ciphers", "ssh_config(5) of root", None, "aes128-gcm@openssh.com"),
            "one connection encrypts on one processor; several datasets at once ('transfers') have one each",
        )
    if stage.way is not None and stage.way.unsent >= FULL and stage.way.closed < FULL:
        return _network(seen, flow, stage, stage.way)
    return _far_source(seen, flow, stage) if stage is flow.stages[0] else _far_vault(seen, flow, stage)


def _network(seen: Observations, flow: StreamFlow, stage: Stage, way: TcpPath) -> Bottleneck:
    end = "from" if stage is flow.stages[0] else "to"
    text = (
        f"the network {end} {stage.host} bounds vault {seen.vault}: {packets(way)}, while {percent(way.unsent)} of the"
        " time more wait to be sent"
    )
    if all(one.kind != "codec" for one in flow.stages):
        knob = Knob("compression", f"[host.{stage.host}]", None, '"zstd"')
        why = "what is smaller is sooner there; blocks that are sent compressed as they are get no smaller"
        return Bottleneck("ssh", text, knob, why)
    now = seen.transfers
    knob = Knob("transfers", f"[vault.{seen.vault}]", str(now) if now else None, str((now or 1) + 1))
    return Bottleneck(
        "ssh", text, knob, "several connections lose less by a packet lost than one has it alone"
    )


def _far_source(seen: Observations, flow: StreamFlow, stage: Stage) -> Bottleneck:
    """What is read on another host: the network has time, as far as that is known."""
    host, rate = stage.host, format_rate(flow.rate)
    if stage.way is None:
        return Bottleneck(
            "source",
            f"what {host} sends bounds vault {seen.vault}: {rate} come, ssh takes only {percent(stage.cpu)} of one"
            " processor, and all after it wait for bytes",
            None,
            f"look on {host}: 'zpool iostat -lq' if its disks are busy, 'ss -ti' if the network is",
        )
    return Bottleneck(
        "source",
        f"reading the source bounds vault {seen.vault}: {host} gives {rate}, and {percent(1 - stage.way.unsent)} of"
        f" the time its TCP has sent all that it was given: {packets(stage.way)}",
        Knob("schedule", f"[backup.{flow.backup}]", None, "an hour at which the source has less to do"),
        f"nothing about the network or the vault makes it faster: look at 'zpool iostat -lq' on {host}",
    )


def _far_vault(seen: Observations, flow: StreamFlow, stage: Stage) -> Bottleneck:
    """What is written on another host: ssh is fed, and gets rid of no more."""
    fed = (
        f"ssh takes {format_rate(flow.rate)} at {percent(stage.cpu)} of one processor, and {percent(stage.full)} of the"
        " pipe before it is full"
    )
    if stage.way is None:
        return Bottleneck(
            "ssh",
            f"the way to {stage.host} bounds vault {seen.vault}: {fed}",
            None,
            f"run 'zvaultctl doctor' on {stage.host}: its network or its pool takes no more",
        )
    return Bottleneck(
        "device",
        f"the vault's own host bounds vault {seen.vault}: {fed}, while {_no_more(stage.way)}",
        None,
        f"run 'zvaultctl doctor' on {stage.host}: only there its devices can be looked at",
    )


def _no_more(way: TcpPath) -> str:
    """How it is seen that the network is not what takes no more."""
    if way.closed >= FULL:
        return f"{percent(way.closed)} of the time it leaves TCP no room for more"
    return f"{percent(1 - way.unsent)} of the time TCP has sent all that it was given"


def _program(seen: Observations, flow: StreamFlow, stage: Stage) -> Bottleneck:
    name = stage.name
    knob = Knob("compression", "[host.…]", None, '"off"') if stage.kind == "codec" else None
    return Bottleneck(
        "processor",
        f"{name} bounds vault {seen.vault}: it takes {percent(stage.cpu)} of one processor for"
        f" {format_rate(flow.rate)}, and its input is {percent(stage.full)} full",
        knob,
        f"all before {name} wait for it, and all after it for bytes",
    )
