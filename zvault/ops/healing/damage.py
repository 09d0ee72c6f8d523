"""What is known of a vault's health: one look at its pool, and its damage by dataset, snapshot and file."""

from __future__ import annotations

from collections.abc import Sequence

from zvault.api.emit import Emit
from zvault.config.schema import Vault
from zvault.core.errors import Damaged
from zvault.core.integrity.damage import (
    METADATA,
    Damage,
    HealTarget,
    LoggedBlock,
    Object,
    Search,
    damages_of,
    files,
    leak_advice,
    located,
    wounds,
)
from zvault.core.model import Dataset, Snapshot, Tree
from zvault.ops.context import Context
from zvault.ops.state.clients import Clients
from zvault.ops.state.pool_health import Condition, Conditions
from zvault.ops.vaults.health import look_at
from zvault.zfs.client import Zfs
from zvault.zfs.pool.scrub import Scrubber
from zvault.zfs.repair.damage_name_guard import NamesForbidden
from zvault.zfs.repair.damage_names import named, object_ids
from zvault.zfs.repair.error_log import ErrorLog

NAMED = 20
"""Damages told by name in a run's warnings; the vault's status has them all."""


async def name_damage(context: Context, vault: Vault) -> list[HealTarget]:
    """List the damage of a vault that is up, as exactly as it is known, and note it by name as its condition.

    While anything is half received in full there the kernel is not asked for names, for that would crash it: zdb(8)
    alone tells then, where it can be asked, and nothing of what is half received counts as damage.
    """
    pool, zfs, zpool = vault.pool, context.clients.vault_zfs(vault), context.clients.zpool_of(vault)
    await zpool.sync(pool)  # the log is on disk at the end of a transaction group
    condition = await look_at(context, vault.name)
    log = await error_log(context.clients, vault) if condition.errors else None
    # First the log: to have names listed makes ZFS forget what is in old snapshots only.
    logged = await log.entries(await object_ids(zfs.host, pool)) if log is not None else None
    half: Sequence[str] = ()
    try:
        async with context.clients.damage_names.permit_names(zfs.host, pool) as permit:
            names = await named(zfs.host, pool, await Scrubber(zfs.host).errors(permit))
    except NamesForbidden as forbidden:
        names, half = [], forbidden.datasets or (pool,)
        logged = [one for one in logged if one.dataset not in half] if logged is not None else None
    found = wounds(names)
    if log is not None and logged is not None:
        found = await _located(log, zfs, pool, logged, names) or found
    there = {wound.logged for wound in found}
    found += [wound for wound in condition.wounds if wound.logged not in there]
    note_damage(context.records.conditions, vault, damages_of(found, names), found, half)
    return found


def note_damage(
    conditions: Conditions,
    vault: Vault,
    damages: Sequence[Damage],
    found: Sequence[HealTarget] = (),
    half_received: Sequence[str] = (),
) -> None:
    """Note what is damaged in a vault that was just looked at, by name and by block."""
    if (known := conditions.get(vault.name)) is not None:
        conditions.put(vault.name, known.hurt(damages, found, half_received))


async def error_log(clients: Clients, vault: Vault) -> ErrorLog | None:
    """The error log of a vault that is up; None where it is on another host."""
    if vault.host is not None:
        return None
    return ErrorLog(clients.vault_zfs(vault).host, vault.pool, await clients.zpool.devices(vault.pool))


async def _located(
    log: ErrorLog, zfs: Zfs, pool: str, logged: Sequence[LoggedBlock], names: list[Damage]
) -> list[HealTarget]:
    """What is damaged, block by block."""
    datasets = (await zfs.tree(pool)).datasets
    paths: dict[tuple[str, int], str] = {}
    newest: dict[LoggedBlock, Snapshot] = {}
    for one in dict.fromkeys(entry.dataset for entry in logged):
        mine = [entry for entry in logged if entry.dataset == one]
        seen = await _first_seen(log, datasets.get(one), one, mine)
        paths |= {(one, number): found.path for number, found in seen.items() if found.path is not None}
        if one in datasets:
            newest |= await _newest(log, datasets[one], mine, seen)
    return located(logged, datasets, paths, names, newest)


async def _first_seen(
    log: ErrorLog, dataset: Dataset | None, name: str, logged: Sequence[LoggedBlock]
) -> dict[int, Object]:
    """The objects of a dataset as the first snapshot has them that has their damage."""
    asked: dict[str, set[int]] = {}
    for wound in located(logged, {name: dataset} if dataset is not None else {}, {}, ()):
        place = f"{name}@{wound.snapnames[0]}" if wound.snapnames else name
        if wound.logged is not None:
            asked.setdefault(place, set()).add(wound.logged.number)
    found: dict[int, Object] = {}
    for place, numbers in asked.items():
        found |= await log.objects(place, numbers)
    return found


async def _newest(
    log: ErrorLog, dataset: Dataset, logged: Sequence[LoggedBlock], seen: dict[int, Object]
) -> dict[LoggedBlock, Snapshot]:
    """The last snapshot that has each block."""
    search = Search(dataset, logged)
    search.births(seen)
    numbers = {one.number for one in logged}
    while (snapshot := search.next_look()) is not None:
        search.saw(snapshot, await log.objects(snapshot.name, numbers))
    return search.newest()


def tell_damage(condition: Condition, emit: Emit) -> None:
    """Warn of each damage by name, of the first ones where there are many."""
    damages = condition.damages
    for damage in damages[:NAMED]:
        emit("warning", text=f"damaged: {damage}")
    if len(damages) > NAMED:
        emit("warning", text=f"and {len(damages) - NAMED} more")


GIVE_UP_HALF = "Where they come again, 'zfs receive -A' of it has the next run send it anew"
"""What to do about errors of what is half received that a whole scrub has met as well."""


def told_excused(condition: Condition) -> str:
    """The errors of what is half received, in a sentence."""
    errors = "1 error" if condition.excused == 1 else f"{condition.excused} errors"
    if not condition.half_received:
        return (
            f"ZFS has {errors} on its list since something was half received: no damage is known; the next whole scrub"
            " tells whether there is any"
        )
    return (
        f"ZFS has {errors} on its list while {', '.join(condition.half_received)} is half received, as an outage leaves"
        " it: no damage is known; the next run goes on with it, and then they are looked at again"
    )


async def leaking(context: Context, vault: Vault, condition: Condition, tree: Tree) -> Damaged | None:
    """The error for a vault in which nothing of what is there (``tree``) is damaged, but what was destroyed is, and

    cannot be freed for that.
    """
    there = {*tree.datasets, METADATA}
    if not condition.errors or any((one.dataset or "") in there for one in condition.damages):
        return None
    freeing = await context.clients.zpool_of(vault).freeing(vault.pool)
    if not freeing:
        return None
    return Damaged(
        f"vault '{vault.name}' has {condition.errors} errors in what was destroyed",
        *leak_advice(vault.pool, freeing),
    )


def damaged(vault: Vault, condition: Condition) -> Damaged:
    """The error that a vault's damage is."""
    if not condition.damages:
        return Damaged(
            f"vault '{vault.name}' has errors that belong to nothing in it",
            f"ZFS counts {condition.errors} errors, and names nothing: what had them may be gone by now",
            f"ZFS forgets them when two scrubs have ended: 'zvaultctl scrub {vault.name}' again",
        )
    places = len({damage.place for damage in condition.damages})
    return Damaged(
        f"vault '{vault.name}' is damaged",
        f"{files(condition.damages)} files in {places} snapshots and datasets; ZFS counts {condition.errors} errors",
        f"'zvaultctl heal {vault.name}' repairs what the source or another vault still has",
    )
