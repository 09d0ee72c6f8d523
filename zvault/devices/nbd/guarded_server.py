"""Servers that zvault starts: one that needs a lease runs below a guard, which says why it has none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from zvault.config.device_specs.blockstore import BlockstoreServer
from zvault.config.device_specs.nbd import NbdkitServer
from zvault.config.tables.device import Device
from zvault.core.errors import (
    Busy,
    DeviceGone,
    HeldElsewhere,
    JournalMissing,
    NotFound,
    Refused,
    TakenOver,
    ToolFailed,
    ToolMissing,
    ZvaultError,
)
from zvault.devices.layer import LayerJob, Slot
from zvault.devices.nbd import blockstore_server, nbdkit, past_store
from zvault.devices.s3_lease.guard_command import STOP_SECONDS, guard_command
from zvault.devices.server_unit import Server
from zvault.system.systemd_units import Units

_KINDS: dict[str, type[ZvaultError]] = {
    "Busy": Busy,
    "HeldElsewhere": HeldElsewhere,
    "TakenOver": TakenOver,
    "DeviceGone": DeviceGone,
    "NotFound": NotFound,
    "JournalMissing": JournalMissing,
    "Refused": Refused,
    "ToolMissing": ToolMissing,
    "Missing": NotFound,
    "Overtaken": Busy,
    "Denied": Refused,
    "Unreachable": DeviceGone,
}
"""By the names that a guard and the block store give them (zvault/object_store/interface.py)."""

Guarded = NbdkitServer | BlockstoreServer


def report_file(slot: Slot) -> Path:
    """Return the file in which a guard leaves its last words."""
    return slot.directory / f"{slot.name}.why"


def server_of(slot: Slot, spec: Guarded) -> Server:
    """A device's server: its unit, script and socket."""
    return replace(slot.server, kind="blockstore") if isinstance(spec, BlockstoreServer) else slot.server


def server_command(slot: Slot, spec: Guarded, *, create: bool = False) -> list[str]:
    """Argv of a device's server by itself."""
    server = server_of(slot, spec)
    if isinstance(spec, past_store.PastStore):
        return past_store.command(server, spec)
    if isinstance(spec, BlockstoreServer):
        return blockstore_server.command(server, spec, create=create)
    return nbdkit.command(spec, server.socket)


def command(
    slot: Slot, device: Device, spec: Guarded, *, create: bool = False, resume: bool = False
) -> list[str]:
    """Argv of a device's server, with its guard where it needs one; see takeover.take for ``resume``."""
    server, bound = server_command(slot, spec, create=create), device.lease_bound
    if bound is None:
        own = isinstance(spec, BlockstoreServer) and not isinstance(spec, past_store.PastStore)
        # Where a lease is taken its guard tries them, also at once.
        return [*server, "try-conditions=yes"] if own else server
    patience = blockstore_server.STOP_SECONDS if isinstance(spec, BlockstoreServer) else STOP_SECONDS
    return guard_command("guard", bound, server, report=report_file(slot), resume=resume, patience=patience)


def throw_away_command(slot: Slot, spec: Guarded) -> list[str]:
    """Argv of a server whose writes reach nobody. Raises Refused for what has none."""
    if not isinstance(spec, BlockstoreServer):
        raise Refused(f"there is no copy of {spec} to throw away", "only zvault's block store has one")
    return blockstore_server.throw_away_command(server_of(slot, spec), spec)


async def start(job: LayerJob, spec: Guarded, units: Units) -> None:
    """Start a device's server. Raises as nbdkit.start, and Busy with who has the lease, or Refused."""
    slot = job.slot
    argv = (
        throw_away_command(slot, spec)
        if job.throw_away
        else command(slot, job.device, spec, create=job.create, resume=job.resume)
    )
    server, own = server_of(slot, spec), isinstance(spec, BlockstoreServer)
    report_file(slot).unlink(missing_ok=True)
    blockstore_server.clear_status(server)
    # A guard may have to wait for a lease of this host's last boot to end.
    deadline = (blockstore_server.START_DEADLINE if own else nbdkit.START_DEADLINE) + (
        job.device.lease_bound or 0.0
    )
    try:
        await nbdkit.start(
            server,
            spec,
            units,
            argv=argv,
            deadline=deadline,
            ready=lambda: not own or blockstore_server.ready(server),
        )
    except ToolFailed:
        if (error := last_words(slot)) is not None:
            raise error from None
        raise


def last_words(slot: Slot) -> ZvaultError | None:
    """Why a server ended, or its guard could not take or keep its lease; None where neither said."""
    if error := (blockstore_server.told(slot.server) or {}).get("error"):
        return error_of(error)
    try:
        said = json.loads(report_file(slot).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return error_of(said)


def error_of(said: dict[str, str]) -> ZvaultError:
    """An error as the guard tells of it."""
    return _KINDS.get(said["kind"], ToolFailed)(said["what"], said["why"], said["next"])
