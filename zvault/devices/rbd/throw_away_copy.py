"""A copy of an image for a pool whose host was shut out: what is written to it stays on this host, and is thrown away.

OpenZFS opens a device again under its path only. So the copy, an NBD device over the image mapped read-only, gets the
path that the mapping had; nbdkit's filter ``cow`` keeps what is written. The old mapping stays until the pool is
exported: a device that vanishes while a pool has it open has OpenZFS 2.3 mark it as removed, and a ``zpool clear`` that
comes before that is done never ended and took all of a CPU (seen with 2.3.9; like its pull request 16921).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from zvault.config.device_specs.rbd import RbdImage
from zvault.config.tables.device import Device
from zvault.core.errors import Busy, DeviceGone
from zvault.devices.layer import Data, DeviceSlot, FoundLayer, LayerJob, SayProgress
from zvault.devices.nbd import nbdkit
from zvault.devices.nbd.source import NbdSource
from zvault.devices.rbd import mapping as rbd_map
from zvault.devices.rbd.cluster import CephCluster
from zvault.system.system_bus import UnitState

COPY_ANSWER_SECONDS, COPY_TIMEOUT_WORD = 120.0, "270s"
"""For a request to the cluster, and one to the copy, which waits for that. If one fails while the pool is exported,
OpenZFS suspends the pool, and neither the export nor a ``zpool clear`` after it ever ends (its issue 6649); so they may
take as long as a cluster needs that an OSD is lost to."""


async def make_copy(
    job: LayerJob,
    path: str,
    image_id: str,
    cluster: CephCluster,
    nbd: NbdSource,
    write: Callable[[Data], None],
) -> str:
    """Have the copy at ``path``, where a mapping was; ``write`` puts what is to be taken down into the lease.

    Returns the device that ``path`` leads to: ``zpool list`` calls it that too.
    """
    device, image = job.device, job.device.image
    write({"path": path})
    argv = rbd_map.map_argv(
        image,
        cluster,
        exclusive=False,
        timeout=max(device.timeout, COPY_ANSWER_SECONDS),
        own_client=True,
        read_only=True,
    )
    before = rbd_map.list_mappings(image, image_id)
    await rbd_map.map_krbd(image, argv, cluster, nbd.runner, exclusive=False)
    mapping = next((one for one in rbd_map.list_mappings(image, image_id) if one not in before), None)
    if mapping is None:
        why = "rbd reported success, but the kernel does not have the mapping"
        raise DeviceGone(f"the RBD image {image} is not mapped", why, "see the kernel's log")
    spec = f"nbdkit:file {mapping.path} filter=cow cow-block-size={nbdkit.COW_BLOCK}"
    copy = Device.model_validate({"nbd": spec, "timeout": COPY_TIMEOUT_WORD})
    await nbd.check(copy)

    def noted(data: Data) -> None:
        write({"path": path, "nbd": data})

    inner = replace(job, device=copy, had={}, create=False, write=noted, resume=False, throw_away=False)
    over = await nbd.up(inner)
    _lead(Path(path), over)
    return over


def _lead(path: Path, to: str | None) -> None:
    """Have a path lead to a device, in the place of the mapping's own, which is set aside; None: as it was."""
    aside = path.with_name(f"{path.name}.shut-out")
    if to is not None:
        if path.is_block_device() and not path.is_symlink():
            path.rename(aside)
        path.unlink(missing_ok=True)
        path.symlink_to(to)
    elif aside.exists() and (rbd_map.MAPPING_SYS_BLOCK / path.name).exists():
        aside.replace(path)
    else:
        aside.unlink(missing_ok=True)
        if path.is_symlink():
            path.unlink()


def name_copy_unit(slot: DeviceSlot, data: Data, nbd: NbdSource) -> str | None:
    """The unit of its server."""
    return nbd.unit(slot, data["nbd"], None) if data.get("nbd") else None


def examine_copy(slot: DeviceSlot, data: Data, state: UnitState | None, nbd: NbdSource) -> FoundLayer:
    """Return what there is of it; reads /sys and /proc only."""
    if not data.get("nbd"):
        return FoundLayer("partial", "it is being brought up, or was when zvault stopped", present=True)
    found, link = nbd.look(slot, data["nbd"], state), Path(data["path"])
    if found.path is None or not link.is_symlink() or str(link.readlink()) != found.path:
        why = found.detail or f"{link} is not the copy any more"
        return replace(found, state="gone", path=None, detail=why)
    return found


async def remove_copy(
    slot: DeviceSlot,
    data: Data,
    image: RbdImage,
    image_id: str,
    cluster: CephCluster,
    nbd: NbdSource,
    say: SayProgress,
) -> None:
    """Take it down, whatever there is of it: the path, the copy, the mappings. May be done again.

    Raises DeviceGone while something has the mapping open that was shut out, or one of a copy: a pool that is not
    exported yet; or udev, which looks at each device that was written to, until all its reads have failed.
    """
    _lead(Path(data["path"]), None)
    if kept := data.get("nbd"):
        number = kept.get("number")
        ours = nbd.look(slot, kept, None).path if number is not None else None
        await nbd.down(slot, kept, FoundLayer(path=ours), lost=False, say=say)
    stays: DeviceGone | None = None
    for mapping in rbd_map.list_mappings(image, image_id):
        busy = await release_mapping(mapping, cluster, nbd, say)
        if busy is not None and (mapping.read_only or mapping.path == data["path"]):
            what = f"{mapping.path}, which the cluster refuses or a copy was made of, stays mapped"
            stays = stays or DeviceGone(what, busy.why, f"it is tried again; {busy.next}")
    if stays is not None:
        raise stays


async def release_mapping(
    mapping: rbd_map.ImageMapping, cluster: CephCluster, nbd: NbdSource, say: SayProgress
) -> Busy | None:
    """Unmap a mapping of a host that may have been shut out; one that something has open stays, and is told."""
    try:
        await rbd_map.unmap_image(mapping, cluster, nbd.runner)
    except Busy as busy:
        say(f"{mapping.path} stays mapped: {busy.why}")
        return busy
    return None
