"""What bounds a vault now, from what was counted (core/vitals.py): one verdict, its arithmetic, and one knob. Pure.

A stream is as fast as the stage that holds it up: the last one whose input is full, since what comes after it waits
for bytes. Where that is ``zfs receive``, the vault is slow, and Little's law says by what:
in flight / latency x size = bandwidth. Then the cheapest of the three is named that can still grow: size before
depth, since only what waits can be merged (docs/explanation/tuning.md).
"""

from __future__ import annotations

from zvault.core.doctor_vault import AT_WORK, CPU_BOUND, at_the_vault
from zvault.core.doctor_words import Knob, Verdict, percent, reads, written_size
from zvault.core.units import format_duration, format_rate, format_size
from zvault.core.vitals import Flow, Stage, Vitals

FULL = 0.5
"""A pipe that is this full on average is waited for by who writes into it."""

BY_TURNS = (0.2, 0.8)
"""How full the receiver's pipe is on average, where now the source and now the vault holds it up."""

MARKS = (10, 90)
"""Percent of mbuffer: one that was as empty and as full within seconds is too small."""


def diagnose(seen: Vitals) -> Verdict:
    """The one verdict."""
    if seen.health == "SUSPENDED":
        return Verdict(
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


def holding_up(flow: Flow) -> Stage:
    """The stage that the others wait for: the last one whose input is full, else the first, unless it has ended."""
    full = [stage for stage in flow.stages[1:] if stage.full is not None and stage.full >= FULL]
    if full:
        return full[-1]
    return flow.stages[0] if flow.stages[0].cpu is not None else flow.stages[-1]


def _written(seen: Vitals) -> bool:
    return any(disk.busy >= AT_WORK and disk.written for disk in seen.disks)


def _nothing(seen: Vitals) -> Verdict:
    text = f"nothing is under way on vault {seen.vault}"
    if seen.last is None:
        return Verdict("nothing", text, why="ask while a run is under way, or begin one: 'zvaultctl run'")
    last = seen.last
    rate = f" ({format_rate(last.moved / last.seconds)})" if last.moved and last.seconds > 0 else ""
    moved = f"{format_size(last.moved)} in {format_duration(last.seconds)}{rate}"
    return Verdict("nothing", f"{text}; its last run, of backup {last.backup}, moved {moved}", why=last.drift)


# The stream


def _too_small(flow: Flow) -> bool:
    """Whether its buffer runs full and empty by turns, and with it the receiver."""
    fed = flow.stages[-1].full
    if flow.marks is None or fed is None or not BY_TURNS[0] < fed < BY_TURNS[1]:
        return False
    return flow.marks[0] <= MARKS[0] and flow.marks[1] >= MARKS[1]


def _buffer(seen: Vitals, flow: Flow) -> Verdict:
    low, high = flow.marks or (0, 100)
    return Verdict(
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


def _limit(seen: Vitals, flow: Flow, stage: Stage) -> Verdict:
    if stage.cpu is not None and stage.cpu >= CPU_BOUND:
        return _program(seen, flow, stage)  # it waits for no leave, it works
    allowed = f" of {format_rate(flow.limit)} allowed" if flow.limit else ""
    return Verdict(
        "limit",
        f"the limit of backup {flow.backup} bounds vault {seen.vault}: {format_rate(flow.rate)} pass{allowed}, and"
        f" {percent(stage.full)} of the pipe before it is full",
        Knob("limit", f"[backup.{flow.backup}]", written_size(flow.limit), "more, or none at some hours"),
        "everything before it waits for leave, and everything after it for bytes",
    )


def _source(seen: Vitals, flow: Flow, stage: Stage) -> Verdict:
    rate = format_rate(flow.rate)
    if stage.cpu is not None and stage.cpu >= CPU_BOUND:
        return Verdict(
            "source",
            f"zfs send bounds vault {seen.vault}: it takes {percent(stage.cpu)} of one processor for {rate}",
            Knob("send", f"[backup.{flow.backup}]", None, "{ compressed = true, large_blocks = true }"),
            "what goes as it lies on the disk needs not be unpacked, and large records are fewer",
        )
    disk = max(seen.source_disks, key=lambda one: one.busy, default=None)
    how = f"; its {disk.name} is busy {percent(disk.busy)} of the time: {reads(disk)}" if disk else ""
    return Verdict(
        "source",
        f"reading the source bounds vault {seen.vault}: zfs send gives {rate}, and all after it wait for bytes{how}",
        Knob("schedule", f"[backup.{flow.backup}]", None, "an hour at which the source has less to do"),
        "nothing about the vault makes it faster: look at 'zpool iostat -lq' of the source's pool",
    )


def _ssh(seen: Vitals, flow: Flow, stage: Stage) -> Verdict:
    rate, first = format_rate(flow.rate), stage is flow.stages[0]
    if stage.cpu is not None and stage.cpu >= CPU_BOUND:
        return Verdict(
            "ssh",
            f"ssh bounds vault {seen.vault}: it takes {percent(stage.cpu)} of one processor for {rate}",
            Knob("Ciphers", "ssh_config(5) of root", None, "aes128-gcm@openssh.com"),
            "one connection encrypts on one processor; several datasets at once ('transfers') have one each",
        )
    if first:
        return Verdict(
            "source",
            f"what {flow.source or 'the source'} sends bounds vault {seen.vault}: {rate} come, ssh takes only"
            f" {percent(stage.cpu)} of one processor, and all after it wait for bytes",
            None,
            f"look on {flow.source or 'the source'}: 'zpool iostat -lq' if its disks are busy, 'ss -ti' if the"
            " network is",
        )
    return Verdict(
        "ssh",
        f"the way to the vault's host bounds vault {seen.vault}: ssh takes {rate} at {percent(stage.cpu)} of one"
        f" processor, and {percent(stage.full)} of the pipe before it is full",
        None,
        "run 'zvaultctl doctor' on the vault's host: its network or its pool takes no more",
    )


def _program(seen: Vitals, flow: Flow, stage: Stage) -> Verdict:
    name = stage.name
    knob = Knob("compression", "[host.…]", None, '"off"') if stage.kind == "codec" else None
    return Verdict(
        "processor",
        f"{name} bounds vault {seen.vault}: it takes {percent(stage.cpu)} of one processor for"
        f" {format_rate(flow.rate)}, and its input is {percent(stage.full)} full",
        knob,
        f"all before {name} wait for it, and all after it for bytes",
    )
