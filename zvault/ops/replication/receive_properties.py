"""Has the properties that a backup chooses in force on the datasets that its vault has, whatever they were before.

A stream brings them with it. This is for what no stream came after: a change of the configuration, or of the vault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from zvault.api.events import Emit, MessageEvent, WarningEvent
from zvault.config.schema import Backup
from zvault.core.errors import ToolFailed, ZvaultError
from zvault.core.model import Dataset
from zvault.core.names import DatasetName
from zvault.core.replication.receive_properties import (
    RECEIVE_RECORD_PROPERTY,
    PropertyChanges,
    ReceiveProperties,
    format_property_words,
    list_named_properties,
    parse_property_words,
    plan_property_changes,
)
from zvault.core.replication.steering_properties import leave_out_steering, list_left_out_steering
from zvault.ops.replication.listing import BothListings
from zvault.ops.replication.steering_properties import read_steering_of_vault
from zvault.ops.run_outcome import describe_refusals
from zvault.zfs import properties
from zvault.zfs.client import Zfs


async def update_properties(vault: Zfs, backup: Backup, sides: BothListings, emit: Emit) -> None:
    """Change what is not as it should be, and tell it. What cannot be changed is told, and fails no run."""
    own = backup.receive.properties
    # Of what shares no snapshot with its source nobody knows whether it is the backup's. And while a dataset's first
    # receive waits to be resumed, the next stream sets them.
    datasets = [
        pair.vault for pair in sides.pairing.pairs if pair.vault and pair.base and pair.vault.snapshots
    ]
    wanted: dict[DatasetName, ReceiveProperties] = {}
    concerned = datasets
    try:
        steering = await read_steering_of_vault(vault, datasets, sides.known)
        wanted = {one.name: _wanted(backup, one, steering.get(one.name, ())) for one in datasets}
        concerned = [one for one in datasets if own.words(one.type) or _differs(one, wanted[one.name])]
        names = list_named_properties(
            {
                *own.words("filesystem"),
                *(word for one in concerned for word in wanted[one.name].words(one.type)),
                *(word for one in concerned for word in parse_property_words(one.receive_properties)),
            }
        )
        there, refused = await _there(vault, concerned, names)
    except ZvaultError as error:
        if concerned:
            emit(WarningEvent(text=f"the properties of the vault's datasets are not known, nor set: {error}"))
        return
    done: Counter[str] = Counter()
    for one in concerned:
        if one.name in refused:
            continue
        change = plan_property_changes(wanted[one.name], one.type, there[one.name], one.receive_properties)
        try:
            await _change(vault, one, change)
        except ZvaultError as error:
            refused[one.name] = error
        else:
            done.update(_words(change))
    for words, count in done.items():
        emit(MessageEvent(text=f"on {count} of the vault's datasets: {words}"))
    if refused:
        emit(
            WarningEvent(
                text=f"{len(refused)} of the vault's datasets lack properties of this backup:"
                f" {describe_refusals(refused)}",
            )
        )


def _wanted(backup: Backup, dataset: Dataset, steering: Sequence[str]) -> ReceiveProperties:
    """What a dataset of the vault is to have: what its backup says, and out of it what steers other tools."""
    left_out = list_left_out_steering(dataset.receive_properties)
    return leave_out_steering(backup.receive.properties, (*left_out, *steering), backup.receive.let_in)


def _differs(dataset: Dataset, wanted: ReceiveProperties) -> bool:
    return parse_property_words(dataset.receive_properties) != wanted.words(dataset.type)


Refused = dict[DatasetName, ZvaultError]
"""By dataset, why its properties are not known, or not set."""


async def _there(
    vault: Zfs, datasets: list[Dataset], names: frozenset[str]
) -> tuple[dict[DatasetName, dict[str, tuple[str, str]]], Refused]:
    """By dataset and property, what is there. Each property is asked for by itself: what is in one could look like
    another. Beside it the datasets that do not tell. Raises ToolFailed where none does.
    """
    found: dict[DatasetName, dict[str, tuple[str, str]]] = {one.name: {} for one in datasets}
    refused: Refused = {}
    for name in sorted(names) if datasets else ():
        told, untold = await _of_each(vault, name, [one for one in found if one not in refused])
        refused |= untold
        for dataset, value in told.items():
            found[dataset][name] = value
    return found, refused


async def _of_each(
    vault: Zfs, name: str, datasets: list[DatasetName]
) -> tuple[dict[DatasetName, tuple[str, str]], Refused]:
    """One property of all of them, asked at once, or where that is refused of each by itself: one may be damaged."""
    try:
        told = await properties.read_each_property(vault.host, name, datasets)
    except ToolFailed as error:
        if len(datasets) == 1:
            return {}, {datasets[0]: error}
        failure = error
    else:
        return {DatasetName(dataset): value for dataset, value in told.items()}, {}
    found: dict[DatasetName, tuple[str, str]] = {}
    refused: Refused = {}
    for dataset in datasets:
        value, why = await _of_each(vault, name, [dataset])
        found |= value
        refused |= why
    if not found:
        raise failure
    return found, refused


async def _change(vault: Zfs, dataset: Dataset, change: PropertyChanges) -> None:
    """Make the changes. First all names go on record: what is cut off goes on with the next run."""
    if not change:
        return
    noted = format_property_words(parse_property_words(change.noted) | parse_property_words(change.final))
    put = dict(change.put) | ({RECEIVE_RECORD_PROPERTY: noted} if noted != change.noted else {})
    if put:
        await properties.set_properties(vault.host, dataset.name, put)
    for name in change.inherit:
        await properties.inherit_property(vault.host, dataset.name, name)
    for name in change.revert:
        await properties.inherit_property(vault.host, dataset.name, name, as_received=True)
    if change.final and change.final != noted:
        await properties.set_properties(vault.host, dataset.name, {RECEIVE_RECORD_PROPERTY: change.final})
    elif not change.final and noted:
        await properties.inherit_property(vault.host, dataset.name, RECEIVE_RECORD_PROPERTY)


def _words(change: PropertyChanges) -> list[str]:
    """What was done, in words."""
    return [
        *(f"{name} is set to {value}" for name, value in change.put.items()),
        *(f"{name} is as in the dataset above" for name in change.inherit),
        *(f"{name} is as the source has it" for name in change.revert),
    ]
