"""Taking a vault over from another host: who has it, what is done, and doing it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from zvault.api.vaults import TakeoverDevice, TakeoverDocument
from zvault.config.schema import Device, Vault
from zvault.core.errors import Busy, Refused, ZvaultError
from zvault.devices.device_holder import StorageHolder, fence_holder, find_holder
from zvault.devices.layer import DeviceSlot
from zvault.ops.vaults.assembly import Say, VaultAssembly
from zvault.zfs.pool.pool import format_import


@dataclass(frozen=True, slots=True)
class DeviceHolder:
    """One device of a vault, and who has it."""

    slot: DeviceSlot
    device: Device
    holder: StorageHolder


async def list_holders(assembly: VaultAssembly) -> list[DeviceHolder]:
    """Ask the storage of each device who has it. Raises Refused for a vault on another host."""
    context, name, config = assembly.context, assembly.name, assembly.config
    if config.host is not None:
        raise Refused(
            f"the vault '{name}' is not this host's to take",
            f"its pool is on {config.host}",
            f"there: 'zpool import -f {config.pool}', once whoever has it is shut out of its disks",
        )
    slots = [DeviceSlot(name, index, context.env.paths.run / "device") for index in range(len(config.device))]
    return [
        DeviceHolder(slot, device, await find_holder(slot, device, context.env.runner))
        for slot, device in zip(slots, config.device, strict=True)
    ]


def make_takeover_document(name: str, config: Vault, held: list[DeviceHolder]) -> TakeoverDocument:
    """Describe what a takeover would do.

    ``holders`` is to be sent back with the order, so that nobody is shut out whom nobody was shown.
    """
    devices = [_row(one.slot.name, one.device.spec, one.holder) for one in held]
    if not config.device:
        why = "zvault knows nothing of its disks: nothing on this host can shut another out of them"
        devices = [_row(None, f"the pool {config.pool}", StorageHolder(state="not known", by_hand=why))]
    search = [word for one in held for word in ("-d", one.slot.name)]
    return {
        "vault": name,
        "pool": config.pool,
        "holders": [one.holder.who for one in held],
        "devices": devices,
        "command": shlex.join(format_import(config.pool, search, force=True)),
    }


def _row(device: str | None, spec: str, holds: StorageHolder) -> TakeoverDevice:
    return {
        "device": device,
        "spec": spec,
        "holder": holds.who,
        "state": holds.state,
        "by_hand": holds.by_hand,
        "steps": [{"what": step.what, "command": shlex.join(step.argv)} for step in holds.fence],
    }


def refuse_unless_fenced(document: TakeoverDocument, holders: object, *, by_hand: bool) -> None:
    """Raise Refused when others have it now than those shown, or zvault cannot shut them out and nobody says he did."""
    if holders != document["holders"]:
        raise Refused(
            f"the vault '{document['vault']}' has changed hands meanwhile",
            f"it is held by {', '.join(str(who) for who in document['holders'] if who) or 'nobody'} now",
            f"'zvaultctl vault take {document['vault']}' shows it anew",
        )
    needed = [device["by_hand"] for device in document["devices"] if device["by_hand"]]
    if needed and not by_hand:
        raise Refused(
            f"the vault '{document['vault']}' cannot be taken over: zvault cannot shut its last host out",
            "; ".join(needed),
            "switch that host off, or cut it off from the storage; then add --fenced-by-hand to say that you did",
        )


async def fence_holders(assembly: VaultAssembly, held: list[DeviceHolder], say: Say) -> None:
    """Shut out everybody who has a device of the vault. Each step is in the lease ``take/VAULT`` before it is made.

    After a crash nothing needs to be undone: who was shut out stays so, and another takeover goes on from there.
    Raises Busy when another host was faster: it has the vault then, and nothing is left to finish here.
    """
    leases, lease = assembly.context.records.undo, name_takeover_lease(assembly.name)
    for one in held:
        if one.holder.who is None:
            continue
        journal = {"device": one.slot.name, "holder": one.holder.who}
        leases.put(lease, journal)
        try:
            await fence_holder(one.slot, one.device, one.holder, assembly.context.env.runner, say)
        except Busy:
            leases.drop(lease)
            raise


def name_takeover_lease(vault: str) -> str:
    """Under which a takeover that is under way is written down."""
    return f"take/{vault}"


def find_unfinished_takeover(assembly: VaultAssembly) -> ZvaultError | None:
    """A takeover that a crash ended, in words; None where there is none."""
    vault = assembly.name
    lease = assembly.context.records.undo.get(name_takeover_lease(vault))
    if lease is None:
        return None
    return ZvaultError(
        f"a takeover of vault '{vault}' was not finished",
        f"it was shutting {lease['holder']} out of {lease['device']}",
        f"run 'zvaultctl vault take {vault}' again",
    )


async def refuse_if_up(assembly: VaultAssembly, users: object) -> None:
    """Raise Refused when this host has the vault itself."""
    if users or await assembly.anything_up():
        raise Refused(
            f"the vault '{assembly.name}' is up on this host, at least in part",
            "there is nobody to take it from",
            f"see 'zvaultctl vault status {assembly.name}', and 'zvaultctl vault down {assembly.name}'",
        )
