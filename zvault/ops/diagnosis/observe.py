"""Watches a vault for some seconds and collects the counters that core/diagnosis/doctor.py judges. Changes nothing.

Child processes with deadlines read the counters twice, some seconds apart. So this also works while the pool hangs.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, TypeVar

from zvault.config.schema import Vault
from zvault.core.address import Address
from zvault.core.diagnosis import observations
from zvault.core.diagnosis.observations import (
    DiskRequests,
    Observations,
    ObservedRun,
    StageKind,
    StreamFlow,
    StreamStage,
    SyncedGroup,
    TcpPath,
    WriteQueue,
)
from zvault.core.errors import ToolFailed, ZvaultError
from zvault.core.tuning.measurement import IoDirection, MeasuredPoint
from zvault.devices import request_queue
from zvault.ops.context import Context
from zvault.ops.state.clients import ZfsClients
from zvault.ops.state.records import Records
from zvault.ops.stream.run_stream import ActiveStream
from zvault.ops.tuning import measurements
from zvault.ops.vaults.vault import Vaults
from zvault.system import ssh, tcp_info
from zvault.system.process.runner import ProcessRunner
from zvault.system.process.sampler import sampler_argv
from zvault.zfs.gate.process import is_gate
from zvault.zfs.pool import module_parameters, statistics
from zvault.zfs.pool.pool import Zpool

OBSERVE_DEADLINE = 5.0
"""Seconds that a query of a pool may take beyond the time watched."""

SAMPLE_DEADLINE = 30.0
"""The same for the counters of this host, which need no pool: they matter most when all processors are busy."""

QUEUE_SAMPLE_INTERVAL = 0.5
"""Seconds between two samples of OpenZFS's queue; a sample shows only that moment."""

WAY_LOOKS = 8
"""Maximum number of samples of the TCP connections to another host."""

LEAST_QUEUE_SAMPLES = 3
"""Minimum number of useful samples of them, however long these take."""

MOMENT = 0.1
"""Seconds to watch a vault that is down: nothing moves, and what else is told needs no watching."""

T = TypeVar("T")


@dataclass
class _Place:
    """A vault's pool: its health, and the block devices below it."""

    health: str | None = None
    devices: list[str] = field(default_factory=list)

    @property
    def answers(self) -> bool:
        return self.health is not None and self.health != "SUSPENDED"


@dataclass
class _Counted:
    """OpenZFS's counters over the time watched."""

    queue: WriteQueue | None = None
    request: float | None = None
    groups: tuple[SyncedGroup, ...] = ()
    waits: dict[str, int] = field(default_factory=dict)


async def examine_vault(
    context: Context, vaults: Vaults, vault: Vault, seconds: float, last: ObservedRun | None = None
) -> Observations:
    """Watch a vault for some seconds; one that is down, for a moment."""
    profile = measurements.load_vault_profile(context, vault)
    measured = _measured(context.records, vault)
    # Their backups may have got another name, or gone, since they began.
    env = context.env
    named = [replace(one, backup=env.current_name(one.backup)) for one in context.activity.streams.values()]
    flows = [one for one in named if one.vault == vault.name and one.backup in env.config.backup]
    place = await _place(context.clients.zpool, vaults, vault)
    down = not flows and await _is_down(vaults, vault)
    seconds = MOMENT if down else seconds
    sources = await _source_devices(context, flows)
    inputs = {pid: path for flow in flows for pid, path in flow.progress.inputs().items()}
    pids = {pid: inputs.get(pid) for flow in flows for _, pid in flow.progress.programs}
    pool = vault.pool if place.answers and vault.host is None else None
    sampled, counted, ways = await asyncio.gather(
        _sample(context.env.runner, seconds, pids, [*place.devices, *sources]),
        _count(context.env.runner, pool, seconds),
        _ways(context, flows, seconds),
    )
    looks, threads, hz = sampled["looks"], sampled["threads"], sampled["hz"]
    disks = {one: observations.measure_disk(looks, one) for one in [*place.devices, *sources]}
    host = await _soon(module_parameters.read_tuned_host(context.env.runner))
    values = {key: one.value for key, one in host.parameters.items()} if host is not None else {}
    return Observations(
        vault.name,
        vault.pool,
        vault.profile,
        observations.measure_span(looks),
        health=place.health,
        flows=tuple(_flow(context, one, looks, hz, ways) for one in flows),
        disks=_known(disks, place.devices),
        source_disks=_known(disks, sources),
        queue=counted.queue,
        request=counted.request,
        largest=_largest(place.devices),
        rotational=any(request_queue.is_rotational(f"/dev/{device}") for device in place.devices),
        store=any(
            device.spec.split(" ")[0].lower().startswith(("nbdkit:s3", "s3", "zvault:"))
            for device in vault.device
        ),
        measured=measured.get("write"),
        measured_reads=measured.get("read"),
        buffer=profile.stream.buffer,
        transfers=vault.transfers,
        groups=counted.groups,
        waits=counted.waits,
        threads=_threads(threads, looks, hz),
        idle=observations.measure_idle_share(looks),
        memory=host.memory if host is not None else None,
        parameters=_whole(values),
        wanted=_whole({**profile.module, **profile.reading}),
        last=last,
        down=down,
    )


async def _soon(work: Awaitable[T], patience: float = OBSERVE_DEADLINE) -> T | None:
    """The result of ``work``; None if it is late or fails, so that the doctor can judge the rest."""
    try:
        async with asyncio.timeout(patience):
            return await work
    except (TimeoutError, ZvaultError, OSError):
        return None


# Pools and devices


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


async def _is_down(vaults: Vaults, vault: Vault) -> bool:
    """True if it is known that nothing of a vault on this host is up."""
    if vault.host is not None:
        return False
    return await _soon(vaults[vault.name].assembly().anything_up()) is False


async def _source_devices(context: Context, flows: Sequence[ActiveStream]) -> list[str]:
    """The devices of the source pools on this host."""
    here = [flow for flow in flows if context.env.backup(flow.backup).source.host is None]
    pools = sorted({flow.dataset.pool for flow in here})
    found = [await _soon(context.clients.zpool.devices(pool)) or [] for pool in pools]
    return _names([path for paths in found for path in paths])


def _names(paths: Sequence[str]) -> list[str]:
    """The kernel's names of block devices: ``nbd0`` of ``/dev/disk/by-id/…``."""
    names = dict.fromkeys(Path(path).resolve().name for path in paths)
    return [name for name in names if (request_queue.QUEUE_SYS_CLASS / name).exists()]


def _largest(devices: Sequence[str]) -> int | None:
    """The largest request in bytes that all these devices accept."""
    found = [request_queue.read_queue_setting(device, "max_sectors_kb") for device in devices]
    return min((int(kib) << 10 for kib in found if kib is not None), default=None)


def _measured(records: Records, vault: Vault) -> dict[IoDirection, float]:
    """The best bandwidth of writes and of reads measured on a vault's device, in bytes a second, where they were."""
    found = measurements.read_outcome(records, vault)
    if found is None:
        return {}
    reads = found.reading.points if found.reading is not None else ()
    points: dict[IoDirection, Sequence[MeasuredPoint]] = {"read": reads, found.way: found.points}
    return {way: max(point.bandwidth for point in some) for way, some in points.items() if some}


def _known(disks: dict[str, DiskRequests | None], names: Sequence[str]) -> tuple[DiskRequests, ...]:
    return tuple(disk for name in names if (disk := disks[name]) is not None)


def _whole(values: dict[str, str]) -> dict[str, int]:
    return {name: int(value) for name, value in values.items() if value.isascii() and value.isdecimal()}


# Counters


async def _sample(
    runner: ProcessRunner, seconds: float, pids: Mapping[int, str | None], devices: Sequence[str]
) -> dict[str, Any]:
    result = await runner.run(
        sampler_argv(seconds, pids, devices), deadline=seconds + SAMPLE_DEADLINE, check=False
    )
    try:
        found: dict[str, Any] = json.loads(result.stdout)
    except ValueError:
        raise ToolFailed("the counters of this host cannot be read", result.complaint()) from None
    return found


async def _count(runner: ProcessRunner, pool: str | None, seconds: float) -> _Counted:
    """OpenZFS's own counters of an imported pool."""
    if pool is None:
        return _Counted()
    before, begun, let = await _totals(runner, pool)
    times = max(1, math.floor(seconds / QUEUE_SAMPLE_INTERVAL))
    waits = await _soon(
        runner.run(
            statistics.queue_argv(pool, QUEUE_SAMPLE_INTERVAL, times), deadline=seconds + OBSERVE_DEADLINE
        ),
        seconds + OBSERVE_DEADLINE,
    )
    after, ended, made = await _totals(runner, pool)
    size = statistics.estimate_request_size(
        statistics.parse_requests(before), statistics.parse_requests(after)
    )
    _, newest = statistics.parse_groups(begun)
    groups, _ = statistics.parse_groups(ended, newest)
    return _Counted(
        statistics.parse_queue(waits.stdout) if waits is not None else None,
        size,
        tuple(group for group in groups.values() if group.written),
        {name: count - let.get(name, 0) for name, count in made.items() if count > let.get(name, 0)},
    )


async def _totals(runner: ProcessRunner, pool: str) -> tuple[str, str, dict[str, int]]:
    """Requests since the import, the latest transaction groups, and why writers waited."""
    argvs = statistics.requests_argv(pool), statistics.groups_argv(pool), statistics.writers_argv()
    found = [await _soon(runner.run(argv, deadline=OBSERVE_DEADLINE, check=False)) for argv in argvs]
    requests, groups, writers = (one.stdout if one is not None else "" for one in found)
    return requests, groups, statistics.parse_writers(writers)


async def _ways(context: Context, flows: Sequence[ActiveStream], seconds: float) -> dict[int, TcpPath]:
    """The TCP connection of each ssh process of a stream, by process id, if ss(8) here or there shows it."""
    ends = [
        (pid, there if number == 0 else None)
        for flow in flows
        for number, (argv, pid) in enumerate(flow.progress.programs)
        if (there := ssh.find_ssh_address(argv)) is not None
    ]
    found = await asyncio.gather(*(_way(context, pid, there, seconds) for pid, there in ends))
    return {pid: way for (pid, _), way in zip(ends, found, strict=True) if way is not None}


async def _way(context: Context, pid: int, source: Address | None, seconds: float) -> TcpPath | None:
    """Sample the connection several times on the sending host: ``source``, or this host."""
    looks: list[list[tcp_info.TcpConnection]] = []
    over = time.monotonic() + seconds
    while len(looks) < LEAST_QUEUE_SAMPLES or time.monotonic() < over:
        look = _there(context.clients, source) if source is not None else _here(context.env.runner, pid)
        if (found := await _soon(look)) is None:
            return None
        looks.append(found)
        await asyncio.sleep(seconds / WAY_LOOKS)
    return tcp_info.summarize_path(looks)


async def _there(clients: ZfsClients, source: Address) -> list[tcp_info.TcpConnection]:
    host = clients.source_at(source).host
    return tcp_info.parse_connections(
        (await host.run(tcp_info.login_sockets_argv(), deadline=OBSERVE_DEADLINE)).stdout
    )


async def _here(runner: ProcessRunner, pid: int) -> list[tcp_info.TcpConnection]:
    told = await runner.run(tcp_info.sockets_argv(), deadline=OBSERVE_DEADLINE)
    return tcp_info.parse_process_connections(told.stdout, "ssh", pid)


# Observations


AS_STORED = ("compressed", "large_blocks")
"""The keys of a backup's ``send`` table that have blocks sent as they are on disk."""


def _flow(
    context: Context,
    one: ActiveStream,
    looks: observations.SampleSeries,
    hz: int,
    ways: Mapping[int, TcpPath],
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
        () if backup.send.raw else tuple(key for key in AS_STORED if not getattr(backup.send, key)),
    )


def _stage(
    argv: Sequence[str], pid: int, looks: observations.SampleSeries, hz: int, ways: Mapping[int, TcpPath]
) -> StreamStage:
    there = ssh.find_ssh_address(argv)
    return StreamStage(
        *_named(argv),
        observations.measure_cpu_share(looks, hz, str(pid)),
        observations.measure_pipe_fill(looks, str(pid)),
        "" if there is None else there.host,
        ways.get(pid),
    )


_KINDS: dict[str, StageKind] = {
    "ssh": "ssh",
    "mbuffer": "buffer",
    "zstd": "codec",
    "lz4": "codec",
    "gzip": "codec",
}


def _named(argv: Sequence[str]) -> tuple[StageKind, str]:
    """The kind of stage that a program of a stream is, and its name."""
    program = PurePath(argv[0]).name
    if is_gate(argv):
        return "buffer", "gate"
    if program == "zfs":
        return ("source" if argv[1] == "send" else "receive"), f"zfs {argv[1]}"
    return (_KINDS[program], program) if program in _KINDS else ("limit", "throttle")


def _threads(kinds: dict[str, str], looks: observations.SampleSeries, hz: int) -> dict[str, float]:
    """The busiest thread of each kind."""
    found: dict[str, float] = {}
    for pid, kind in kinds.items():
        found[kind] = max(found.get(kind, 0.0), observations.measure_cpu_share(looks, hz, pid) or 0.0)
    return found
