"""Look at a source and at the replica that another tool made of it, and say how zvault goes on from there."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from zvault.api.backups import AdoptDocument, SteeringDocument
from zvault.config.paths import Paths
from zvault.config.schema import Config, Vault
from zvault.core.address import Source
from zvault.core.errors import ZvaultError
from zvault.core.replication.adoption import (
    AdoptionHints,
    ReplicaAdoption,
    find_adoption,
    list_adoption_commands,
    suggest_name,
    write_adoption_tables,
)
from zvault.core.replication.unlisted_datasets import list_unlisted_lines
from zvault.ops.context import Context
from zvault.ops.forecast import make_forecast_document
from zvault.ops.replication.steering_properties import read_steering_of_replica
from zvault.ops.state.environment import Environment
from zvault.ops.state.partial_tree import list_existing_around_damage
from zvault.system.process.runner import ProcessRunner
from zvault.zfs.pool.pool import Zpool
from zvault.zfs.record_sizes import read_named_block_sizes

PLAIN_RECORD = 128 << 10
"""Bytes of the largest record that a stream without ``-L`` has."""

LARGE_RECORDS = {"active": True, "enabled": False, "disabled": False}
"""By the state of a pool's feature ``large_blocks``, whether it has larger ones (zpool-features(7))."""


@dataclass(frozen=True, slots=True)
class AdoptRequest:
    """Which replica follows which source; ``name`` is what the backup shall be called."""

    name: str
    source: Source
    replica: Source


async def make_adoption_document(
    config: Config, paths: Paths, runner: ProcessRunner, request: AdoptRequest
) -> AdoptDocument:
    """The tables to write, and what the first run with them would do. Changes nothing. Raises NotFound, Refused."""
    found, large_there, unlisted = await _look(config, paths, runner, request)
    vault = _known_vault(config, request.replica)
    name = vault.name if vault is not None else _free(request.replica.pool, config)
    place = None if vault is not None else (str(request.replica.pool), _host(request.replica))
    planned = _with_tables(config, request, name, found)
    context = Context.of(Environment.of(planned, paths, runner))
    try:
        backup = context.env.backup(request.name)
        steering = await _steering(context, request, found)
        hints = AdoptionHints(
            await _list_large(context, request, found), large_there, _find_selection(steering)
        )
        foreseen = await make_forecast_document(context, backup)
        return {
            "source": str(request.source),
            "replica": str(request.replica),
            "toml": list(write_adoption_tables(request.name, str(request.source), name, place, found, hints)),
            "first": list(list_adoption_commands(request.replica.dataset, found)),
            "written": found.written,
            "elsewhere": list(found.elsewhere),
            "missing": list(found.missing),
            "strangers": list(found.strangers),
            "unlisted": unlisted,
            "unknown": list(found.unknown),
            "steering": steering,
            "snapshot": foreseen["snapshot"],
            "datasets": foreseen["datasets"],
        }
    finally:
        await context.clients.close()


async def _look(
    config: Config, paths: Paths, runner: ProcessRunner, request: AdoptRequest
) -> tuple[ReplicaAdoption, bool | None, list[str]]:
    """What goes on from what; whether the replica's pool has records over 128K; and what cannot be listed, in lines."""
    context = Context.of(Environment.of(config, paths, runner))
    source, replica, large = request.source, request.replica, None
    try:
        host = context.clients.other_host(replica.host)
        zpool = context.clients.zpool if host is None else Zpool(host)
        # What was written a moment ago is not counted until it is on disk. A pool that is not there is told below.
        with suppress(ZvaultError):
            await zpool.sync(replica.pool)
            large = LARGE_RECORDS.get(await zpool.read_feature(replica.pool, "large_blocks") or "")
        here = await list_existing_around_damage(context.clients.source_at(source.host), source.dataset)
        there = await list_existing_around_damage(context.clients.source_at(replica.host), replica.dataset)
    finally:
        await context.clients.close()
    unlisted = [*list_unlisted_lines(here.unlisted), *list_unlisted_lines(there.unlisted)]
    return find_adoption(source.dataset, here, replica.dataset, there), large, unlisted


async def _list_large(context: Context, request: AdoptRequest, found: ReplicaAdoption) -> tuple[str, ...]:
    """The datasets with a replica that may have records over 128K, and are not sent raw, where all are sent whole."""
    host = context.clients.source_at(request.source.host).host
    sizes = await read_named_block_sizes(host, list(found.followed))
    return tuple(
        name
        for name in found.followed
        if (one := sizes.get(name)) is not None and one.record > PLAIN_RECORD and not one.encrypted
    )


def _find_selection(steering: list[SteeringDocument]) -> str:
    """The property by which zfs-autobackup takes its datasets, which a backup can go by too; "" for none or several."""
    found = [one["property"] for one in steering if one["tool"] == "zfs-autobackup" and one["source"]]
    return found[0] if len(found) == 1 else ""


async def _steering(
    context: Context, request: AdoptRequest, found: ReplicaAdoption
) -> list[SteeringDocument]:
    """The properties of both sides that steer other tools."""
    clients = context.clients
    listed = await read_steering_of_replica(
        clients.source_at(request.source.host),
        list(found.followed),
        clients.source_at(request.replica.host),
        list(dict.fromkeys(found.followed.values())),
    )
    return [
        {
            "property": one.name,
            "tool": one.tool,
            "source": one.source,
            "received": one.received,
            "local": one.local,
            "above": one.above,
        }
        for one in listed
    ]


def _known_vault(config: Config, replica: Source) -> Vault | None:
    """The vault that the configuration has for the replica's pool."""
    found = (one for one in config.vault.values() if (one.pool, one.host) == (replica.pool, replica.host))
    return next(found, None)


def _free(pool: str, config: Config) -> str:
    """A name for a vault of that pool that none has."""
    wanted = suggest_name(pool)
    names = (wanted, *(f"{wanted[:60]}-{number}" for number in range(2, 1000)))
    return next(name for name in names if name not in config.vault)


def _host(place: Source) -> str | None:
    return None if place.host is None else str(place.host)


def _with_tables(config: Config, request: AdoptRequest, vault: str, found: ReplicaAdoption) -> Config:
    """The configuration with nothing but this backup, and its vault as the pool that it is now."""
    place = {"pool": str(request.replica.pool), "host": _host(request.replica)}
    made = Config.model_validate(
        {
            "vault": {vault: {key: value for key, value in place.items() if value is not None}},
            "backup": {
                request.name: {"source": str(request.source), "vault": vault, "into": found.into},
            },
        }
    )
    return config.model_copy(update={"vault": made.vault, "backup": made.backup})
