"""The lease of an RBD image, for vaults that several hosts share: its keeper's unit, its epoch, and who has it."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

from zvault.config.tables.device import Device
from zvault.core.errors import Refused, ToolFailed, ZvaultError
from zvault.devices.layer import DeviceSlot, LayerJob
from zvault.devices.nbd import guarded_server, nbdkit
from zvault.devices.rbd.cluster import CephCluster, may_blocklist
from zvault.devices.rbd.place import ImagePlace
from zvault.devices.server_unit import exec_shell_script
from zvault.system.process.runner import ProcessRunner
from zvault.system.systemd_units import SystemdUnits

KEEPER_START_DEADLINE = 60.0
"""Seconds for a keeper to get the lease, beside the bound of one of this host's last boot."""
KEEPER_POLL = 0.05


def make_cluster(device: Device) -> CephCluster:
    """The cluster of a device's image."""
    ceph = device.ceph
    return CephCluster() if ceph is None else CephCluster(ceph.conf, ceph.user, ceph.keyring)


def name_keeper_unit(slot: DeviceSlot) -> str:
    """The systemd unit of a device's keeper."""
    return f"zvault-rbd-lease@{slot.name}.service"


def keeper_argv(device: Device, verb: str, *options: str) -> list[str]:
    """Argv of the keeper."""
    place = ImagePlace(device.image, make_cluster(device))
    return [sys.executable, "-P", "-m", "zvault.devices.rbd.keeper", verb, *options, "--", *place.params]


def read_lease_epoch(slot: DeviceSlot) -> int | None:
    """The number that this host's keeper raised when it got the lease; None while it has none."""
    try:
        number = json.loads(_held(slot).read_text(encoding="utf-8"))["epoch"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return number if type(number) is int and number > 0 else None


def explain_lost_lease(slot: DeviceSlot) -> str:
    """Why a keeper that does not run has ended, in words."""
    lost = guarded_server.read_last_words(slot)
    return (
        f"{lost.what}: {lost.why}"
        if lost is not None
        else f"its lease is not renewed: {name_keeper_unit(slot)} ended"
    )


def _script(slot: DeviceSlot) -> Path:
    return slot.directory / f"{slot.name}.lease"


def _held(slot: DeviceSlot) -> Path:
    return slot.directory / f"{slot.name}.held"


async def start_keeper(job: LayerJob, units: SystemdUnits, runner: ProcessRunner) -> None:
    """Take the lease and have it kept. Raises HeldElsewhere or TakenOver with who has it, Refused, DeviceGone."""
    slot, device, bound = job.slot, job.device, job.device.lease_bound or 0.0
    if not await may_blocklist(make_cluster(device), runner):
        raise Refused(
            f"vault '{slot.vault}' cannot be shared by several hosts",
            f"client.{make_cluster(device).user or 'admin'} of Ceph may not shut another client out ('ceph osd"
            " blocklist add'), so this host could not take the vault from one that has stopped",
            "give the user mon 'profile rbd' ('ceph auth caps'), or leave hosts out",
        )
    _held(slot).unlink(missing_ok=True)
    guarded_server.find_report_file(slot).unlink(missing_ok=True)
    options = [
        f"--bound={bound:g}",
        f"--report={guarded_server.find_report_file(slot)}",
        f"--held={_held(slot)}",
    ]
    argv = keeper_argv(device, "keep", *options, *(["--resume"] if job.resume else []))
    nbdkit.write_unit_script(_script(slot), exec_shell_script(argv))
    began, give_up = time.time(), time.monotonic() + KEEPER_START_DEADLINE + bound
    await units.start(name_keeper_unit(slot))
    while read_lease_epoch(slot) is None:
        if time.monotonic() >= give_up or not (await units.state(name_keeper_unit(slot))).running:
            raise await _not_kept(slot, units, began)
        await asyncio.sleep(KEEPER_POLL)


async def _not_kept(slot: DeviceSlot, units: SystemdUnits, began: float) -> ZvaultError:
    if (error := guarded_server.read_last_words(slot)) is not None:
        return error
    words = "; ".join(await units.journal_tail(name_keeper_unit(slot), since=began))
    failed = ToolFailed(
        f"the lease of device {slot.name} cannot be had",
        words or "its keeper ended without a word",
        f"see 'journalctl -u {name_keeper_unit(slot)}'",
    )
    failed.retryable = True
    return failed


async def stop_keeper(slot: DeviceSlot, units: SystemdUnits) -> None:
    """Give the lease back, if it is still this host's. The keeper need not run."""
    await units.stop(name_keeper_unit(slot))
    for file in (_script(slot), _held(slot), guarded_server.find_report_file(slot)):
        file.unlink(missing_ok=True)
