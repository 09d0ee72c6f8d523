"""What is, as documents: vaults, datasets, snapshots, plans. Changes nothing; the API and zvaultctl show them."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from zvault.api.backups import (
    DatasetDocument,
    GoneDocument,
    ListAnswer,
    PlanDocument,
    PlannedDocument,
    SnapshotDocument,
)
from zvault.api.vaults import DeviceDocument, UseDocument, VaultDocument, VaultState
from zvault.config.schema import Backup
from zvault.core.errors import HostUnreachable, NotFound, PoolSuspended, ZvaultError
from zvault.core.model import Dataset
from zvault.core.names import DatasetName
from zvault.core.replication.lag import DatasetLag
from zvault.core.replication.lineage import find_base
from zvault.core.replication.plan_model import TransferPlan
from zvault.devices.nbd.blockstore_server import document as store_document
from zvault.devices.stack import DeviceState
from zvault.ops.context import Context
from zvault.ops.replication.lag import lags
from zvault.ops.replication.sides_and_plan import Sides, Sizes, look, plan_all
from zvault.ops.retention.prune_report import prune_part, vault_is_down
from zvault.ops.vaults.past_record import pasts
from zvault.ops.vaults.vault import ManagedVault, Vaults
from zvault.zfs.pool.pool import Exporting
from zvault.zfs.stream import Flags

Placed = tuple[Dataset, DatasetName]
"""A dataset of a source, and the name that its counterpart on the vault should have."""

REMOTE_PATIENCE = 10.0
"""Seconds to wait for the host that a vault is on, when it is only looked at."""


def unknown_document(managed: ManagedVault) -> VaultDocument:
    """One vault of which nothing is known but what zvault itself does with it."""
    return {
        "name": managed.name,
        "pool": managed.config.pool,
        "state": "down",
        "health": None,
        "size": None,
        "allocated": None,
        "free": None,
        "devices": [],
        "error": managed.error.as_dict() if managed.error is not None else None,
        **own_document(managed),
    }


def own_document(managed: ManagedVault) -> UseDocument:
    """The part of a vault's document that needs no look: what zvault itself does with it."""
    condition = managed.context.records.conditions.get(managed.name)
    return {
        "hosts": list(managed.config.hosts),
        "held_by": managed.held_by(),
        "users": sorted(managed.users),
        "pinned": managed.pinned,
        "inhibitor": managed.awake.held,
        "inhibitor_since": managed.awake.since,
        "scrub": condition.document() if condition is not None else None,
        "past": [one.document() for one in pasts(managed.context.records.leases, managed.name)],
    }


async def vault_document(managed: ManagedVault) -> VaultDocument:
    """One vault: its devices, pool and users. Never waits long, also when the pool hangs."""
    document = unknown_document(managed)
    try:
        devices = await managed.devices()
        async with asyncio.timeout(REMOTE_PATIENCE if managed.config.host is not None else None):
            pool = await managed.imported()
    except TimeoutError:
        late = HostUnreachable(f"{managed.config.host} does not answer", "it was given 10 s")
        return {**document, "state": "gone", "error": late.as_dict()}
    except Exporting as error:
        stuck = await managed.context.clients.zpool.kernel_state(managed.config.pool) == "SUSPENDED"
        document["error"] = document["error"] or error.as_dict()
        if not stuck:
            return {**document, "state": "partial"}
        return {**document, "state": "gone", "health": "SUSPENDED"}
    except PoolSuspended as error:
        return {**document, "state": "gone", "health": "SUSPENDED", "error": error.as_dict()}
    except ZvaultError as error:
        return {**document, "state": "gone", "error": error.as_dict()}
    document["devices"] = [device_document(device, managed.context.env.clock.time()) for device in devices]
    if pool is not None:
        document["health"] = pool.health
        document["size"], document["allocated"], document["free"] = pool.size, pool.allocated, pool.free
    document["state"] = _overall([device.state for device in devices], pool is not None)
    return document


def device_document(device: DeviceState, now: float) -> DeviceDocument:
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


@dataclass(frozen=True, slots=True)
class Page:
    """A part of the datasets of one backup: so many, those that follow one by name; from the first if that is empty."""

    limit: int
    after: str = ""

    def of(self, pairs: Sequence[Placed]) -> tuple[Sequence[Placed], str | None]:
        """The pairs on it, and after which the next one begins; None where it is the last.

        Where the dataset that it follows is gone, it begins with what would come after that.
        """
        parts = DatasetName(self.after).parts
        start = bisect_right(pairs, parts, key=lambda pair: pair[0].name.parts) if self.after else 0
        end = start + self.limit
        return pairs[start:end], pairs[end - 1][0].name if end < len(pairs) else None


async def list_document(
    context: Context, vaults: Vaults, only: str | None, *, snapshots: bool = False, page: Page | None = None
) -> ListAnswer:
    """Every dataset of every backup (or of one), and their snapshots where asked for.

    A vault that is down is not brought up for this: its columns are null then. With a ``page``, some of those of one
    backup; on all but the first, ``used`` may be of when the first was asked for, and what is gone is not told again.
    """
    backups = [context.env.backup(only)] if only else list(context.env.config.backup.values())
    document: ListAnswer = {"datasets": [], "gone": []}
    both_sides: list[SnapshotDocument] = []
    for backup in backups:
        up = backup.vault is not None and await context.clients.pool_is_up(context.env.vault(backup.vault))
        try:
            sizes: Sizes = "none" if page is not None and page.after else "both"
            sides = await look(context, backup, context.clients.vault_of(backup) if up else None, sizes=sizes)
        except (NotFound, HostUnreachable):
            if only:
                raise
            continue
        found, none = lags(context, backup, sides), DatasetLag("", None, None)
        pairs: Sequence[Placed] = sides.pairs
        if page is None or not page.after:
            document["gone"] += gone_rows(backup.name, sides)
        if page is not None:
            pairs, document["next"] = page.of(pairs)
        for dataset, target in pairs:
            there = sides.counterparts.get(dataset.name)
            document["datasets"].append(
                dataset_document(
                    backup.name,
                    dataset,
                    target if backup.vault is not None else "",
                    there,
                    found.get(dataset.name, none),
                    context.env.clock.time(),
                    up=up,
                )
            )
            if snapshots:
                both_sides += snapshot_documents(backup.name, dataset, there, up)
    if snapshots:
        document["snapshots"] = both_sides
    return document


def dataset_document(
    backup: str,
    dataset: Dataset,
    target: str,
    there: Dataset | None,
    lag: DatasetLag,
    now: float,
    *,
    up: bool,
) -> DatasetDocument:
    """A dataset of a backup; ``there`` is what the vault has of it, ``up`` whether that could be seen."""

    base = find_base(dataset, there) if there is not None else None
    return {
        "backup": backup,
        "dataset": dataset.name,
        "type": dataset.type,
        "vault_dataset": target,
        "used": dataset.used,
        "snapshots_source": len(dataset.snapshots),
        "snapshots_vault": len(there.snapshots if there else ()) if up else None,
        "base": base[1].snapname if base else None,
        "lag_seconds": lag.age(now),
        "pending": lag.pending,
        "resumable": bool(there and there.resume_token),
    }


def snapshot_documents(
    backup: str, dataset: Dataset, there: Dataset | None, up: bool
) -> list[SnapshotDocument]:
    """The snapshots of a dataset on both sides, oldest first; see ``dataset_document``."""
    on_source = {snap.guid: snap for snap in dataset.snapshots}
    on_vault = {snap.guid: snap for snap in (there.snapshots if there else ())}
    base = find_base(dataset, there) if there is not None else None
    both = sorted({**on_vault, **on_source}.values(), key=lambda snap: (snap.creation, snap.createtxg))
    return [
        {
            "backup": backup,
            "dataset": dataset.name,
            "snapname": snap.snapname,
            "guid": str(snap.guid),
            "creation": snap.creation,
            "on_source": snap.guid in on_source,
            "on_vault": snap.guid in on_vault if up else None,
            "base": base is not None and base[1].guid == snap.guid,
        }
        for snap in both
    ]


async def plan_document(context: Context, vaults: Vaults, backup: Backup, *, bring_up: bool) -> PlanDocument:
    """What a run would do now. ``bring_up`` lets an on-demand vault be brought up to look at it."""
    if backup.vault is None:
        return await _planned(context, backup, await look(context, backup, None))
    if bring_up:
        async with vaults[backup.vault].use(f"plan {backup.name}", lambda _: None) as vault:
            sides = await look(context, backup, vault.zfs)
            return await _planned(context, backup, sides)
    if not await context.clients.pool_is_up(context.env.vault(backup.vault)):
        raise vault_is_down(backup.vault)
    return await _planned(context, backup, await look(context, backup, context.clients.vault_of(backup)))


async def _planned(context: Context, backup: Backup, sides: Sides) -> PlanDocument:
    plans = await plan_all(context, backup, sides) if backup.vault is not None else []
    return {
        **await prune_part(context, backup, sides),
        "makes_snapshot": backup.snapshot.make,
        "datasets": await planned_documents(context, backup, plans, sides)
        if backup.vault is not None
        else not_sent_documents(sides),
        "excluded": [dataset.name for dataset, _ in sides.left_out],
        "gone": gone_rows(backup.name, sides),
    }


async def planned_documents(
    context: Context, backup: Backup, plans: Sequence[TransferPlan], sides: Sides
) -> list[PlannedDocument]:
    """What is planned for each dataset, with the sizes of its streams."""
    return [await _plan_row(context, backup, plan, sides) for plan in plans]


def not_sent_documents(sides: Sides) -> list[PlannedDocument]:
    """The same where a backup has no vault."""
    return [
        {
            "dataset": dataset.name,
            "vault_dataset": "",
            "action": "nothing",
            "written": dataset.written,
            "steps": [],
            "changes": [],
            "reason": "this backup makes snapshots only",
            "next": "",
        }
        for dataset, _ in sides.pairs
    ]


def gone_rows(backup: str, sides: Sides) -> list[GoneDocument]:
    """What the vault keeps of datasets that are no longer on the source, and what was set aside there."""
    pairing = sides.pairing
    return [
        *(gone_document(backup, one, "gone") for one in pairing.gone),
        *(gone_document(backup, one, "set aside") for one in pairing.aside),
    ]


def gone_document(backup: str, there: Dataset, state: Literal["gone", "set aside"]) -> GoneDocument:
    """What a vault has of a dataset that the source does not have."""
    newest = there.newest()
    return {
        "backup": backup,
        "vault_dataset": there.name,
        "state": state,
        "used": there.used,
        "snapshots_vault": len(there.snapshots),
        "newest": newest.creation if newest is not None else None,
    }


async def _plan_row(context: Context, backup: Backup, plan: TransferPlan, sides: Sides) -> PlannedDocument:
    dataset = sides.source.datasets[plan.dataset]
    flags = Flags.of(backup.send, dataset)
    sizes = [await context.clients.source_of(backup).estimate(step, flags) for step in plan.steps]
    return planned_document(plan, dataset.written, sizes)


def planned_document(plan: TransferPlan, written: int, sizes: Sequence[int | None]) -> PlannedDocument:
    """What a run would do with one dataset; ``sizes`` are those of the plan's steps."""
    return {
        "dataset": plan.dataset,
        "vault_dataset": plan.target,
        "action": str(plan.action),
        "written": written,
        "steps": [
            {
                "kind": str(step.kind),
                "from": step.base.shortname if step.base else None,
                "to": step.to.snapname,
                "bytes": size,
                "reason": step.reason,
            }
            for step, size in zip(plan.steps, sizes, strict=True)
        ],
        "changes": [str(change) for change in plan.changes],
        "reason": plan.reason,
        "next": plan.next,
    }
