"""RBD images as block devices of this host: mapped by krbd, or served to the kernel by rbd-nbd.

Facts about the tools were seen with Ceph 18.2.7 and Linux 7.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from zvault.config.device_specs.rbd import RbdImage
from zvault.core.errors import Busy, DeadlineExceeded, DeviceGone, ToolMissing
from zvault.devices.rbd.cluster import MONITOR_TIMEOUT, CephCluster
from zvault.devices.rbd.image import LOCKED, call_cluster, make_rbd_error, rbd_argv
from zvault.devices.rbd.image_owners import list_owners, make_in_use_error
from zvault.system.device_users import find_device_users, name_users
from zvault.system.kernel_module import load_module
from zvault.system.process.runner import ToolRunner

BUS = Path("/sys/bus/rbd/devices")
MAPPING_SYS_BLOCK = Path("/sys/block")

LOCK_TIMEOUT = 20
"""Seconds for krbd to get the exclusive lock; within this time it breaks the lock of a dead owner."""
MAP_DEADLINE = 90.0
UNMAP_DEADLINE = 90.0
"""Seconds; krbd itself gives up after 60 (mount_timeout, rbd(8))."""


@dataclass(frozen=True, slots=True)
class ImageMapping:
    """An image that krbd has mapped on this host; ``client``: its address as Ceph prints it."""

    number: int
    image: RbdImage
    image_id: str
    client: str
    size: int
    read_only: bool = False

    @property
    def path(self) -> str:
        return f"/dev/rbd{self.number}"


def map_argv(
    image: RbdImage,
    cluster: CephCluster,
    *,
    exclusive: bool,
    timeout: float,
    own_client: bool = False,
    read_only: bool = False,
) -> list[str]:
    """Argv that maps an image with krbd. Without osd_request_timeout a request would wait for its OSD forever.

    ``own_client``: with a client that no other mapping has, so that this one alone can be shut out of the cluster.
    """
    options = [f"osd_request_timeout={max(1, round(timeout))}"]
    if exclusive:
        options += ["exclusive", f"lock_timeout={LOCK_TIMEOUT}"]
    options += ["noshare"] if own_client else []
    options += ["ro"] if read_only else []
    return rbd_argv(cluster, "device", "map", str(image), "-o", ",".join(options))


UNCACHED = "--rbd-cache=false"
"""With librbd's cache, which is on by default, a write is answered before it is in the cluster (Ceph's rbd-config-ref,
rbd_cache_policy). ZFS keeps it no longer then. If rbd-nbd is killed before the next flush it is gone, the flush of the
rbd-nbd that is started in its place succeeds, and the pool goes on without it."""


def rbd_nbd_argv(
    image: RbdImage, cluster: CephCluster, *, exclusive: bool, timeout: float, number: int | None
) -> list[str]:
    """Argv of rbd-nbd in the foreground, on ``/dev/nbd{number}`` or the first free one.

    If it dies, nothing reattaches, so the timeout for that is short; by default the kernel holds requests for 30 s.
    """
    argv = ["rbd-nbd", "map", str(image), "--foreground", "--io-timeout", str(max(1, round(timeout)))]
    argv += ["--reattach-timeout", "1"]
    argv += ["--exclusive"] if exclusive else []
    argv += ["--device", f"/dev/nbd{number}"] if number is not None else []
    return [*argv, *cluster.words(), f"--client-mount-timeout={MONITOR_TIMEOUT}", UNCACHED]


async def check_krbd(runner: ToolRunner) -> None:
    """Load krbd. Raises ToolMissing if the kernel does not have it."""
    if _loaded():
        return
    why = await load_module(runner, "rbd")
    if not _loaded():
        advice = 'install a kernel that has the rbd module, or set map = "rbd-nbd"'
        raise ToolMissing("the kernel has no RBD driver", why, advice)


def _loaded() -> bool:
    return BUS.exists()


def find_mapping(image: RbdImage, image_id: str | None = None, bus: Path = BUS) -> ImageMapping | None:
    """krbd's mapping of an image on this host that can be written to; never waits.

    ``image_id`` excludes other images of the same name.
    """
    return next((one for one in list_mappings(image, image_id, bus) if not one.read_only), None)


def list_mappings(image: RbdImage, image_id: str | None = None, bus: Path = BUS) -> list[ImageMapping]:
    """All of them: an image can be mapped several times."""
    seen = [_mapping(folder) for folder in sorted(bus.glob("*"))]
    return [
        one for one in seen if one is not None and one.image == image and image_id in (None, one.image_id)
    ]


def _mapping(folder: Path) -> ImageMapping | None:
    """One mapping (Documentation/ABI/testing/sysfs-bus-rbd); None if it is of a snapshot or is being removed."""
    try:
        pool, name, snapshot, image_id, client = (
            (folder / file).read_text().strip()
            for file in ("pool", "name", "current_snap", "image_id", "client_addr")
        )
        namespace = (folder / "pool_ns").read_text().strip()
        size = int((folder / "size").read_text())
    except (OSError, ValueError):
        return None
    if snapshot != "-":
        return None
    return ImageMapping(
        int(folder.name),
        RbdImage(pool, namespace, name),
        image_id,
        client,
        size,
        _read_only(int(folder.name)),
    )


def _read_only(number: int) -> bool:
    try:
        return (MAPPING_SYS_BLOCK / f"rbd{number}" / "ro").read_text().strip() == "1"
    except OSError:
        return False


def find_served_device(pid: int, sys_block: Path = MAPPING_SYS_BLOCK) -> int | None:
    """The number of the NBD device that an rbd-nbd process is connected to; None if it is not connected."""
    for path in sys_block.glob("nbd*/pid"):
        try:
            if int(path.read_text()) == pid:
                return int(path.parent.name.removeprefix("nbd"))
        except (OSError, ValueError):
            continue
    return None


async def map_krbd(
    image: RbdImage, argv: Sequence[str], cluster: CephCluster, runner: ToolRunner, *, exclusive: bool
) -> None:
    """Map an image (``argv`` contains map_command's). Raises Busy with the holder's name, or the error of rbd."""
    result = await call_cluster(argv, image, cluster, runner, MAP_DEADLINE)
    if result.returncode == 0:
        return
    if LOCKED in result.stderr and exclusive:
        found = await list_owners(image, cluster, runner)
        if found:
            raise make_in_use_error(image, found)
    raise make_rbd_error(f"the RBD image {image} cannot be mapped", result, image, cluster)


async def unmap_image(mapping: ImageMapping, cluster: CephCluster, runner: ToolRunner) -> None:
    """Unmap a device that nobody has open. Raises Busy; DeviceGone if it does not end in time."""
    argv = rbd_argv(cluster, "device", "unmap", mapping.path)
    try:
        result = await runner.run(argv, deadline=UNMAP_DEADLINE, check=False)
    except DeadlineExceeded:
        result = None
    if result is not None and "(16) Device or resource busy" in result.stderr:
        users = await find_device_users(f"rbd{mapping.number}", runner)
        why = f"it is open: {name_users(users)}" if users else "a pool has it open, or a process"
        advice = "end what has it open; no reboot is needed" if users else "export the pool"
        raise Busy(f"{mapping.path} cannot be unmapped", why, advice)
    if any(one.number == mapping.number for one in list_mappings(mapping.image, mapping.image_id)):
        raise DeviceGone(
            f"{mapping.path} ({mapping.image}) stays mapped",
            result.complaint() if result is not None else f"Ceph did not answer for {UNMAP_DEADLINE:g} s",
            f"when the cluster answers again, run 'rbd device unmap {mapping.path}'",
        )
