"""A vault's bottleneck as a document: ``GET /v1/doctor/VAULT``, ``zvaultctl doctor``. Changes nothing."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Literal

from zvault.api.diagnosis import (
    DiagnosisDocument,
    DiskDocument,
    DoctorDocument,
    FlowDocument,
    GroupDocument,
    LastRunDocument,
    QueueDocument,
    StageDocument,
    WayDocument,
)
from zvault.config.schema import Vault
from zvault.core.diagnosis.doctor import diagnose_bottleneck
from zvault.core.diagnosis.doctor_text import Bottleneck
from zvault.core.diagnosis.observations import (
    DiskRequests,
    Observations,
    ObservedRun,
    StreamFlow,
    StreamStage,
    SyncedGroup,
    TcpPath,
    WriteQueue,
)
from zvault.core.errors import Refused, ZvaultError
from zvault.devices.presence import find_lacking_rights
from zvault.ops.context import Context
from zvault.ops.diagnosis.observe import examine_vault
from zvault.ops.vaults.vault import Vaults

WATCH_SECONDS = 5.0
"""Default seconds to watch a vault."""

MOST_WATCH_SECONDS = 60.0


def parse_watch_seconds(text: str | None) -> float:
    """Seconds to watch a vault, from the request. Raises Refused unless it is a number from 1 to 60."""
    try:
        seconds = WATCH_SECONDS if text is None else float(text)
    except ValueError:
        seconds = math.nan
    if not 1 <= seconds <= MOST_WATCH_SECONDS:
        raise Refused(f"seconds={text} is out of range", "it must be a number from 1 to 60", "use seconds=5")
    return seconds


async def make_doctor_document(
    context: Context,
    vaults: Vaults,
    vault: Vault,
    seconds: float,
    last: ObservedRun | None = None,
    *,
    rights: bool = False,
) -> DoctorDocument:
    """Watch a vault for ``seconds``; return the verdict and its evidence. Raises ToolFailed.

    ``rights``: also try what the Ceph users of its images may do, which takes some seconds.
    """
    seen, lacking = await asyncio.gather(
        examine_vault(context, vaults, vault, seconds, last),
        _list_lacking_rights(context, vault) if rights else asyncio.sleep(0, []),
    )
    return write_diagnosis(vault.name, seen, lacking)


async def _list_lacking_rights(context: Context, vault: Vault) -> list[str]:
    """What of the vault's images their Ceph users may not do, or why that cannot be asked; one line a device."""
    told = []
    for device in vault.device:
        try:
            lacking = await find_lacking_rights(device, context.env.runner)
        except ZvaultError as error:
            lacking = f"what {device.spec} allows cannot be asked now: {error}"
        told += [lacking] if lacking else []
    return told


def write_diagnosis(vault: str, seen: Observations, lacking: Sequence[str] = ()) -> DoctorDocument:
    """The observations and the verdict on them as a document."""
    return {
        "vault": vault,
        "pool": seen.pool,
        "seconds": seen.seconds,
        "verdict": _verdict(diagnose_bottleneck(seen)),
        "streams": [_flow(flow) for flow in seen.flows],
        "devices": [
            *(_disk("vault", disk) for disk in seen.disks),
            *(_disk("source", disk) for disk in seen.source_disks),
        ],
        "queue": _queue(seen.queue) if seen.queue else None,
        "request": seen.request,
        "groups": [_group(group) for group in seen.groups],
        "waits": dict(seen.waits),
        "threads": dict(seen.threads),
        "idle": seen.idle,
        "last": _last(seen.last) if seen.last else None,
        "lacking": list(lacking),
    }


def _verdict(verdict: Bottleneck) -> DiagnosisDocument:
    knob = verdict.knob
    return {
        "bound": verdict.bound,
        "sentence": verdict.sentence,
        "knob": {"name": knob.name, "where": knob.where, "now": knob.now, "value": knob.value}
        if knob is not None
        else None,
        "why": verdict.why,
    }


def _flow(flow: StreamFlow) -> FlowDocument:
    return {
        "backup": flow.backup,
        "dataset": flow.dataset,
        "stages": [_stage(stage) for stage in flow.stages],
        "rate": flow.rate,
        "limit": flow.limit,
        "marks": flow.marks,
    }


def _stage(stage: StreamStage) -> StageDocument:
    return {
        "kind": stage.kind,
        "name": stage.name,
        "cpu": stage.cpu,
        "full": stage.full,
        "host": stage.host,
        "way": _way(stage.way) if stage.way is not None else None,
    }


def _way(way: TcpPath) -> WayDocument:
    return {
        "unsent": way.unsent,
        "flying": way.flying,
        "segment": way.segment,
        "rtt": way.rtt,
        "closed": way.closed,
    }


def _disk(role: Literal["vault", "source"], disk: DiskRequests) -> DiskDocument:
    return {
        "role": role,
        "name": disk.name,
        "seconds": disk.seconds,
        "writes": disk.writes,
        "written": disk.written,
        "write_time": disk.write_time,
        "reads": disk.reads,
        "read": disk.read,
        "read_time": disk.read_time,
        "busy": disk.busy,
        "rounds": disk.rounds,
        "in_flight": disk.in_flight,
        "latency": disk.latency,
        "size": disk.size,
        "rate": disk.rate,
    }


def _queue(queue: WriteQueue) -> QueueDocument:
    return {
        "pending": queue.pending,
        "active": queue.active,
        "wait": queue.wait,
        "disk_wait": queue.disk_wait,
    }


def _group(group: SyncedGroup) -> GroupDocument:
    return {"written": group.written, "opened": group.opened, "sync": group.sync}


def _last(run: ObservedRun) -> LastRunDocument:
    return {"backup": run.backup, "moved": run.moved, "seconds": run.seconds, "drift": run.drift}
