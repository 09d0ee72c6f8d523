"""What a Ceph user may do with an image, and whether the image's pools take writes: tried before it is mapped.

Too few rights show late otherwise. With none on the data pool krbd maps the image all the same, and each read of it
fails; with a mon capability that is too small the lock of a dead host stays for ever. In a pool that is full each write
waits.

Nothing is changed by it: removing an object that no image has needs the right to write, and the address that is put on
the blocklist is nobody's. Facts about the tools were seen with Ceph 18.2.7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from zvault.config.device_specs.rbd import RbdImage
from zvault.core.errors import DeviceGone, Refused, ToolFailed
from zvault.devices.rbd.cluster import CephCluster, find_blocked_pools, make_caps_command, may_blocklist
from zvault.devices.rbd.image import FoundImage, call_cluster
from zvault.system.process.runner import ToolRunner

NO_OBJECT = "f" * 16
"""The number of a data object beyond the end of any image."""


@dataclass(frozen=True, slots=True)
class ImageAccess:
    """The rights that a user lacks for an image, in words; and the command that gives them all."""

    lacking: tuple[str, ...]
    command: str

    def refuse_lacking(self, image: RbdImage, cluster: CephCluster) -> None:
        """Raises Refused where any right is lacking."""
        if self.lacking:
            raise Refused(
                f"client.{cluster.user or 'admin'} of Ceph may not do all that the RBD image {image} needs",
                f"it may not {', nor '.join(self.lacking)}",
                f"'{self.command}', by the cluster's administrator; it replaces what the user may do, so add what else"
                " it is used for",
            )


def list_image_pools(image: RbdImage, found: FoundImage) -> tuple[str, ...]:
    """The pools that an image lies in: its own, and that of its data, where that is another."""
    data = found.shape.data_pool
    return (image.pool,) if data in (None, image.pool) else (image.pool, data or "")


async def try_access(
    image: RbdImage, found: FoundImage, cluster: CephCluster, runner: ToolRunner, *, locks: bool = False
) -> ImageAccess:
    """Try what the user may do. ``locks``: also shut a dead client out, which breaking its lock needs.

    Call ``refuse_blocked`` before: in a pool that is full, this waits. Raises DeviceGone where the cluster does not
    answer.
    """
    objects = dict.fromkeys(list_image_pools(image, found), f"{found.prefix}.{NO_OBJECT}")
    if len(objects) > 1:
        objects[image.pool] = f"rbd_header.{found.id}.zvault"
    may = await asyncio.gather(
        *(_may_write(image, pool, name, cluster, runner) for pool, name in objects.items())
    )
    lacking = [f"write to pool '{pool}'" for pool, allowed in zip(objects, may, strict=True) if not allowed]
    if locks and not await may_blocklist(cluster, runner):
        lacking.append("shut a dead client out ('ceph osd blocklist add'), which breaking its lock needs")
    return ImageAccess(tuple(lacking), make_caps_command(cluster, list(objects), image.namespace))


async def _may_write(image: RbdImage, pool: str, name: str, cluster: CephCluster, runner: ToolRunner) -> bool:
    """True if the user may remove an object, which is not there. What else goes wrong is no answer to that."""
    space = ["--namespace", image.namespace] if image.namespace else []
    argv = ["rados", *cluster.words(), "--pool", pool, *space, "rm", name]
    result = await call_cluster(argv, image, cluster, runner)
    return result.returncode == 0 or "(1) Operation not permitted" not in result.stderr


async def refuse_blocked(
    image: RbdImage, found: FoundImage, cluster: CephCluster, runner: ToolRunner
) -> None:
    """Raises DeviceGone where a pool of the image takes no writes: each would wait. Ask again later.

    A user who may not ask the monitors is not told.
    """
    with suppress(ToolFailed):
        blocked = await find_blocked_pools(list_image_pools(image, found), cluster, runner)
        if blocked:
            raise make_blocked_error(image, blocked)


def make_blocked_error(image: RbdImage, blocked: Mapping[str, tuple[str, str]]) -> DeviceGone:
    """The error for an image of which some pools take no writes: by pool, why, and what helps."""
    why = "; ".join(f"pool '{pool}' {reason}" for pool, (reason, _) in blocked.items())
    return DeviceGone(
        f"Ceph takes no writes to the RBD image {image}",
        f"{why}: each write waits",
        "; ".join(dict.fromkeys(advice for _, advice in blocked.values())),
    )


async def check_access(
    image: RbdImage, found: FoundImage, cluster: CephCluster, runner: ToolRunner, *, locks: bool
) -> None:
    """Raises Refused where the user may not do all that the image needs, DeviceGone where a pool takes no writes."""
    await refuse_blocked(image, found, cluster, runner)
    (await try_access(image, found, cluster, runner, locks=locks)).refuse_lacking(image, cluster)


async def find_access_problem(
    image: RbdImage, found: FoundImage, cluster: CephCluster, runner: ToolRunner
) -> str:
    """What ``check_access`` refuses, in one line with its advice; empty where it refuses nothing."""
    try:
        await check_access(image, found, cluster, runner, locks=True)
    except (Refused, DeviceGone) as error:
        return f"{error.what}: {error.why}. {error.next}"
    return ""
