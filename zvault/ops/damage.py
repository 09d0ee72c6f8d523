"""What is known of a vault's health: one look at its pool, and its damage by dataset, snapshot and file."""

from __future__ import annotations

from collections.abc import Sequence

from zvault.core.damage import Damage, Logged, Object, Search, Wound, damages_of, files, located, wounds
from zvault.core.errors import Damaged
from zvault.core.model import Dataset, Snapshot
from zvault.ops.condition import Condition
from zvault.ops.context import Context, Emit
from zvault.zfs.client import Zfs
from zvault.zfs.damage import named, object_ids
from zvault.zfs.errlog import ErrorLog
from zvault.zfs.scrub import Scrubber

NAMED = 20
"""Damages told by name in a run's warnings; the vault's status has them all."""


async def look_at(context: Context, name: str) -> Condition:
    """Look at a vault's pool, which must be up, and note its condition. Raises ZvaultError."""
    config, now = context.vault(name), context.clock.time()
    zpool = context.zpool_of(name)
    health = await Scrubber(zpool.runner).health(config.pool, now)
    before = context.conditions.get(name)
    born = before.born if before is not None else None
    if born is None:
        born = float((await context.vault_zfs(name).get(config.pool, "creation"))["creation"])
    found = Condition.of(health, now, born, before)
    context.conditions.put(name, found)
    return found


async def name_damage(context: Context, name: str) -> list[Wound]:
    """What is damaged in a vault that is up, as exactly as that can be told; noted by name as its condition."""
    config, zfs, zpool = context.vault(name), context.vault_zfs(name), context.zpool_of(name)
    pool = config.pool
    await zpool.sync(pool)  # the log is on disk at the end of a transaction group
    condition = await look_at(context, name)
    log = await error_log(context, name) if condition.errors else None
    # First the log: to have names listed makes ZFS forget what is in old snapshots only.
    logged = await log.entries(await object_ids(zfs.host, pool)) if log is not None else None
    names = await named(zfs.host, pool, await Scrubber(zfs.host).errors(pool))
    found = wounds(names)
    if log is not None and logged is not None:
        found = await _located(log, zfs, pool, logged, names) or found
    there = {wound.logged for wound in found}
    found += [wound for wound in condition.wounds if wound.logged not in there]
    note_damage(context, name, damages_of(found, names), found)
    return found


def note_damage(context: Context, name: str, damages: Sequence[Damage], found: Sequence[Wound] = ()) -> None:
    """Note what is damaged in a vault that was just looked at, by name and by block."""
    if (known := context.conditions.get(name)) is not None:
        context.conditions.put(name, known.hurt(damages, found))


async def error_log(context: Context, name: str) -> ErrorLog | None:
    """The error log of a vault that is up; None where it is on another host."""
    config = context.vault(name)
    if config.host is not None:
        return None
    return ErrorLog(context.vault_zfs(name).host, config.pool, await context.zpool.devices(config.pool))


async def _located(
    log: ErrorLog, zfs: Zfs, pool: str, logged: Sequence[Logged], names: list[Damage]
) -> list[Wound]:
    """What is damaged, block by block."""
    datasets = (await zfs.tree(pool)).datasets
    paths: dict[tuple[str, int], str] = {}
    newest: dict[Logged, Snapshot] = {}
    for one in dict.fromkeys(entry.dataset for entry in logged):
        mine = [entry for entry in logged if entry.dataset == one]
        seen = await _first_seen(log, datasets.get(one), one, mine)
        paths |= {(one, number): found.path for number, found in seen.items() if found.path is not None}
        if one in datasets:
            newest |= await _newest(log, datasets[one], mine, seen)
    return located(logged, datasets, paths, names, newest)


async def _first_seen(
    log: ErrorLog, dataset: Dataset | None, name: str, logged: Sequence[Logged]
) -> dict[int, Object]:
    """The objects of a dataset as the first snapshot has them that has their damage."""
    asked: dict[str, set[int]] = {}
    for wound in located(logged, {name: dataset} if dataset is not None else {}, {}, ()):
        place = f"{name}@{wound.tags[0]}" if wound.tags else name
        if wound.logged is not None:
            asked.setdefault(place, set()).add(wound.logged.number)
    found: dict[int, Object] = {}
    for place, numbers in asked.items():
        found |= await log.objects(place, numbers)
    return found


async def _newest(
    log: ErrorLog, dataset: Dataset, logged: Sequence[Logged], seen: dict[int, Object]
) -> dict[Logged, Snapshot]:
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


def damaged(name: str, condition: Condition) -> Damaged:
    """The error that a vault's damage is."""
    places = len({damage.place for damage in condition.damages})
    return Damaged(
        f"vault '{name}' is damaged",
        f"{files(condition.damages)} files in {places} snapshots and datasets; ZFS counts {condition.errors} errors",
        f"'zvaultctl heal {name}' repairs what the source or another vault still has",
    )
