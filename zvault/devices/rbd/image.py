"""RBD images: look at one, make one, and know who has it. Mapping them is in rbd_map.py.

What is said of the tools was seen with Ceph 18.2.7 and Linux 7.2.
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
from zvault.devices.rbd.cluster import MONITOR_TIMEOUT, Cluster
from zvault.system.process.runner import Result, ToolRunner

CALL_DEADLINE = 30.0
"""Seconds for one question; with monitors that answer and OSDs that do not it would wait for ever."""

LOCKED = "(30) Read-only file system"
"""What krbd and rbd-nbd say when another client has the exclusive lock and keeps it."""
_ETIMEDOUT = 110


def _shown(size: int | None) -> str | None:
    return None if size is None else format_size(size)


@dataclass(frozen=True, slots=True)
class ImageLayout:
    """How an image is laid out; sizes in bytes. None: not asked for, so Ceph's own default."""

    size: int | None = None
    data_pool: str | None = None
    object_size: int | None = None
    stripe_unit: int | None = None
    stripe_count: int | None = None
    features: tuple[str, ...] | None = None

    def differences(self, found: ImageLayout) -> list[str]:
        """What an image does not have of this, in words. Features it has beyond these do no harm."""
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
class Image:
    """An image that exists; ``id`` tells it from one of the same name in another cluster, or made anew."""

    id: str
    shape: ImageLayout


# argv


def command(cluster: Cluster, *words: str) -> list[str]:
    """Argv of ``rbd``."""
    return ["rbd", *words, *cluster.words(), f"--client-mount-timeout={MONITOR_TIMEOUT}"]


def create_command(image: RbdImage, shape: ImageLayout, cluster: Cluster) -> list[str]:
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
    return command(cluster, *words)


# Looking


async def check(runner: ToolRunner) -> None:
    """See that rbd is there. Raises ToolMissing."""
    await runner.run(["rbd", "--version"], deadline=CALL_DEADLINE)


async def find(image: RbdImage, cluster: Cluster, runner: ToolRunner) -> Image | None:
    """An image, or None where its pool has none of that name.

    Raises NotFound for a pool or namespace that is not there; DeviceGone when the cluster does not answer.
    """
    result = await call(command(cluster, "info", "--format", "json", str(image)), image, cluster, runner)
    if result.returncode != 0:
        if f"error opening image {image.name}: (2)" in result.stderr:
            return None
        raise failure(f"the RBD image {image} cannot be examined", result, image, cluster)
    return parse_info(result.stdout)


def parse_info(text: str) -> Image:
    """``rbd info --format json``. An image without striping of its own has stripes of one object."""
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
    return Image(str(info["id"]), shape)


# Making


async def create(image: RbdImage, shape: ImageLayout, cluster: Cluster, runner: ToolRunner) -> bool:
    """Make an image; False if it is there already, as it should be. Raises Refused if it is there and otherwise."""
    existing = await find(image, cluster, runner)
    if existing is not None:
        if differences := shape.differences(existing.shape):
            raise Refused(
                f"the RBD image {image} exists, and is not as the configuration has it",
                "; ".join(differences),
                "correct the configuration, or remove the image if nothing on it is needed",
            )
        return False
    result = await call(create_command(image, shape, cluster), image, cluster, runner)
    if result.returncode == 0:
        return True
    what = f"the RBD image {image} cannot be made"
    if "(2) No such file" in result.stderr and shape.data_pool is not None:
        why = f"there is no pool '{shape.data_pool}'"
        raise NotFound(what, why, "make it ('ceph osd pool create'), or correct data_pool")
    raise failure(what, result, image, cluster)


# What went wrong


async def call(
    argv: Sequence[str],
    image: RbdImage,
    cluster: Cluster,
    runner: ToolRunner,
    deadline: float | None = None,
) -> Result:
    """Run a tool that asks the cluster. Raises DeviceGone when it does not answer within CALL_DEADLINE."""
    deadline = CALL_DEADLINE if deadline is None else deadline
    try:
        return await runner.run(argv, deadline=deadline, check=False)
    except DeadlineExceeded as error:
        raise DeviceGone(
            f"Ceph does not answer for {image}",
            f"its monitors do, but no answer came within {deadline:g} s: OSDs may be down",
            _see(cluster),
        ) from error


def failure(what: str, result: Result, image: RbdImage, cluster: Cluster) -> ZvaultError:
    """The error that ``rbd`` or rbd-nbd means."""
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
            return NotFound(what, f"there is no {missing}", "correct it in the configuration, or make it")
    if "feature set mismatch" in said:
        features = said.partition("rbd feature disable ")[2].partition('"')[0]
        why = f"the kernel lacks a feature of it: {' '.join(features.split()[1:])}"
        return ToolFailed(what, why, f"'rbd feature disable {features}', or set map = \"rbd-nbd\"")
    return ToolFailed(what, describe(result), f"{_see(cluster)}, and the kernel's log")


def _no_cluster(what: str, result: Result, cluster: Cluster) -> DeviceGone:
    if result.returncode == _ETIMEDOUT:
        return DeviceGone(what, f"no monitor of Ceph answered within {MONITOR_TIMEOUT} s", _see(cluster))
    why = f"Ceph does not let client.{cluster.user or 'admin'} in"
    return DeviceGone(what, why, "see that the user and its keyring are right")


def _see(cluster: Cluster) -> str:
    return f"see '{shlex.join(['ceph', *cluster.words(), 'status'])}'"


def describe(result: Result) -> str:
    """What ``rbd`` said last, without its log's time stamps."""
    lines = [line for line in result.stderr.splitlines() if line.startswith(("rbd", "librbd"))]
    return lines[-1].removeprefix("rbd: ") if lines else result.complaint()
