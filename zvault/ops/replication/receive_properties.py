"""Has the properties that a backup chooses in force on the datasets that its vault has, whatever they were before.

A stream brings them with it. This is for what no stream came after: a change of the configuration, or of the vault.
"""

from __future__ import annotations

from collections import Counter

from zvault.api.emit import Emit
from zvault.config.schema import Backup
from zvault.core.errors import ZvaultError
from zvault.core.model import Dataset
from zvault.core.replication.receive_properties import (
    PROPERTY,
    PropertyChanges,
    changes,
    named,
    on_record,
    record,
)
from zvault.ops.replication.sides import Sides
from zvault.zfs import properties
from zvault.zfs.client import Zfs


async def update_properties(vault: Zfs, backup: Backup, sides: Sides, emit: Emit) -> None:
    """Change what is not as it should be, and tell it. What cannot be changed is told, and fails no run."""
    wanted = backup.receive.properties
    # Of what shares no snapshot with its source nobody knows whether it is the backup's. And while a dataset's first
    # receive waits to be resumed, the next stream sets them.
    datasets = [
        pair.vault for pair in sides.pairing.pairs if pair.vault and pair.base and pair.vault.snapshots
    ]
    concerned = [one for one in datasets if wanted.words(one.type) or one.receive_properties]
    names = named(
        {
            *wanted.words("filesystem"),
            *(word for one in concerned for word in on_record(one.receive_properties)),
        }
    )
    try:
        there = await _there(vault, concerned, names)
    except ZvaultError as error:
        if concerned:
            emit("warning", text=f"the properties of the vault's datasets are not known, nor set: {error}")
        return
    done: Counter[str] = Counter()
    failed: list[ZvaultError] = []
    for one in concerned:
        change = changes(wanted, one.type, there[one.name], one.receive_properties)
        try:
            await _change(vault, one, change)
        except ZvaultError as error:
            failed.append(error)
        else:
            done.update(_words(change))
    for words, count in done.items():
        emit("message", text=f"on {count} of the vault's datasets: {words}")
    if failed:
        emit(
            "warning",
            text=f"{len(failed)} of the vault's datasets lack properties of this backup: {failed[0]}",
        )


async def _there(
    vault: Zfs, datasets: list[Dataset], names: frozenset[str]
) -> dict[str, dict[str, tuple[str, str]]]:
    """By dataset and property, what is there. Each property is asked for by itself: what is in one could look like
    another.
    """
    found: dict[str, dict[str, tuple[str, str]]] = {one.name: {} for one in datasets}
    for name in sorted(names) if datasets else ():
        for dataset, told in (await properties.of_each(vault.host, name, list(found))).items():
            found[dataset][name] = told
    return found


async def _change(vault: Zfs, dataset: Dataset, change: PropertyChanges) -> None:
    """Make the changes. First all names go on record: what is cut off goes on with the next run."""
    if not change:
        return
    noted = record(on_record(change.noted) | on_record(change.final))
    put = dict(change.put) | ({PROPERTY: noted} if noted != change.noted else {})
    if put:
        await properties.put(vault.host, dataset.name, put)
    for name in change.inherit:
        await properties.inherit(vault.host, dataset.name, name)
    for name in change.revert:
        await properties.inherit(vault.host, dataset.name, name, as_received=True)
    if change.final and change.final != noted:
        await properties.put(vault.host, dataset.name, {PROPERTY: change.final})
    elif not change.final and noted:
        await properties.inherit(vault.host, dataset.name, PROPERTY)


def _words(change: PropertyChanges) -> list[str]:
    """What was done, in words."""
    return [
        *(f"{name} is set to {value}" for name, value in change.put.items()),
        *(f"{name} is as in the dataset above" for name in change.inherit),
        *(f"{name} is as the source has it" for name in change.revert),
    ]
