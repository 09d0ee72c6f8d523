"""What is, as documents: vaults, datasets, snapshots, plans. Changes nothing; the API and zvaultctl show them."""

from __future__ import annotations

import asyncio
from typing import Any

from zvault.core.errors import HostUnreachable, NotFound, ZvaultError
from zvault.core.lag import DatasetLag
from zvault.core.lineage import find_base
from zvault.core.model import Dataset
from zvault.core.names import excluded
from zvault.core.replication import TransferPlan
from zvault.devices.blockstore import document as document_of
from zvault.ops.context import Context
from zvault.ops.lag import lags
from zvault.ops.plan import Sides, look, plan_all
from zvault.ops.preview import prune_part, vault_is_down
from zvault.ops.vault import Keeper, Vaults
from zvault.zfs.stream import Flags
from zvault.zfs.zpool import Exporting

Document = dict[str, Any]


REMOTE_PATIENCE = 10.0
"""Seconds to wait for the host that a vault is on, when it is only looked at."""


def unknown_document(keeper: Keeper) -> Document:
    """One vault of which nothing is known but what zvault itself does with it."""
    return {
        "name": keeper.name,
        "pool": keeper.config.pool,
        "state": "down",
        "health": None,
        "size": None,
        "allocated": None,
        "free": None,
        "devices": [],
        "error": None,
    } | own_document(keeper)


def own_document(keeper: Keeper) -> Document:
    """The part of a vault's document that needs no look: what zvault itself does with it; ``error`` if there is one."""
    error = {"error": keeper.error.as_dict()} if keeper.error is not None else {}
    condition = keeper.context.conditions.get(keeper.name)
    return {
        "users": sorted(keeper.users),
        "pinned": keeper.pinned,
        "inhibitor": keeper.awake.held,
        "inhibitor_since": keeper.awake.since,
        "scrub": condition.document() if condition is not None else None,
        **error,
    }


async def vault_document(keeper: Keeper) -> Document:
    """One vault: its devices, pool and users. Never waits long, also when the pool hangs."""
    document = unknown_document(keeper)
    try:
        devices = await keeper.devices()
        async with asyncio.timeout(REMOTE_PATIENCE if keeper.config.host is not None else None):
            pool = await keeper.imported()
    except TimeoutError:
        late = HostUnreachable(f"{keeper.config.host} does not answer", "it was given 10 s")
        return {**document, "state": "gone", "error": late.as_dict()}
    except Exporting as error:
        stuck = await keeper.context.zpool.kernel_state(keeper.config.pool) == "SUSPENDED"
        found = {"state": "gone", "health": "SUSPENDED"} if stuck else {"state": "partial"}
        return {**document, **found, "error": document["error"] or error.as_dict()}
    except ZvaultError as error:
        return {**document, "state": "gone", "error": error.as_dict()}
    document["devices"] = [
        {
            "name": device.name,
            "spec": device.spec,
            "path": device.path,
            "state": device.state,
            "detail": device.detail,
            "size": device.size,
            "store": document_of(device.told, keeper.context.clock.time())
            if device.told is not None
            else None,
        }
        for device in devices
    ]
    if pool is not None:
        document |= {
            "health": pool.health,
            "size": pool.size,
            "allocated": pool.allocated,
            "free": pool.free,
        }
    document["state"] = _overall([device.state for device in devices], pool is not None)
    return document


def _overall(devices: list[str], imported: bool) -> str:
    if "gone" in devices:
        return "gone"
    if imported and all(state == "up" for state in devices):
        return "up"
    return "partial" if imported or any(state != "down" for state in devices) else "down"


async def list_document(
    context: Context, vaults: Vaults, only: str | None, *, snapshots: bool = False
) -> Document:
    """Every dataset of every backup (or of one), and their snapshots where asked for.

    A vault that is down is not brought up for this: its columns are null then.
    """
    names = [only] if only else list(context.config.backup)
    document: Document = {"datasets": [], "gone": []}
    if snapshots:
        document["snapshots"] = []
    for name in names:
        backup = context.backup(name)
        up = await context.pool_is_up(backup.vault)
        try:
            sides = await look(context, backup, context.vault_zfs(backup.vault) if up else None)
        except (NotFound, HostUnreachable):
            if only:
                raise
            continue
        found = lags(context, backup, sides)
        document["gone"] += _gone_rows(name, sides)
        for dataset, target in sides.pairs:
            there = sides.counterparts.get(dataset.name)
            document["datasets"].append(_row(name, dataset, target, there, found[dataset.name], up))
            if snapshots:
                document["snapshots"] += _snapshot_rows(name, dataset, there, up)
    return document


def _row(
    backup: str, dataset: Dataset, target: str, there: Dataset | None, lag: DatasetLag, up: bool
) -> Document:
    base = find_base(dataset, there) if there is not None else None
    return {
        "backup": backup,
        "dataset": dataset.name,
        "type": dataset.type,
        "vault_dataset": target,
        "used": dataset.used,
        "snapshots_source": len(dataset.snapshots),
        "snapshots_vault": len(there.snapshots if there else ()) if up else None,
        "base": base[1].tag if base else None,
        "lag_seconds": lag.seconds,
        "pending": lag.pending,
        "resumable": bool(there and there.resume_token),
    }


def _snapshot_rows(backup: str, dataset: Dataset, there: Dataset | None, up: bool) -> list[Document]:
    on_source = {snap.guid: snap for snap in dataset.snapshots}
    on_vault = {snap.guid: snap for snap in (there.snapshots if there else ())}
    base = find_base(dataset, there) if there is not None else None
    both = sorted({**on_vault, **on_source}.values(), key=lambda snap: (snap.creation, snap.createtxg))
    return [
        {
            "backup": backup,
            "dataset": dataset.name,
            "tag": snap.tag,
            "guid": str(snap.guid),
            "creation": snap.creation,
            "on_source": snap.guid in on_source,
            "on_vault": snap.guid in on_vault if up else None,
            "base": base is not None and base[1].guid == snap.guid,
        }
        for snap in both
    ]


async def plan_document(context: Context, vaults: Vaults, name: str, *, bring_up: bool) -> Document:
    """What a run would do now. ``bring_up`` lets an on-demand vault be brought up to look at it."""
    backup = context.backup(name)
    if bring_up:
        async with vaults[backup.vault].use(f"plan {name}", lambda _: None) as vault:
            sides = await look(context, backup, vault.zfs)
            return await _planned(context, name, sides)
    if not await context.pool_is_up(backup.vault):
        raise vault_is_down(backup.vault)
    return await _planned(context, name, await look(context, backup, context.vault_zfs(backup.vault)))


async def _planned(context: Context, name: str, sides: Sides) -> Document:
    backup = context.backup(name)
    plans = await plan_all(context, backup, sides)
    return {
        **await prune_part(context, name, sides),
        "datasets": [await _plan_row(context, name, plan, sides) for plan in plans],
        "excluded": [d.name for d in sides.source if excluded(d.name, backup.exclude) is not None],
        "gone": _gone_rows(name, sides),
    }


def _gone_rows(backup: str, sides: Sides) -> list[Document]:
    """What the vault keeps of datasets that are no longer on the source, and what was set aside there."""
    pairing = sides.pairing
    rows = [(one, "gone") for one in pairing.gone] + [(one, "set aside") for one in pairing.aside]
    return [
        {
            "backup": backup,
            "vault_dataset": one.name,
            "state": state,
            "used": one.used,
            "snapshots_vault": len(one.snapshots),
            "newest": newest.creation if (newest := one.newest()) is not None else None,
        }
        for one, state in rows
    ]


async def _plan_row(context: Context, name: str, plan: TransferPlan, sides: Sides) -> Document:
    flags = Flags.of(context.backup(name).send, sides.source.datasets[plan.dataset])
    return {
        "dataset": plan.dataset,
        "vault_dataset": plan.target,
        "action": str(plan.action),
        "written": sides.source.datasets[plan.dataset].written,
        "steps": [
            {
                "kind": str(step.kind),
                "from": step.base.tag if step.base else None,
                "to": step.to.tag,
                "bytes": await context.source_of(context.backup(name)).estimate(step, flags),
                "reason": step.reason,
            }
            for step in plan.steps
        ],
        "changes": [str(change) for change in plan.changes],
        "reason": plan.reason,
        "next": plan.next,
    }
