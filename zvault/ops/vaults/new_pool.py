"""Making a vault's pool: what will be run, and on which devices it may be."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from zvault.api.vaults import CreationDocument, CreationStep
from zvault.config.profile import VaultProfile
from zvault.config.schema import Vault
from zvault.core.errors import NotFound, Refused
from zvault.devices.device_state import BlockDevice
from zvault.devices.layer import MissingPart
from zvault.devices.stack import DeviceStack
from zvault.ops.vaults.earlier_pools import PoolHistory
from zvault.zfs.pool.pool import NewPool, Vdev


@dataclass(frozen=True, slots=True)
class PoolPermission:
    """The leave to make a vault's pool and devices, or what to tell of those that are not there."""

    allowed: bool
    absence: MissingPart = field(default_factory=MissingPart)


def make_new_pool(vault: Vault, profile: VaultProfile, paths: Sequence[str]) -> NewPool:
    """The pool to be made on devices at these paths, which are in the order of the configuration."""
    groups: dict[object, list[str]] = {}
    kinds: dict[object, Literal["data", "special"]] = {}
    for index, (device, path) in enumerate(zip(vault.device, paths, strict=True)):
        group = (device.vdev, device.mirror) if device.mirror is not None else index
        groups.setdefault(group, []).append(path)
        kinds[group] = device.vdev
    vdevs = [Vdev(kinds[group], tuple(paths_of_it)) for group, paths_of_it in groups.items()]
    dataset = dict(profile.dataset)
    if vault.special_small_blocks is not None:
        dataset["special_small_blocks"] = str(vault.special_small_blocks)
    return NewPool(vault.pool, vdevs, profile.pool, dataset, vault.encryption is not None)


def make_creation_document(
    name: str, vault: Vault, profile: VaultProfile, stack: DeviceStack
) -> CreationDocument:
    """List the commands that creating a vault would run, in order.

    Devices get their paths only when they are connected; until then their names stand for them. Nothing is asked
    of any device. Raises Refused for a vault whose pool zvault does not make.
    """
    _refuse_without_devices(name, vault)
    steps: list[CreationStep] = [
        {"device": device, "what": step.what, "command": shlex.join(step.argv)}
        for device, some in stack.making().items()
        for step in some
    ]
    pool = make_new_pool(vault, profile, list(stack.making()))
    steps.append(
        {
            "device": None,
            "what": "if all of these hold nothing, make the pool",
            "command": shlex.join(pool.argv()),
        }
    )
    return {"vault": name, "pool": vault.pool, "steps": steps}


def _refuse_without_devices(name: str, vault: Vault) -> None:
    if not vault.device:
        raise Refused(
            f"zvault does not make the pool of vault '{name}'",
            f"it is on {vault.host}" if vault.host is not None else "it has no devices in zvault.toml",
            f"'zpool create {vault.pool} …' by hand, where its disks are",
        )


PARTITION_ADVICE = (
    '; where the pool is in a partition of it, have that one served alone: nbd = "nbdkit:file PATH filter=partition'
    ' partition=1"'
)
"""zvault imports from the device that it connects, and from no partition that the kernel finds on it."""


async def refuse_unless_blank(stack: DeviceStack, devices: Sequence[BlockDevice], pool: str) -> None:
    """Raises Refused for the first device that holds anything."""
    for device in devices:
        blank, holds = await stack.blank(device.path)
        if not blank:
            raise Refused(
                f"the pool '{pool}' is not on {device.spec}, and zvault will not overwrite what is",
                f"the device holds {holds}",
                "check the vault's device and pool name; 'zpool import -d' tells what pool is there"
                + (PARTITION_ADVICE if "partition table" in holds else ""),
            )


def describe_absence(vault: Vault, history: PoolHistory, *, reading: bool) -> MissingPart:
    """Say what to tell where a vault's pool is not there, or a device to make it on, and none is made.

    ``reading``: nobody wants one made at this moment.
    """
    name = vault.name
    if history.pools:
        return MissingPart(
            f"the vault is not new: {'; '.join(map(str, history.pools))}",
            "find what it lies on: mount its disk, or correct its device in zvault.toml; if that pool is lost for good,"
            f" 'zvaultctl vault begin-anew {name}' lets the vault begin with a new, empty one",
        )
    if not vault.create:
        return MissingPart(
            "zvault makes a pool, and a device for it, only where it is told to",
            f"if this vault is new, run 'zvaultctl vault create {name}', or set 'create = true' in [vault.{name}] and"
            " the device's size; if it is not, find what it lies on",
        )
    if reading or history.doubt is None:
        return MissingPart(
            "so there is nothing in it",
            "if it was never backed up to, the next run makes it; if it was, check its devices in zvault.toml: they are"
            " not those that it lies on",
        )
    return MissingPart(
        f"whether the vault is new cannot be told: {history.doubt.what}",
        f"{history.doubt.next or 'the next try asks again'}; 'zvaultctl vault create {name}' makes its pool at once",
        retryable=history.doubt.retryable,
    )


def make_missing_pool_error(name: str, pool: str, missing: MissingPart) -> NotFound:
    """The error for a vault whose devices are blank and that should have its pool."""
    return missing.error(f"the pool '{pool}' is not on the devices of vault '{name}', and they are blank")


def refuse_unless_new(vault: Vault, history: PoolHistory) -> None:
    """Raises Refused for a vault that had a pool: a second one is made on purpose only."""
    # An image that was moved, or whose disk was not mounted, became a new pool in the root file system; everything was
    # sent again, and all was well.
    if history.pools:
        why = describe_absence(vault, history, reading=False)
        raise Refused(f"no new pool is made for vault '{vault.name}'", why.why, why.next)
