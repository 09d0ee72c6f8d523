"""RBD images: examine and create them. mapping.py maps them, image_owners.py knows their clients.

Facts about the tools were seen with Ceph 18.2.7 and Linux 7.2.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from zvault.config.device_specs.rbd import RbdImage
from zvault.core.errors import (
    DeadlineExceeded,
    DeviceGone,
    NotFound,
    Refused,
    ToolFailed,
    ZvaultError,
)
from zvault.core.units import format_size
from zvault.devices.rbd.cluster import MONITOR_TIMEOUT, CephCluster, make_caps_command
from zvault.system.process.runner import ProcessResult, ToolRunner

RBD_CALL_DEADLINE = 30.0
"""Seconds for one call; if monitors answer and OSDs do not, it would wait forever."""

LOCKED = "(30) Read-only file system"
"""The error of krbd and rbd-nbd when another client holds the exclusive lock and does not release it."""
_ETIMEDOUT = 110


def _shown(size: int | None) -> str | None:
    return None if size is None else format_size(size)


@dataclass(frozen=True, slots=True)
class ImageLayout:
    """An image's layout; sizes in bytes. None: not configured, so Ceph's default."""

    size: int | None = None
    data_pool: str | None = None
    object_size: int | None = None
    stripe_unit: int | None = None
    stripe_count: int | None = None
    features: tuple[str, ...] | None = None

    def differences(self, found: ImageLayout) -> list[str]:
        """List in words how an image differs from this layout. Additional features are harmless."""
        told = [
            f"{name} is {'none' if has is None else has}, not {want}"
            for name, want, has in (
                ("size", _shown(self.size), _shown(found.size)),
                ("data_pool", self.data_pool, found.data_pool),
                ("object_size", _shown(self.object_size), _shown(found.object_size)),
                ("stripe_unit", _shown(self.stripe_unit), _shown(found.stripe_unit)),
                ("stripe_count", self.stripe_count, found.stripe_count),
            )
            if want is not None and want != has
        ]
        missing = sorted(set(self.features or ()) - set(found.features or ()))
        return [*told, *(f"it has no {feature}" for feature in missing)]


@dataclass(frozen=True, slots=True)
class FoundImage:
    """An existing image; ``id`` distinguishes it from an image of the same name in another cluster or made later."""

    id: str
    shape: ImageLayout
    prefix: str = ""
    """What the names of its data objects begin with."""


# argv


def rbd_argv(cluster: CephCluster, *words: str) -> list[str]:
    """Return the argv of ``rbd``."""
    return ["rbd", *words, *cluster.words(), f"--client-mount-timeout={MONITOR_TIMEOUT}"]


def create_image_argv(image: RbdImage, shape: ImageLayout, cluster: CephCluster) -> list[str]:
    """Argv that makes an image. Raises ValueError without a size."""
    if shape.size is None:
        raise ValueError("an image needs a size")
    words = ["create", str(image), "--size", f"{shape.size}B"]
    if shape.data_pool is not None:
        words += ["--data-pool", shape.data_pool]
    if shape.object_size is not None:
        words += ["--object-size", f"{shape.object_size}B"]
    if shape.stripe_unit is not None:
        words += ["--stripe-unit", f"{shape.stripe_unit}B", "--stripe-count", str(shape.stripe_count or 1)]
    if shape.features is not None:
        words += ["--image-feature", ",".join(shape.features)]
    return rbd_argv(cluster, *words)


# Examining


async def check_rbd(runner: ToolRunner) -> None:
    """Check that ``rbd`` is installed. Raises ToolMissing."""
    await runner.run(["rbd", "--version"], deadline=RBD_CALL_DEADLINE)


async def find_image(image: RbdImage, cluster: CephCluster, runner: ToolRunner) -> FoundImage | None:
    """An image; None if its pool has no image of that name.

    Raises NotFound if the pool or namespace does not exist, DeviceGone if the cluster does not answer.
    """
    result = await call_cluster(
        rbd_argv(cluster, "info", "--format", "json", str(image)), image, cluster, runner
    )
    if result.returncode != 0:
        if f"error opening image {image.name}: (2)" in result.stderr:
            return None
        raise make_rbd_error(f"the RBD image {image} cannot be examined", result, image, cluster)
    return parse_image_info(result.stdout)


async def refuse_if_in_trash(image: RbdImage, cluster: CephCluster, runner: ToolRunner) -> None:
    """Raise NotFound, with what restores it, for an image that was moved to its pool's trash.

    A cluster that does not list the trash says nothing of that.
    """
    where = "/".join(filter(None, (image.pool, image.namespace)))
    argv = rbd_argv(cluster, "trash", "ls", "--format", "json", where)
    result = await call_cluster(argv, image, cluster, runner)
    try:
        found = json.loads(result.stdout) if result.returncode == 0 else []
        number = next((str(one["id"]) for one in found if one["name"] == image.name), None)
    except (ValueError, KeyError, TypeError):
        return
    if number is not None:
        restore = shlex.join(["rbd", "trash", "restore", *cluster.words(), f"{where}/{number}"])
        raise NotFound(
            f"the RBD image {image} is in the trash",
            f"somebody moved it there; its id is {number}",
            f"'{restore}' brings it back with all that is in it",
        )


def parse_image_info(text: str) -> FoundImage:
    """Parse ``rbd info --format json``. Without striping settings, a stripe is one object."""
    info = json.loads(text)
    size = int(info["object_size"])
    shape = ImageLayout(
        size=int(info["size"]),
        data_pool=info.get("data_pool"),
        object_size=size,
        stripe_unit=int(info.get("stripe_unit", size)),
        stripe_count=int(info.get("stripe_count", 1)),
        features=tuple(info["features"]),
    )
    return FoundImage(str(info["id"]), shape, str(info.get("block_name_prefix", "")))


# Creating


async def create_image(image: RbdImage, shape: ImageLayout, cluster: CephCluster, runner: ToolRunner) -> bool:
    """Create an image; False if it exists with this layout. Raises Refused if it exists with another layout."""
    existing = await find_image(image, cluster, runner)
    if existing is not None:
        if differences := shape.differences(existing.shape):
            raise Refused(
                f"the RBD image {image} exists and differs from the configuration",
                "; ".join(differences),
                "correct the configuration, or remove the image if you do not need its data",
            )
        return False
    result = await call_cluster(create_image_argv(image, shape, cluster), image, cluster, runner)
    if result.returncode == 0:
        return True
    what = f"the RBD image {image} cannot be created"
    if "(2) No such file" in result.stderr and shape.data_pool is not None:
        why = f"there is no pool '{shape.data_pool}'"
        raise NotFound(what, why, "create it ('ceph osd pool create'), or correct data_pool")
    raise make_rbd_error(what, result, image, cluster)


# Errors


async def call_cluster(
    argv: Sequence[str],
    image: RbdImage,
    cluster: CephCluster,
    runner: ToolRunner,
    deadline: float | None = None,
) -> ProcessResult:
    """Run a tool that queries the cluster. Raises DeviceGone if it does not answer within CALL_DEADLINE."""
    deadline = RBD_CALL_DEADLINE if deadline is None else deadline
    try:
        return await runner.run(argv, deadline=deadline, check=False)
    except DeadlineExceeded as error:
        raise DeviceGone(
            f"Ceph does not answer for {image}",
            f"its monitors answer, but the call had no answer within {deadline:g} s: OSDs may be down",
            _see(cluster),
        ) from error


def make_rbd_error(what: str, result: ProcessResult, image: RbdImage, cluster: CephCluster) -> ZvaultError:
    """Translate an error of ``rbd`` or rbd-nbd."""
    said = result.stderr + result.stdout
    if "unable to open config file" in said:
        return NotFound(what, f"there is no Ceph configuration at {cluster.conf}", "correct ceph.conf there")
    if "couldn't connect to the cluster" in said:
        return _no_cluster(what, result, cluster)
    for sign, missing in (
        (f"error opening pool '{image.pool}'", f"pool '{image.pool}'"),
        (
            f"namespace '{image.namespace}' does not exist",
            f"namespace '{image.namespace}' in pool '{image.pool}'",
        ),
    ):
        if sign in said:
            return NotFound(what, f"there is no {missing}", "correct it in the configuration, or create it")
    if "(1) Operation not permitted" in said or "(13) Permission denied" in said:
        user = f"client.{cluster.user or 'admin'}"
        caps = make_caps_command(cluster, [image.pool], image.namespace)
        advice = f"'{caps}', by the cluster's administrator, with a profile for the pool of its data too, if it has one"
        return Refused(what, f"Ceph does not let {user} do it", advice)
    if "feature set mismatch" in said:
        features = said.partition("rbd feature disable ")[2].partition('"')[0]
        why = f"the kernel lacks a feature of it: {' '.join(features.split()[1:])}"
        return ToolFailed(what, why, f"'rbd feature disable {features}', or set map = \"rbd-nbd\"")
    return ToolFailed(what, describe_rbd_failure(result), f"{_see(cluster)}, and the kernel's log")


def _no_cluster(what: str, result: ProcessResult, cluster: CephCluster) -> DeviceGone:
    if result.returncode == _ETIMEDOUT:
        return DeviceGone(what, f"no monitor of Ceph answered within {MONITOR_TIMEOUT} s", _see(cluster))
    why = f"Ceph does not let client.{cluster.user or 'admin'} in"
    return DeviceGone(what, why, "check the user and its keyring")


def _see(cluster: CephCluster) -> str:
    return f"see '{shlex.join(['ceph', *cluster.words(), 'status'])}'"


def describe_rbd_failure(result: ProcessResult) -> str:
    """The last message of ``rbd``, without the time stamps of its log."""
    lines = [line for line in result.stderr.splitlines() if line.startswith(("rbd", "librbd"))]
    return lines[-1].removeprefix("rbd: ") if lines else result.complaint()
