"""Name what is damaged in a vault that is up, by dataset, snapshot and file, and note it as its condition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zvault.config.schema import Vault
from zvault.core.errors import NotFound, ToolFailed
from zvault.core.integrity.damage import (
    UNOPENED_PATH,
    DamagedFile,
    DamagedSnapshotSearch,
    HealTarget,
    LoggedBlock,
    SnapshotObject,
    list_damages,
    locate_heal_targets,
    make_heal_targets,
)
from zvault.core.model import Dataset, Snapshot
from zvault.core.names import DatasetName
from zvault.ops.context import Context
from zvault.ops.state.clients import ZfsClients
from zvault.ops.state.partial_tree import list_existing_around_damage
from zvault.ops.state.pool_health import PoolConditions
from zvault.ops.vaults.examine_pool import examine_pool, wait_unless_going_down
from zvault.zfs.client import Zfs
from zvault.zfs.pool.scrub import Scrubber
from zvault.zfs.repair.damage_name_guard import NamesForbidden
from zvault.zfs.repair.damage_names import list_named_damage, read_object_ids, read_object_ids_in
from zvault.zfs.repair.error_log import ErrorLog
from zvault.zfs.whole_listing import PartialListing


async def name_new_damage(context: Context, vault: Vault) -> bool:
    """Name what is damaged if the last look at the pool saw errors that were not there as it was last named.

    False where it saw none, or the host goes down meanwhile. Raises ZvaultError.
    """
    known = context.records.conditions.get(vault.name)
    # A shutdown waits for whoever has the vault; this may wait for storage that is slow or away.
    if known is None or known.named == known.errors or context.activity.going_down:
        return False
    return await wait_unless_going_down(context, name_damage(context, vault))


async def name_damage(context: Context, vault: Vault) -> list[HealTarget]:
    """List the damage of a vault that is up, as exactly as it is known, and note it by name as its condition.

    While anything is half received in full there the kernel is not asked for names, for that would crash it: zdb(8)
    alone tells then, where it can be asked, and nothing of what is half received counts as damage. Nor is the kernel
    asked where what is half received cannot be told. A dataset that cannot be opened is named as damaged itself.
    """
    pool, zfs, zpool = vault.pool, context.clients.vault_zfs(vault), context.clients.zpool_of(vault)
    await zpool.sync(pool)  # the log is on disk at the end of a transaction group
    condition = await examine_pool(context, vault.name)
    log = await open_error_log(context.clients, vault) if condition.errors else None
    # First the log: to have names listed makes ZFS forget what is in old snapshots only.
    logged, unlisted = await _read_log(log, zfs, pool) if log is not None else (None, {})
    half: Sequence[str] = ()
    try:
        async with context.clients.damage_names.permit_names(zfs.host, pool) as permit:
            names = await list_named_damage(zfs.host, pool, await Scrubber(zfs.host).errors(permit))
    except NamesForbidden as forbidden:
        names, half = [], forbidden.datasets or (pool,)
        logged = [one for one in logged if one.dataset not in half] if logged is not None else None
    except PartialListing:
        if logged is None:
            raise
        names = []
    unopened = [DamagedFile(name, None, UNOPENED_PATH) for name in unlisted]
    names = [*names, *(one for one in unopened if one not in names)]
    found = make_heal_targets(names)
    if log is not None and logged is not None:
        found = await _located(log, zfs, pool, logged, names) or found
    there = {wound.logged for wound in found}
    found += [wound for wound in condition.wounds if wound.logged not in there]
    note_damage(context.records.conditions, vault, list_damages(found, names), found, half)
    return found


def note_damage(
    conditions: PoolConditions,
    vault: Vault,
    damages: Sequence[DamagedFile],
    found: Sequence[HealTarget] = (),
    half_received: Sequence[str] = (),
) -> None:
    """Note what is damaged in a vault that was just looked at, by name and by block."""
    if (known := conditions.get(vault.name)) is not None:
        conditions.put(vault.name, known.hurt(damages, found, half_received))


async def open_error_log(clients: ZfsClients, vault: Vault) -> ErrorLog | None:
    """The error log of a vault that is up; None where it is on another host."""
    if vault.host is not None:
        return None
    return ErrorLog(clients.vault_zfs(vault).host, vault.pool, await clients.zpool.devices(vault.pool))


async def _read_log(
    log: ErrorLog, zfs: Zfs, pool: str
) -> tuple[list[LoggedBlock] | None, Mapping[DatasetName, str]]:
    """The error log of a pool, and which of its datasets cannot be listed: of those the log is not understood.

    None for a log of which it cannot be told what is in which dataset.
    """
    unlisted: Mapping[DatasetName, str] = {}
    try:
        try:
            names = await read_object_ids(zfs.host, pool)
        except PartialListing as error:
            tree = await zfs.tree_around_damage(pool, error)
            names, unlisted = await read_object_ids_in(zfs.host, list(tree.datasets)), tree.unlisted
    except (NotFound, ToolFailed):
        return None, {}
    return await log.entries(names), unlisted


async def _located(
    log: ErrorLog, zfs: Zfs, pool: str, logged: Sequence[LoggedBlock], names: list[DamagedFile]
) -> list[HealTarget]:
    """What is damaged, block by block."""
    datasets = (await list_existing_around_damage(zfs, pool)).datasets
    paths: dict[tuple[str, int], str] = {}
    newest: dict[LoggedBlock, Snapshot] = {}
    for one in dict.fromkeys(entry.dataset for entry in logged):
        mine = [entry for entry in logged if entry.dataset == one]
        seen = await _first_seen(log, datasets.get(one), one, mine)
        paths |= {(one, number): found.path for number, found in seen.items() if found.path is not None}
        if one in datasets:
            newest |= await _newest(log, datasets[one], mine, seen)
    return locate_heal_targets(logged, datasets, paths, names, newest)


async def _first_seen(
    log: ErrorLog, dataset: Dataset | None, name: str, logged: Sequence[LoggedBlock]
) -> dict[int, SnapshotObject]:
    """The objects of a dataset as the first snapshot has them that has their damage."""
    asked: dict[str, set[int]] = {}
    for wound in locate_heal_targets(logged, {name: dataset} if dataset is not None else {}, {}, ()):
        place = f"{name}@{wound.snapnames[0]}" if wound.snapnames else name
        if wound.logged is not None:
            asked.setdefault(place, set()).add(wound.logged.number)
    found: dict[int, SnapshotObject] = {}
    for place, numbers in asked.items():
        found |= await log.objects(place, numbers)
    return found


async def _newest(
    log: ErrorLog, dataset: Dataset, logged: Sequence[LoggedBlock], seen: dict[int, SnapshotObject]
) -> dict[LoggedBlock, Snapshot]:
    """The last snapshot that has each block."""
    search = DamagedSnapshotSearch(dataset, logged)
    search.births(seen)
    numbers = {one.number for one in logged}
    while (snapshot := search.next_look()) is not None:
        search.saw(snapshot, await log.objects(snapshot.name, numbers))
    return search.newest()
