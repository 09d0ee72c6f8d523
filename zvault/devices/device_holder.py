"""Which host has a vault's device, and how it is shut out of it before another takes the vault over."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from zvault.config.tables.device import Device
from zvault.core.errors import Refused, ZvaultError
from zvault.core.units import format_duration
from zvault.devices.layer import CreationCommand, DeviceSlot, SayProgress
from zvault.devices.nbd import guarded_server
from zvault.devices.rbd import image_owners as rbd_holder
from zvault.devices.rbd.image_lease import keeper_argv, make_cluster
from zvault.devices.s3_lease.guard_command import guard_argv
from zvault.system.process.runner import ProcessRunner

SHOW_LEASE_DEADLINE = 60.0
"""Seconds to read a lease; it starts an interpreter and asks the store once."""


@dataclass(frozen=True, slots=True)
class StorageHolder:
    """The holder of a device, and what shuts it out.

    ``who`` is None where nobody has it, or nobody can tell; ``state`` how it does, in words that change with time.
    ``fence`` is what is run, in this order; ``by_hand`` why zvault cannot do it, None where it can.
    """

    who: str | None = None
    state: str = ""
    fence: tuple[CreationCommand, ...] = field(default_factory=tuple)
    by_hand: str | None = None


async def find_holder(slot: DeviceSlot, device: Device, runner: ProcessRunner) -> StorageHolder:
    """Ask the storage. Raises DeviceGone, Refused… when it does not answer."""
    if device.rbd is not None:
        return await _rbd_holder(device, runner)
    bound = device.lease_bound
    if bound is not None:
        return await _lease_holder(slot, device, bound, runner)
    why = "it has exclusive = false" if not device.exclusive else "an NBD server knows no lock"
    return StorageHolder(
        state="not known", by_hand=f"{why}: nothing on this host can shut another out of {device.spec}"
    )


async def _rbd_holder(device: Device, runner: ProcessRunner) -> StorageHolder:
    image, cluster = device.image, make_cluster(device)
    found = await rbd_holder.list_owners(image, cluster, runner)
    # After the image's owners: who maps it has the lease before.
    leased = None if device.lease_bound is None else await _image_lease(device, device.lease_bound, runner)
    if not found:
        return leased if leased is not None else StorageHolder(state="nobody has it open")
    steps = [
        CreationCommand("shut it out of the cluster" if argv[0] == "ceph" else "take its lock", argv)
        for owner in found
        for argv in rbd_holder.fence_argvs(image, owner, cluster)
    ]
    live = any(owner.watches for owner in found)
    state = "has it open" if live else "has the lock, but has not answered the cluster for 30 s"
    if leased is not None and leased.who is not None:
        state = f"{state}; {leased.who}, {leased.state}"
        steps += leased.fence  # last: until it is shut out, nobody else may take its lease for nobody's
    return StorageHolder(", ".join(owner.words() for owner in found), state, tuple(steps))


async def _lease_holder(
    slot: DeviceSlot, device: Device, bound: float, runner: ProcessRunner
) -> StorageHolder:
    said = await _ask_guard(_argv("show", slot, device, bound), device, runner, SHOW_LEASE_DEADLINE)
    return _of_lease(said, lambda of: _argv("take", slot, device, bound, of=of))


async def _image_lease(device: Device, bound: float, runner: ProcessRunner) -> StorageHolder:
    said = await _ask_guard(keeper_argv(device, "show"), device, runner, SHOW_LEASE_DEADLINE)
    return _of_lease(said, lambda of: keeper_argv(device, "take", f"--bound={bound:g}", f"--of={of}"))


def _of_lease(said: dict[str, Any], taking: Callable[[str], list[str]]) -> StorageHolder:
    if said["lease"] is None:
        return StorageHolder(state="nobody has the lease")
    from zvault.devices.s3_lease.lease_object import LeaseContent

    lease = LeaseContent(**said["lease"])
    argv = taking(lease.boot)
    take = CreationCommand("replace its lease, and wait until it has stopped", argv)
    if said["age"] > lease.bound:
        state = f"has not renewed its lease for {format_duration(said['age'])}, and so has stopped"
    else:
        state = f"renewed its lease {format_duration(said['age'])} ago; stops within {format_duration(lease.bound)}"
    return StorageHolder(lease.owner(), state, (take,))


async def fence_holder(
    slot: DeviceSlot, device: Device, holds: StorageHolder, runner: ProcessRunner, say: SayProgress
) -> None:
    """Shut out whoever ``holds`` tells of, and see that it is so. Raises what went wrong; then it may be not."""
    if device.rbd is not None:
        for step in holds.fence:
            say(f"{step.what}: {shlex.join(step.argv)}")
            if step.argv[0] == sys.executable:
                await _ask_guard(step.argv, device, runner, _patience(device))
                continue
            result = await runner.run(step.argv, deadline=rbd_holder.WATCH_TIMEOUT, check=False)
            # A lock that is gone meanwhile is what was wanted.
            if result.returncode != 0 and "(2) No such file" not in result.stderr:
                raise Refused(
                    f"{holds.who} is not shut out of {device.spec}",
                    f"'{shlex.join(step.argv[:4])}' failed: {result.complaint()}",
                    "nothing was imported; see that the user may do that ('profile rbd')",
                )
        await _refuse_if_still_locked(device, holds, runner)
    elif device.lease_bound is not None and holds.who is not None:
        say(f"taking the lease of {device.spec} from {holds.who}")
        began = time.monotonic()
        for step in holds.fence:
            await _ask_guard(step.argv, device, runner, _patience(device))
        say(f"it has stopped, after {format_duration(time.monotonic() - began)}")


def _patience(device: Device) -> float:
    """Seconds to take a lease: the other's bound may be longer than ours, and an hour is more than anybody sets."""
    return max(3600.0, 4 * (device.lease_bound or 0.0))


async def _refuse_if_still_locked(device: Device, holds: StorageHolder, runner: ProcessRunner) -> None:
    locked = [
        owner
        for owner in await rbd_holder.list_owners(device.image, make_cluster(device), runner)
        if owner.lock
    ]
    if locked:
        raise Refused(
            f"the RBD image {device.image} is locked again",
            f"{', '.join(owner.words() for owner in locked)} was faster",
            "see 'zvaultctl vault take VAULT -n' for who has it now",
        )


def _argv(verb: str, slot: DeviceSlot, device: Device, bound: float, *, of: str = "") -> list[str]:
    spec = device.server
    if not isinstance(spec, guarded_server.Guarded):
        raise TypeError("only blocks in an object store have a lease")
    return guard_argv(verb, bound, guarded_server.server_argv(slot, spec), of=of)


async def _ask_guard(
    argv: Sequence[str], device: Device, runner: ProcessRunner, deadline: float
) -> dict[str, Any]:
    result = await runner.run(argv, deadline=deadline, check=False)
    try:
        said: dict[str, Any] = json.loads(result.stdout)
    except ValueError:
        raise ZvaultError(f"the lease of {device.spec} cannot be had", result.complaint()) from None
    if "error" in said:
        raise guarded_server.parse_reported_error(said["error"])
    return said
