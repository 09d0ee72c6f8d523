"""Has what is brought back to where it came from inherit its key there again, as it did before.

A raw stream makes its dataset an encryption root of its own. On a vault that is right: what inherited a raw copy's key
would be locked when that is changed. On the way back (docs/how-to/fail-back.md) it is not: after the next change of the
passphrase the old one alone would open it, and nobody would know.
"""

from __future__ import annotations

from collections.abc import Iterator

from zvault.api.events import Emit, MessageEvent, WarningEvent
from zvault.core.errors import ZvaultError
from zvault.core.names import DatasetName
from zvault.core.replication.source_properties import (
    SOURCE_KEY_PROPERTIES,
    find_dataset_key,
    has_same_key,
    list_inherit_commands,
    parse_record,
)
from zvault.ops.replication.listing import BothListings
from zvault.zfs import properties, scratch_datasets
from zvault.zfs.client import Zfs


async def inherit_keys_again(vault: Zfs, before: BothListings, after: BothListings, emit: Emit) -> None:
    """Mend what a run's streams have changed of it. What cannot be mended is told, with the commands that do it."""
    lost = dict(_lost_roots(before, after))
    if not lost:
        return
    names = list(dict.fromkeys([*lost, *lost.values()]))
    try:
        found = await properties.read_exact_properties(vault.host, names, SOURCE_KEY_PROPERTIES)
    except ZvaultError as error:
        emit(WarningEvent(text=f"it is not known whether {', '.join(lost)} inherit their keys: {error}"))
        return
    keys = {name: key for name, values in found.items() if (key := find_dataset_key(values)) is not None}
    for name, root in lost.items():
        if name not in keys or root not in keys or keys[name].root != name:
            continue
        try:
            if has_same_key(name, root, keys):
                await vault.lzc.inherit_key(name)
            elif keys[root].status == "available" and keys[root].location.startswith("file://"):
                await scratch_datasets.load_scratch_key(vault.host, name, keys[root].location)
                await properties.inherit_parent_key(vault.host, name)
            else:
                raise ZvaultError("its key has to be loaded for that")
        except ZvaultError as error:
            commands = "; ".join(f"'{command}'" for command in list_inherit_commands(name, keys[root]))
            emit(
                WarningEvent(
                    text=f"{name} does not inherit the key of {root} any more: a change of that will leave it locked"
                    f" with the old one. It was not mended: {error.why or error.what}. Do it by hand: {commands}",
                )
            )
        else:
            emit(MessageEvent(text=f"{name} inherits the key of {root} again"))


def _lost_roots(before: BothListings, after: BothListings) -> Iterator[tuple[DatasetName, DatasetName]]:
    """What inherited its key before the run and has its own now, each with the root it inherited from: of datasets
    whose copy, which was sent, has on record that it is one of a dataset that inherited.
    """
    had = {one.guid: one for one in before.vault}
    for pair in after.pairing.pairs:
        there = pair.vault
        was = had.get(there.guid) if there is not None else None
        if there is None or was is None or there.key_root != there.name:
            continue
        record = parse_record(pair.source.source_record) if pair.source.source_record else None
        root = DatasetName(was.key_root)
        if record is not None and record.key_root and was.key_root and there.name.is_below(root):
            yield there.name, root
