"""What bounds a vault now, as a document: ``GET /v1/doctor/VAULT``, ``zvaultctl doctor``. Changes nothing."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from zvault.core.doctor import diagnose
from zvault.core.errors import Refused
from zvault.core.vitals import Disk, LastRun
from zvault.ops.context import Context
from zvault.ops.examine import examine
from zvault.ops.vault import Vaults

Document = dict[str, Any]

SECONDS = 5.0
"""How long a vault is watched if nobody says."""

MOST_SECONDS = 60.0


def watched_for(text: str | None) -> float:
    """How long to watch a vault. Raises Refused for what is no number of seconds from 1 to 60."""
    try:
        seconds = SECONDS if text is None else float(text)
    except ValueError:
        seconds = math.nan
    if not 1 <= seconds <= MOST_SECONDS:
        raise Refused(f"'{text}' is no time to watch a vault", "it takes seconds from 1 to 60", "seconds=5")
    return seconds


async def doctor_document(
    context: Context, vaults: Vaults, name: str, seconds: float, last: LastRun | None = None
) -> Document:
    """The verdict on a vault and what it rests on, after watching it for ``seconds``. Raises NotFound, ToolFailed."""
    seen = await examine(context, vaults, name, seconds, last)
    verdict = diagnose(seen)
    return {
        "vault": name,
        "pool": seen.pool,
        "seconds": seen.seconds,
        "verdict": asdict(verdict),
        "streams": [asdict(flow) for flow in seen.flows],
        "devices": [_row("vault", disk) for disk in seen.disks]
        + [_row("source", disk) for disk in seen.source_disks],
        "queue": asdict(seen.queue) if seen.queue else None,
        "request": seen.request,
        "groups": [asdict(group) for group in seen.groups],
        "waits": dict(seen.waits),
        "threads": dict(seen.threads),
        "idle": seen.idle,
        "last": asdict(seen.last) if seen.last else None,
    }


def _row(role: str, disk: Disk) -> Document:
    return {
        "role": role,
        **asdict(disk),
        "in_flight": disk.in_flight,
        "latency": disk.latency,
        "size": disk.size,
        "rate": disk.rate,
    }
