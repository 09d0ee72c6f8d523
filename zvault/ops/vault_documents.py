"""A vault and its devices as documents, for the API and zvaultctl. Changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from zvault.api.vaults import DeviceDocument, UseDocument, VaultDocument, VaultState
from zvault.core.errors import HostUnreachable, PoolSuspended, ZvaultError
from zvault.devices.device_state import DeviceState
from zvault.devices.nbd.blockstore_server import make_store_document as store_document
from zvault.ops.vaults.past_record import list_past_vaults
from zvault.ops.vaults.vault import ManagedVault
from zvault.zfs.pool.pool import PoolExporting

REMOTE_PATIENCE = 10.0
"""Seconds to wait for the host that a vault is on, when it is only looked at."""


def make_unknown_document(managed: ManagedVault) -> VaultDocument:
    """One vault of which nothing is known but what zvault itself does with it."""
    return {
        "name": managed.name,
        "pool": managed.config.pool,
        "state": "down",
        "health": None,
        "readonly": False,
        "multihost": None,
        "failmode": None,
        "size": None,
        "allocated": None,
        "free": None,
        "devices": [],
        "error": managed.error.as_dict() if managed.error is not None else None,
        **make_own_document(managed),
    }


def make_own_document(managed: ManagedVault) -> UseDocument:
    """The part of a vault's document that needs no look: what zvault itself does with it."""
    condition = managed.context.records.conditions.get(managed.name)
    return {
        "hosts": list(managed.config.hosts),
        "held_by": managed.held_by(),
        "away": managed.is_away(),
        "users": sorted(managed.users),
        "pinned": managed.pinned,
        "inhibitor": managed.awake.held,
        "inhibitor_since": managed.awake.since,
        "scrub": condition.document() if condition is not None else None,
        "foreign": list(condition.foreign) if condition is not None else [],
        "past": [one.document() for one in list_past_vaults(managed.context.records.undo, managed.name)],
    }


async def make_vault_document(managed: ManagedVault) -> VaultDocument:
    """One vault: its devices, pool and users. Never waits long, also when the pool hangs."""
    document = make_unknown_document(managed)
    try:
        devices = await managed.devices()
        async with asyncio.timeout(REMOTE_PATIENCE if managed.config.host is not None else None):
            pool = await managed.imported()
    except TimeoutError:
        late = HostUnreachable(f"{managed.config.host} does not answer", "it was given 10 s")
        return {**document, "state": "gone", "error": late.as_dict()}
    except PoolExporting as error:
        stuck = await managed.context.clients.zpool.kernel_state(managed.config.pool) == "SUSPENDED"
        document["error"] = document["error"] or error.as_dict()
        if not stuck:
            return {**document, "state": "partial"}
        return {**document, "state": "gone", "health": "SUSPENDED"}
    except PoolSuspended as error:
        return {**document, "state": "gone", "health": "SUSPENDED", "error": error.as_dict()}
    except ZvaultError as error:
        return {**document, "state": "gone", "error": error.as_dict()}
    document["devices"] = [
        make_device_document(device, managed.context.env.clock.time()) for device in devices
    ]
    if pool is not None:
        document["health"], document["readonly"] = pool.health, pool.readonly
        document["multihost"], document["failmode"] = pool.multihost, pool.failmode or None
        document["size"], document["allocated"], document["free"] = pool.size, pool.allocated, pool.free
    document["state"] = _overall([device.state for device in devices], pool is not None)
    return document


def make_device_document(device: DeviceState, now: float) -> DeviceDocument:
    """One device of a vault as the API sends it."""
    return {
        "name": device.name,
        "spec": device.spec,
        "path": device.path,
        "state": device.state,
        "detail": device.detail,
        "size": device.size,
        "store": store_document(device.told, now) if device.told is not None else None,
    }


def _overall(devices: Sequence[str], imported: bool) -> VaultState:
    if "gone" in devices:
        return "gone"
    if imported and all(state == "up" for state in devices):
        return "up"
    return "partial" if imported or any(state != "down" for state in devices) else "down"
