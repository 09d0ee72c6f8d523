"""The lease of an RBD image, for vaults that several hosts share: its keeper's unit, its epoch, and who has it."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

from zvault.config.tables.device import Device
from zvault.core.errors import Refused, ToolFailed, ZvaultError
from zvault.devices.layer import LayerJob, Slot
from zvault.devices.nbd import guarded_server, nbdkit
from zvault.devices.rbd.cluster import Cluster, may_blocklist
from zvault.devices.rbd.place import ImagePlace
from zvault.devices.server_unit import script
from zvault.system.process.runner import Runner
from zvault.system.systemd_units import Units

START_DEADLINE = 60.0
"""Seconds for a keeper to get the lease, beside the bound of one of this host's last boot."""
POLL = 0.05


def cluster_of(device: Device) -> Cluster:
    """The cluster of a device's image."""
    ceph = device.ceph
    return Cluster() if ceph is None else Cluster(ceph.conf, ceph.user, ceph.keyring)


def unit(slot: Slot) -> str:
    """The systemd unit of a device's keeper."""
    return f"zvault-rbd-lease@{slot.name}.service"


def keeper_command(device: Device, verb: str, *options: str) -> list[str]:
    """Argv of the keeper."""
    place = ImagePlace(device.image, cluster_of(device))
    return [sys.executable, "-P", "-m", "zvault.devices.rbd.keeper", verb, *options, "--", *place.params]


def epoch(slot: Slot) -> int | None:
    """The number that this host's keeper raised when it got the lease; None while it has none."""
    try:
        number = json.loads(_held(slot).read_text(encoding="utf-8"))["epoch"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return number if type(number) is int and number > 0 else None


def why_lost(slot: Slot) -> str:
    """Why a keeper that does not run has ended, in words."""
    lost = guarded_server.last_words(slot)
    return f"{lost.what}: {lost.why}" if lost is not None else f"its lease is not renewed: {unit(slot)} ended"


def _script(slot: Slot) -> Path:
    return slot.directory / f"{slot.name}.lease"


def _held(slot: Slot) -> Path:
    return slot.directory / f"{slot.name}.held"


async def start(job: LayerJob, units: Units, runner: Runner) -> None:
    """Take the lease and have it kept. Raises HeldElsewhere or TakenOver with who has it, Refused, DeviceGone."""
    slot, device, bound = job.slot, job.device, job.device.lease_bound or 0.0
    if not await may_blocklist(cluster_of(device), runner):
        raise Refused(
            f"vault '{slot.vault}' cannot be shared by several hosts",
            f"client.{cluster_of(device).user or 'admin'} of Ceph may not shut another client out ('ceph osd"
            " blocklist add'), so this host could not take the vault from one that has stopped",
            "give the user mon 'profile rbd' ('ceph auth caps'), or leave hosts out",
        )
    _held(slot).unlink(missing_ok=True)
    guarded_server.report_file(slot).unlink(missing_ok=True)
    options = [f"--bound={bound:g}", f"--report={guarded_server.report_file(slot)}", f"--held={_held(slot)}"]
    argv = keeper_command(device, "keep", *options, *(["--resume"] if job.resume else []))
    nbdkit.write_script(_script(slot), script(argv))
    began, give_up = time.time(), time.monotonic() + START_DEADLINE + bound
    await units.start(unit(slot))
    while epoch(slot) is None:
        if time.monotonic() >= give_up or not (await units.state(unit(slot))).running:
            raise await _not_kept(slot, units, began)
        await asyncio.sleep(POLL)


async def _not_kept(slot: Slot, units: Units, began: float) -> ZvaultError:
    if (error := guarded_server.last_words(slot)) is not None:
        return error
    words = "; ".join(await units.journal_tail(unit(slot), since=began))
    failed = ToolFailed(
        f"the lease of device {slot.name} cannot be had",
        words or "its keeper ended without a word",
        f"see 'journalctl -u {unit(slot)}'",
    )
    failed.retryable = True
    return failed


async def stop(slot: Slot, units: Units) -> None:
    """Give the lease back, if it is still this host's. The keeper need not run."""
    await units.stop(unit(slot))
    for file in (_script(slot), _held(slot), guarded_server.report_file(slot)):
        file.unlink(missing_ok=True)
