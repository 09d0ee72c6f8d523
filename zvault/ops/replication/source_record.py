"""Keeps on record, on the vault, which limits and encryption roots the source's datasets have.

A stream carries the record with it. A change that no stream came after is written to the vault's dataset by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from zvault.api.events import Emit, MessageEvent, WarningEvent
from zvault.config.schema import Backup
from zvault.core.errors import ToolFailed, ZvaultError
from zvault.core.model import Dataset
from zvault.core.names import DatasetName
from zvault.core.replication.source_properties import (
    RECORDED_PROPERTIES,
    SOURCE_RECORD_PROPERTY,
    make_source_record,
)
from zvault.ops.replication.listing import BothListings
from zvault.ops.run_outcome import MESSAGE_DATASETS, describe_refusals
from zvault.ops.state.cached_backups import CachedRecords
from zvault.zfs import compare_settings, properties
from zvault.zfs.client import Zfs


async def read_source(
    source: Zfs, backup: Backup, datasets: Sequence[Dataset], emit: Emit, known: CachedRecords | None = None
) -> dict[str, str]:
    """The record of each of these datasets of a source; empty, and told, where it cannot be read.

    It is not read again of a dataset that is the same object as when it was read, where events tell of every change
    since (Zfs.lapses): each limit is set on the dataset itself. That is not known of a dataset without snapshots, and
    what changes the encryption root makes no event.
    """
    lapses = source.lapses
    looked = {
        one.name: before[2]
        for one in datasets
        if known is not None and (before := known.get(one.name)) is not None
        if before[0] is one and before[1] == lapses
    }
    records = await _read(source, backup, [one.name for one in datasets if one.name not in looked], emit)
    found = looked | records
    if known is not None:
        known.clear()
        known.update(
            {
                one.name: (one, lapses, found[one.name])
                for one in datasets
                if lapses is not None and one.snapshots and not one.encrypted and one.name in found
            }
        )
    return found


async def _read(source: Zfs, backup: Backup, names: Sequence[str], emit: Emit) -> dict[str, str]:
    if not names:
        return {}
    try:
        found, refused = await _observe(source, names)
    except ZvaultError as error:
        emit(MessageEvent(text=f"the limits of the source's datasets are not known: {error}"))
        return {}
    if refused:
        why = describe_refusals(refused)
        emit(MessageEvent(text=f"the limits of the source's datasets are not known: {why}"))
    records = {name: make_source_record(DatasetName(name), values) for name, values in found.items()}
    if lacking := [name for name, record in records.items() if record.redacted]:
        named = ", ".join(lacking[:MESSAGE_DATASETS]) + (
            f" and {len(lacking) - MESSAGE_DATASETS} more" * (len(lacking) > MESSAGE_DATASETS)
        )
        emit(
            WarningEvent(
                text=f"received redacted on the source, so that blocks are missing there and in the backup: {named}",
            )
        )
    if backup.send.encrypted == "decrypted":
        # What is not sent raw goes back without the key that it had.
        records = {name: replace(record, key_root=None) for name, record in records.items()}
    if not backup.send.properties:
        records = {name: replace(record, limits={}) for name, record in records.items()}
    return {name: str(record) for name, record in records.items()}


async def _observe(
    source: Zfs, names: Sequence[str]
) -> tuple[dict[str, dict[str, str]], dict[DatasetName, ZvaultError]]:
    """The properties of all, asked at once, or where that is refused of each by itself, as one may be damaged; and why
    some do not tell theirs. Raises ToolFailed where none does.
    """
    try:
        return await properties.read_exact_properties(source.host, names, RECORDED_PROPERTIES), {}
    except ToolFailed as error:
        failure = error
    found: dict[str, dict[str, str]] = {}
    refused: dict[DatasetName, ZvaultError] = {}
    for name in names if len(names) > 1 else ():
        try:
            found |= await properties.read_exact_properties(source.host, [name], RECORDED_PROPERTIES)
        except ToolFailed as error:
            refused[DatasetName(name)] = error
    if not found:
        raise failure
    return found, refused


async def update_vault(vault: Zfs, sides: BothListings, records: Mapping[str, str], emit: Emit) -> None:
    """Write down what no stream brought. That it cannot be is told and fails no run: it is for restores only."""
    lacking: dict[str, str] = {
        pair.vault.name: record
        for pair in sides.pairing.pairs
        if pair.vault is not None
        and (record := records.get(pair.source.name)) is not None
        and pair.vault.source_record != record
    }
    if not lacking:
        return
    try:
        await compare_settings.set_property_on_each(vault, SOURCE_RECORD_PROPERTY, lacking)
        # A replica that was adopted has no record before its first run: until zvaultd started again, what another
        # backup has below it stayed 'exposed', or was refused.
        vault.forget_keys_above()
    except ZvaultError as error:
        emit(MessageEvent(text=f"the limits of the source's datasets could not be put on record: {error}"))
