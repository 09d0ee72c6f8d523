"""Whether the storage that a device is made of is there, asked without bringing anything up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from zvault.config.device_specs.blockstore import BlockstoreServer
from zvault.config.device_specs.nbd import NbdkitServer, TcpServer, UnixServer
from zvault.config.tables.device import Device
from zvault.core.errors import Busy, ZvaultError
from zvault.devices.nbd import nbdkit
from zvault.devices.nbd.target import reach_target
from zvault.devices.rbd import image as rbd
from zvault.devices.rbd.access import find_access_problem
from zvault.devices.rbd.image_lease import make_cluster
from zvault.system.device_users import list_device_layers
from zvault.system.mount import find_mount_point, is_mount_point, is_mounted_at_start
from zvault.system.process.runner import ProcessRunner
from zvault.system.systemd_units import SystemdUnits, make_inactive_error


def _unconnected(device: Device) -> str:
    """What this host itself lacks, by the kernel's own lists and folders, which never hang."""
    for folder in device.requires_mount:
        if not is_mount_point(folder):
            return f"nothing is mounted on {folder}"
    if device.cache is not None and not Path(device.cache.bcache).exists():
        return f"there is no device {device.cache.bcache}"
    return ""


async def _find_inactive(device: Device, runner: ProcessRunner) -> str:
    """Which unit that a device is reached by is not active, in words; empty where all are."""
    try:
        states = await SystemdUnits(runner).states(device.requires_unit)
    except ZvaultError as error:
        return f"whether {', '.join(device.requires_unit)} is active cannot be asked: {error}"
    inactive = [state for state in states.values() if state.active != "active"]
    return make_inactive_error(device.spec, inactive[0]).what if inactive else ""


def find_missing_mount(device: Device) -> str:
    """A mount that a writeback journal is on and that may be missing when the host starts, in words; empty for none.

    Without it the folder below the mount point, which is empty, would get a journal. What an existing store waits for
    is noticed in any case (zvault/blockstore/awaited_journal.py), and told sooner so.
    """
    spec = device.nbd
    if not isinstance(spec, BlockstoreServer) or spec.mode != "writeback" or spec.journal is None:
        return ""
    point = find_mount_point(spec.journal)
    if point == "/" or point in device.requires_mount or is_mounted_at_start(point):
        return ""
    return (
        f"journal={spec.journal} is on what is mounted on {point}, which may be missing when the host starts: add"
        f' requires_mount = "{point}", so that nothing is begun without it'
    )


async def find_unreachable(device: Device, runner: ProcessRunner) -> str:
    """Why a device's storage cannot be reached at this moment, in words; empty where it can, or is not asked.

    Buckets are not asked: that costs, and needs their secrets.
    """
    why = _unconnected(device) or await _find_inactive(device, runner)
    if why or not isinstance(device.nbd, UnixServer | TcpServer):
        return why
    try:
        await reach_target(device.nbd, Path(), device.tls)
    except ZvaultError as error:
        return f"{error.what}: {error.why}"
    return ""


async def find_missing_part(device: Device, runner: ProcessRunner) -> str:
    """Say in words what of a device is not there and is made for a new vault only; empty where all is.

    Raises DeviceGone, DeadlineExceeded, ToolMissing where that cannot be asked, NotFound for an image in the trash.
    """
    file = device.nbd.backing_file if isinstance(device.nbd, NbdkitServer) else None
    if file is not None and not await nbdkit.has_backing_file(file, runner):
        return f"there is no file {file}"
    if device.rbd is not None and await rbd.find_image(device.image, make_cluster(device), runner) is None:
        await rbd.refuse_if_in_trash(device.image, make_cluster(device), runner)
        return f"there is no RBD image {device.rbd}"
    return ""


async def find_lacking_rights(device: Device, runner: ProcessRunner) -> str:
    """What of a device's image its Ceph user may not do, or that its pools take no writes, in words; empty for none.

    Raises ZvaultError where that cannot be asked.
    """
    if device.rbd is None:
        return ""
    cluster = make_cluster(device)
    found = await rbd.find_image(device.image, cluster, runner)
    if found is None:  # it is to be made: objects of no image are as good to try
        found = rbd.FoundImage("new", rbd.ImageLayout(data_pool=device.data_pool), "rbd_data.new")
    return await find_access_problem(device.image, found, cluster, runner)


def refuse_taken_devices(pool: str, paths: Sequence[str]) -> None:
    """Raise Busy for a device that a multipath, LVM or RAID of this host has taken: ZFS then finds no pool on it."""
    for path in paths:
        if layers := list_device_layers(Path(path).name):
            raise Busy(
                f"pool {pool} cannot be imported: {', '.join(layers)} lies on {path}",
                "a multipath, LVM or RAID of this host has taken the device as it appeared, for itself alone",
                "remove it there ('dmsetup remove', 'vgchange -an'), and have it leave network devices alone:"
                " 'blacklist' in multipath.conf, 'global_filter' in lvm.conf",
            )
