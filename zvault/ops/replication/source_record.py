"""Keeps on record, on the vault, which limits and encryption roots the source's datasets have.

A stream carries the record with it. A change that no stream came after is written to the vault's dataset by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from zvault.api.emit import Emit
from zvault.config.schema import Backup
from zvault.core.errors import ZvaultError
from zvault.core.names import DatasetName
from zvault.core.replication.source_properties import PROPERTY, RECORDED, observed
from zvault.ops.replication.sides_and_plan import Sides
from zvault.zfs import properties
from zvault.zfs.client import Zfs


async def read_source(source: Zfs, backup: Backup, datasets: Sequence[str], emit: Emit) -> dict[str, str]:
    """The record of each of these datasets of a source; empty, and told, where it cannot be read."""
    try:
        found = await properties.exact(source.host, datasets, RECORDED)
    except ZvaultError as error:
        emit("message", text=f"the limits of the source's datasets are not known: {error}")
        return {}
    records = {name: observed(DatasetName(name), values) for name, values in found.items()}
    if not backup.send.properties:
        records = {name: replace(record, limits={}) for name, record in records.items()}
    return {name: str(record) for name, record in records.items()}


async def update_vault(vault: Zfs, sides: Sides, records: Mapping[str, str], emit: Emit) -> None:
    """Write down what no stream brought. That it cannot be is told and fails no run: it is for restores only."""
    try:
        for pair in sides.pairing.pairs:
            record = records.get(pair.source.name)
            if pair.vault is not None and record is not None and pair.vault.source_record != record:
                await properties.put(vault.host, pair.vault.name, {PROPERTY: record})
    except ZvaultError as error:
        emit("message", text=f"the limits of the source's datasets could not be put on record: {error}")
