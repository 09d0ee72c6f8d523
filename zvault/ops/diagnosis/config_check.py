"""What a configuration that is right in itself names and does not find: sources, names, vaults' devices, secrets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from zvault.config.schema import Backup, Vault
from zvault.core.errors import NotFound, ZvaultError
from zvault.core.names import DatasetName
from zvault.core.replication.name_length import find_name_conflict
from zvault.core.replication.unlisted_datasets import explain_unlisted_source, is_in_unlisted
from zvault.devices.presence import (
    find_lacking_rights,
    find_missing_mount,
    find_missing_part,
    find_unreachable,
)
from zvault.ops.context import Context
from zvault.ops.diagnosis.secret_files import list_secret_warnings
from zvault.ops.state.partial_tree import list_names_around_damage
from zvault.ops.state.snapshot_obstacles import find_snapshot_obstacles
from zvault.ops.state.source_tree import (
    find_missing_included,
    list_chosen_by_property,
    make_missing_source_error,
)
from zvault.ops.vaults.earlier_pools import list_noted_pools

TOLD = 3
"""Datasets of one source told by name."""


async def list_config_warnings(context: Context) -> list[str]:
    """Return a warning for what is not there or cannot be asked, as ``KEY: what``.

    Changes nothing, and brings nothing up.
    """
    config = context.env.config
    found = await asyncio.gather(
        *(_source(context, backup) for backup in config.backup.values()),
        *(_devices(context, vault) for vault in config.vault.values()),
    )
    return [text for one in (*found, list_secret_warnings(config)) for text in one]


async def _source(context: Context, backup: Backup) -> Sequence[str]:
    key = f"backup.{backup.name}.source"
    try:
        source = context.clients.source_of(backup)
        names, unlisted = await list_names_around_damage(source, backup.source.dataset)
        by_property = await list_chosen_by_property(context.clients, backup, names, unlisted)
    except NotFound as error:
        where = f" on {backup.source.host}" if backup.source.host is not None else ""
        return [f"{key}: {error.what}{where}, so every run fails until there is; {error.next}"]
    except ZvaultError as error:
        return [f"{key}: whether it exists cannot be asked now: {error}"]
    hurt = _unlisted(key, backup, unlisted)
    if missing := [
        part for part in backup.source.parts if part not in names and not is_in_unlisted(part, unlisted)
    ]:
        found = [make_missing_source_error(backup, part) for part in missing]
        gone = (f"{key}: {one.what}, so every run fails until there is; {one.next}" for one in found)
        return [*hurt, *gone]
    chosen = [name for name in names if backup.takes(name)]
    selected = chosen if by_property is None else [name for name in chosen if name in by_property]
    if not selected:
        return hurt or [_nothing(backup, selects=bool(chosen))]
    told = [*hurt, *_conflicts(context, backup, selected), *await _obstacles(context, backup, selected)]
    if (lacking := find_missing_included(backup, names, unlisted.keys())) is not None:
        told.append(
            f"backup.{backup.name}.include: {lacking.what}, so every run is partial until there is; {lacking.next}"
        )
    return told


def _nothing(backup: Backup, *, selects: bool) -> str:
    """That a backup takes nothing of its source; ``selects``: what its property selects is to blame."""
    if selects:
        return f"backup.{backup.name}.select: {backup.select} selects nothing of {backup.source} to back up"
    key = "include" if backup.include else "exclude"
    return f"backup.{backup.name}.{key}: it leaves nothing of {backup.source} to back up"


def _conflicts(context: Context, backup: Backup, chosen: Sequence[DatasetName]) -> list[str]:
    """The datasets whose names are too long for the vault."""
    key = f"backup.{backup.name}.source"
    conflicts = [
        conflict
        for name in chosen
        if (
            conflict := find_name_conflict(
                name, context.env.wanted_target_of(backup, name), backup.snapshot.names.length
            )
        )
    ]
    told = [f"{key}: {one.problem}: {one.advice}" for one in conflicts[:TOLD]]
    if len(conflicts) > TOLD:
        told.append(f"{key}: {len(conflicts) - TOLD} more names are too long")
    return told


def _unlisted(key: str, backup: Backup, unlisted: Mapping[DatasetName, str]) -> list[str]:
    """The datasets of a source that cannot be listed, so that every run is partial."""
    hurt = [explain_unlisted_source(name, said) for name, said in unlisted.items() if backup.takes(name)]
    told = [f"{key}: {one.problem}; {one.advice}" for one in hurt[:TOLD]]
    if len(hurt) > TOLD:
        told.append(f"{key}: {len(hurt) - TOLD} more datasets cannot be listed")
    return told


async def _obstacles(context: Context, backup: Backup, chosen: Sequence[str]) -> list[str]:
    """The datasets that every run leaves out until somebody does something about them."""
    key = f"backup.{backup.name}.source"
    try:
        found = list((await find_snapshot_obstacles(context.clients, backup, chosen)).values())
    except ZvaultError as error:
        return [f"{key}: whether all of it can be snapshotted cannot be asked now: {error}"]
    told = [f"{key}: {one.what}, as {one.why}: a run leaves it out; {one.next}" for one in found[:TOLD]]
    if len(found) > TOLD:
        told.append(f"{key}: {len(found) - TOLD} more datasets cannot be snapshotted")
    return told


async def _devices(context: Context, vault: Vault) -> Sequence[str]:
    runner = context.env.runner
    noted = list_noted_pools(context, vault)
    told = []
    for index, device in enumerate(vault.device):
        key = f"vault.{vault.name}.device[{index}]"
        if why := find_missing_mount(device):
            told.append(f"{key}: {why}")
        if why := await find_unreachable(device, runner):
            told.append(f"{key}: {why}: the vault cannot be brought up now")
            continue
        try:
            why = await find_missing_part(device, runner)
            if lacking := await find_lacking_rights(device, runner):
                told.append(f"{key}: {lacking}")
        except NotFound as error:
            told.append(f"{key}: {error.what}, so the vault cannot be brought up; {error.next}")
            continue
        except ZvaultError as error:
            told.append(f"{key}: whether {device.spec} exists cannot be asked now: {error}")
            continue
        if why and noted:
            told.append(
                f"{key}: {why}, and vault {vault.name} had a pool: mount its disk or correct the device;"
                f" 'zvaultctl vault begin-anew {vault.name}' if that pool is lost"
            )
        elif why and not vault.create:
            told.append(f"{key}: {why}: 'zvaultctl vault create {vault.name}' makes it for a new vault")
    return told
