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
from zvault.devices.layer import DeviceSlot, LayerJob
from zvault.devices.nbd import blockstore_server, nbdkit, past_store
from zvault.devices.s3_lease.guard_command import GUARD_STOP_SECONDS, guard_argv
from zvault.devices.server_unit import DeviceServer
from zvault.system.systemd_units import SystemdUnits

_KINDS: dict[str, type[ZvaultError]] = {
    "Busy": Busy,
    "HeldElsewhere": HeldElsewhere,
    "TakenOver": TakenOver,
    "DeviceGone": DeviceGone,
    "NotFound": NotFound,
    "JournalMissing": JournalMissing,
    "Refused": Refused,
    "ToolMissing": ToolMissing,
    "ObjectMissing": NotFound,
    "PreconditionFailed": Busy,
    "StoreDenied": Refused,
    "StoreUnreachable": DeviceGone,
}
"""By the names that a guard and the block store give them (zvault/object_store/interface.py)."""

Guarded = NbdkitServer | BlockstoreServer


def find_report_file(slot: DeviceSlot) -> Path:
    """Return the file in which a guard leaves its last words."""
    return slot.directory / f"{slot.name}.why"


def make_server(slot: DeviceSlot, spec: Guarded) -> DeviceServer:
    """A device's server: its unit, script and socket."""
    return replace(slot.server, kind="blockstore") if isinstance(spec, BlockstoreServer) else slot.server


def server_argv(
    slot: DeviceSlot, spec: Guarded, *, create: bool = False, uploads: int | None = None
) -> list[str]:
    """Argv of a device's server by itself; see blockstore_server.serve_store_argv for ``uploads``."""
    server = make_server(slot, spec)
    if isinstance(spec, past_store.PastStore):
        return past_store.past_store_argv(server, spec)
    if isinstance(spec, BlockstoreServer):
        return blockstore_server.serve_store_argv(server, spec, create=create, uploads=uploads)
    return nbdkit.nbdkit_argv(spec, server.socket)


def guarded_server_argv(
    slot: DeviceSlot,
    device: Device,
    spec: Guarded,
    *,
    create: bool = False,
    resume: bool = False,
    uploads: int | None = None,
) -> list[str]:
    """Argv of a device's server, with its guard where it needs one; see takeover.take_lease for ``resume``."""
    server, bound = server_argv(slot, spec, create=create, uploads=uploads), device.lease_bound
    if bound is None:
        own = isinstance(spec, BlockstoreServer) and not isinstance(spec, past_store.PastStore)
        # Where a lease is taken its guard tries them, also at once.
        return [*server, "try-conditions=yes"] if own else server
    patience = (
        blockstore_server.STORE_STOP_SECONDS if isinstance(spec, BlockstoreServer) else GUARD_STOP_SECONDS
    )
    return guard_argv("guard", bound, server, report=find_report_file(slot), resume=resume, patience=patience)


def throw_away_server_argv(slot: DeviceSlot, spec: Guarded) -> list[str]:
    """Argv of a server whose writes reach nobody. Raises Refused for what has none."""
    if not isinstance(spec, BlockstoreServer):
        raise Refused(f"there is no copy of {spec} to throw away", "only zvault's block store has one")
    return blockstore_server.throw_away_store_argv(make_server(slot, spec), spec)


async def start_guarded_server(job: LayerJob, spec: Guarded, units: SystemdUnits) -> None:
    """Start a device's server. Raises as nbdkit.start_nbdkit, and Busy with who has the lease, or Refused."""
    slot = job.slot
    argv = (
        throw_away_server_argv(slot, spec)
        if job.throw_away
        else guarded_server_argv(
            slot, job.device, spec, create=job.create, resume=job.resume, uploads=job.uploads
        )
    )
    server, own = make_server(slot, spec), isinstance(spec, BlockstoreServer)
    find_report_file(slot).unlink(missing_ok=True)
    blockstore_server.remove_status_file(server)
    # A guard may have to wait for a lease of this host's last boot to end.
    deadline = (blockstore_server.ATTACH_DEADLINE if own else nbdkit.NBDKIT_START_DEADLINE) + (
        job.device.lease_bound or 0.0
    )
    try:
        await nbdkit.start_nbdkit(
            server,
            spec,
            units,
            argv=argv,
            deadline=deadline,
            ready=lambda: not own or blockstore_server.is_ready(server),
        )
    except ToolFailed:
        if (error := read_last_words(slot)) is not None:
            raise error from None
        raise


def read_last_words(slot: DeviceSlot) -> ZvaultError | None:
    """Why a server ended, or its guard could not take or keep its lease; None where neither said."""
    if error := (blockstore_server.read_server_status(slot.server) or {}).get("error"):
        return parse_reported_error(error)
    try:
        said = json.loads(find_report_file(slot).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return parse_reported_error(said)


def parse_reported_error(said: dict[str, str]) -> ZvaultError:
    """An error as the guard tells of it."""
    return _KINDS.get(said["kind"], ToolFailed)(said["what"], said["why"], said["next"])
