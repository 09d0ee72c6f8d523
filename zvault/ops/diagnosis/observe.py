"""A vault watched for some seconds: what core/doctor.py is to judge. Changes nothing.

Counters are read twice, some seconds apart, by child processes with deadlines: a vault whose pool hangs is told of too.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, TypeVar

from zvault.config.schema import Vault
from zvault.core.address import Address
from zvault.core.diagnosis import observations
from zvault.core.diagnosis.observations import (
    Disk,
    Group,
    Kind,
    LastRun,
    Observations,
    Queue,
    Stage,
    StreamFlow,
    TcpPath,
)
from zvault.core.errors import ToolFailed, ZvaultError
from zvault.devices import queue
from zvault.ops.context import Context
from zvault.ops.state.clients import Clients
from zvault.ops.state.records import Records
from zvault.ops.stream.stream import ActiveStream
from zvault.ops.tuning import measurements
from zvault.ops.vaults.vault import Vaults
from zvault.system import ssh, tcp_info
from zvault.system.process.runner import Runner
from zvault.system.process.sampler import sampler_argv
from zvault.zfs.gate.process import is_gate
from zvault.zfs.pool import module_parameters, statistics
from zvault.zfs.pool.pool import Zpool

LOOK_DEADLINE = 5.0
"""Seconds that a look at a pool may take beyond the time that is watched."""

SAMPLE_DEADLINE = 30.0
"""The same of the counters of this host, which ask no pool: it may have no processor left, and is asked for that."""

EVERY = 0.5
"""Seconds between two looks at OpenZFS's queue, which tells only of that moment."""

WAY_LOOKS = 8
"""How often TCP's connections to another host are looked at, at most."""

ENOUGH = 3
"""Looks at them that tell something, however long they take."""

T = TypeVar("T")


@dataclass
class _Place:
    """Where a vault's bytes go: block devices below its pool, and whether that answers."""

    health: str | None = None
    devices: list[str] = field(default_factory=list)

    @property
    def answers(self) -> bool:
        return self.health is not None and self.health != "SUSPENDED"


@dataclass
class _Counted:
    """What OpenZFS counted meanwhile."""

    queue: Queue | None = None
    request: float | None = None
    groups: tuple[Group, ...] = ()
    waits: dict[str, int] = field(default_factory=dict)


async def examine(
    context: Context, vaults: Vaults, vault: Vault, seconds: float, last: LastRun | None = None
) -> Observations:
    """Watch a vault for some seconds."""
    profile = measurements.profile_of(context, vault)
    flows = [one for one in context.activity.streams.values() if one.vault == vault.name]
    place = await _place(context.clients.zpool, vaults, vault)
    sources = await _source_devices(context, flows)
    pids = [pid for flow in flows for _, pid in flow.progress.programs]
    pool = vault.pool if place.answers and vault.host is None else None
    sampled, counted, ways = await asyncio.gather(
        _sample(context.env.runner, seconds, pids, [*place.devices, *sources]),
        _count(context.env.runner, pool, seconds),
        _ways(context, flows, seconds),
    )
    looks, threads, hz = sampled["looks"], sampled["threads"], sampled["hz"]
    disks = {one: observations.disk(looks, one) for one in [*place.devices, *sources]}
    host = await _soon(module_parameters.look(context.env.runner))
    values = {key: one.value for key, one in host.parameters.items()} if host is not None else {}
    return Observations(
        vault.name,
        vault.pool,
        vault.profile,
        observations.span(looks),
        health=place.health,
        flows=tuple(_flow(context, one, looks, hz, ways) for one in flows),
        disks=_known(disks, place.devices),
        source_disks=_known(disks, sources),
        queue=counted.queue,
        request=counted.request,
        largest=_largest(place.devices),
        rotational=any(queue.rotational(f"/dev/{device}") for device in place.devices),
        store=any(
            device.spec.split(" ")[0].lower().startswith(("nbdkit:s3", "s3", "zvault:"))
            for device in vault.device
        ),
        measured=_measured(context.records, vault),
        buffer=profile.stream.buffer,
        transfers=vault.transfers,
        groups=counted.groups,
        waits=counted.waits,
        threads=_threads(threads, looks, hz),
        idle=observations.idle(looks),
        memory=host.memory if host is not None else None,
        parameters=_whole(values),
        wanted=_whole(profile.module),
        last=last,
    )


async def _soon(work: Awaitable[T], patience: float = LOOK_DEADLINE) -> T | None:
    """What an answer in time gives; None for a late one, and for trouble: a doctor tells what is known."""
    try:
        async with asyncio.timeout(patience):
            return await work
    except (TimeoutError, ZvaultError, OSError):
        return None


# Where to look


async def _place(zpool: Zpool, vaults: Vaults, vault: Vault) -> _Place:
    managed = vaults[vault.name]
    if vault.host is not None:
        return _Place()
    state = await _soon(managed.imported())
    paths = [one.path for one in await _soon(managed.devices()) or [] if one.path is not None]
    if state is None:
        return _Place(None, _names(paths))
    place = _Place(state.health)
    if not paths and place.answers:
        paths = await _soon(zpool.devices(vault.pool)) or []
    place.devices = _names(paths)
    return place


async def _source_devices(context: Context, flows: Sequence[ActiveStream]) -> list[str]:
    """The devices of the pools of this host that streams come from."""
    here = [flow for flow in flows if context.env.backup(flow.backup).source.host is None]
    pools = sorted({flow.dataset.pool for flow in here})
    found = [await _soon(context.clients.zpool.devices(pool)) or [] for pool in pools]
    return _names([path for paths in found for path in paths])


def _names(paths: Sequence[str]) -> list[str]:
    """The kernel's names of block devices: ``nbd0`` of ``/dev/disk/by-id/…``."""
    names = dict.fromkeys(Path(path).resolve().name for path in paths)
    return [name for name in names if (queue.SYS_CLASS / name).exists()]


def _largest(devices: Sequence[str]) -> int | None:
    """Bytes in the largest request that all of them take."""
    found = [queue.read(device, "max_sectors_kb") for device in devices]
    return min((int(kib) << 10 for kib in found if kib is not None), default=None)


def _measured(records: Records, vault: Vault) -> float | None:
    """What a vault's device was measured to take at best, in bytes a second."""
    found = measurements.outcome(records, vault)
    if found is None or found.way != "write":
        return None
    return max((point.bandwidth for point in found.points), default=None)


def _known(disks: dict[str, Disk | None], names: Sequence[str]) -> tuple[Disk, ...]:
    return tuple(disk for name in names if (disk := disks[name]) is not None)


def _whole(values: dict[str, str]) -> dict[str, int]:
    return {name: int(value) for name, value in values.items() if value.isascii() and value.isdecimal()}


# What is counted


async def _sample(
    runner: Runner, seconds: float, pids: Sequence[int], devices: Sequence[str]
) -> dict[str, Any]:
    result = await runner.run(
        sampler_argv(seconds, pids, devices), deadline=seconds + SAMPLE_DEADLINE, check=False
    )
    try:
        found: dict[str, Any] = json.loads(result.stdout)
    except ValueError:
        raise ToolFailed("the counters of this host cannot be read", result.complaint()) from None
    return found


async def _count(runner: Runner, pool: str | None, seconds: float) -> _Counted:
    """OpenZFS's own counters of an imported pool."""
    if pool is None:
        return _Counted()
    before, begun, let = await _totals(runner, pool)
    times = max(1, math.floor(seconds / EVERY))
    waits = await _soon(
        runner.run(statistics.queue_argv(pool, EVERY, times), deadline=seconds + LOOK_DEADLINE),
        seconds + LOOK_DEADLINE,
    )
    after, ended, made = await _totals(runner, pool)
    size = statistics.request_size(statistics.parse_requests(before), statistics.parse_requests(after))
    _, newest = statistics.parse_groups(begun)
    groups, _ = statistics.parse_groups(ended, newest)
    return _Counted(
        statistics.parse_queue(waits.stdout) if waits is not None else None,
        size,
        tuple(group for group in groups.values() if group.written),
        {name: count - let.get(name, 0) for name, count in made.items() if count > let.get(name, 0)},
    )


async def _totals(runner: Runner, pool: str) -> tuple[str, str, dict[str, int]]:
    """Requests since the import, the latest transaction groups, and what writers waited for."""
    argvs = statistics.requests_argv(pool), statistics.groups_argv(pool), statistics.writers_argv()
    found = [await _soon(runner.run(argv, deadline=LOOK_DEADLINE, check=False)) for argv in argvs]
    requests, groups, writers = (one.stdout if one is not None else "" for one in found)
    return requests, groups, statistics.parse_writers(writers)


async def _ways(context: Context, flows: Sequence[ActiveStream], seconds: float) -> dict[int, TcpPath]:
    """How each ssh of a stream gets to the other host, by process id, as far as ss(8) there and here can tell."""
    ends = [
        (pid, there if number == 0 else None)
        for flow in flows
        for number, (argv, pid) in enumerate(flow.progress.programs)
        if (there := ssh.address_of(argv)) is not None
    ]
    found = await asyncio.gather(*(_way(context, pid, there, seconds) for pid, there in ends))
    return {pid: way for (pid, _), way in zip(ends, found, strict=True) if way is not None}


async def _way(context: Context, pid: int, source: Address | None, seconds: float) -> TcpPath | None:
    """Look at it several times, on the host that sends: ``source``, or this one."""
    looks: list[list[tcp_info.Connection]] = []
    over = time.monotonic() + seconds
    while len(looks) < ENOUGH or time.monotonic() < over:
        look = _there(context.clients, source) if source is not None else _here(context.env.runner, pid)
        if (found := await _soon(look)) is None:
            return None
        looks.append(found)
        await asyncio.sleep(seconds / WAY_LOOKS)
    return tcp_info.way(looks)


async def _there(clients: Clients, source: Address) -> list[tcp_info.Connection]:
    host = clients.source_at(source).host
    return tcp_info.parse((await host.run(tcp_info.login_argv(), deadline=LOOK_DEADLINE)).stdout)


async def _here(runner: Runner, pid: int) -> list[tcp_info.Connection]:
    told = await runner.run(tcp_info.argv(), deadline=LOOK_DEADLINE)
    return tcp_info.parse_of(told.stdout, "ssh", pid)


# What it comes to


def _flow(
    context: Context, one: ActiveStream, looks: observations.Looks, hz: int, ways: Mapping[int, TcpPath]
) -> StreamFlow:
    backup = context.env.backup(one.backup)
    now = context.env.clock.now().astimezone(context.env.zone)
    return StreamFlow(
        one.backup,
        one.dataset,
        tuple(_stage(argv, pid, looks, hz, ways) for argv, pid in one.progress.programs),
        one.progress.rate(),
        backup.limit.rate(now),
        one.progress.marks.range(),
    )


def _stage(
    argv: Sequence[str], pid: int, looks: observations.Looks, hz: int, ways: Mapping[int, TcpPath]
) -> Stage:
    there = ssh.address_of(argv)
    return Stage(
        *_named(argv),
        observations.cpu(looks, hz, str(pid)),
        observations.fullness(looks, str(pid)),
        "" if there is None else there.host,
        ways.get(pid),
    )


_KINDS: dict[str, Kind] = {
    "ssh": "ssh",
    "mbuffer": "buffer",
    "zstd": "codec",
    "lz4": "codec",
    "gzip": "codec",
}


def _named(argv: Sequence[str]) -> tuple[Kind, str]:
    """What a program of a stream is in it, and its name."""
    program = PurePath(argv[0]).name
    if is_gate(argv):
        return "buffer", "gate"
    if program == "zfs":
        return ("source" if argv[1] == "send" else "receive"), f"zfs {argv[1]}"
    return (_KINDS[program], program) if program in _KINDS else ("limit", "throttle")


def _threads(kinds: dict[str, str], looks: observations.Looks, hz: int) -> dict[str, float]:
    """The busiest thread of each kind."""
    found: dict[str, float] = {}
    for pid, kind in kinds.items():
        found[kind] = max(found.get(kind, 0.0), observations.cpu(looks, hz, pid) or 0.0)
    return found
