"""Servers that zvault starts: one that needs a lease runs below a guard, which says why it has none."""

from __future__ import annotations

import json
from pathlib import Path

from zvault.config.device import Device
from zvault.config.nbd import NbdkitServer
from zvault.core.errors import Busy, DeviceGone, NotFound, Refused, ToolFailed, ToolMissing, ZvaultError
from zvault.devices import nbdkit
from zvault.devices.layer import Job, Slot
from zvault.devices.s3_guard import guard_command
from zvault.system.units import Units

_KINDS: dict[str, type[ZvaultError]] = {
    kind.__name__: kind for kind in (Busy, DeviceGone, NotFound, Refused, ToolMissing)
}


def report_file(slot: Slot) -> Path:
    """Where a guard leaves its last words."""
    return slot.directory / f"{slot.name}.why"


def command(slot: Slot, device: Device, spec: NbdkitServer, *, resume: bool = False) -> list[str]:
    """Argv of a device's server, with its guard where it needs one; see s3_take.take for ``resume``."""
    server, bound = nbdkit.command(spec, slot.server.socket), device.lease_bound
    if bound is None:
        return server
    return guard_command("guard", bound, server, report=report_file(slot), resume=resume)


async def start(job: Job, spec: NbdkitServer, units: Units) -> None:
    """Start a device's server. Raises as nbdkit.start, and Busy with who has the lease, or Refused."""
    slot = job.slot
    argv = command(slot, job.device, spec, resume=job.resume)
    report_file(slot).unlink(missing_ok=True)
    # A guard may have to wait for a lease of this host's last boot to end.
    deadline = nbdkit.START_DEADLINE + (job.device.lease_bound or 0.0)
    try:
        await nbdkit.start(slot.server, spec, units, argv=argv, deadline=deadline)
    except ToolFailed:
        if (error := last_words(slot)) is not None:
            raise error from None
        raise


def last_words(slot: Slot) -> ZvaultError | None:
    """Why a guard could not take or keep its lease; None where it did not say."""
    try:
        said = json.loads(report_file(slot).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return error_of(said)


def error_of(said: dict[str, str]) -> ZvaultError:
    """An error as the guard tells of it."""
    return _KINDS.get(said["kind"], ToolFailed)(said["what"], said["why"], said["next"])
