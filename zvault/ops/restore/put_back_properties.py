"""Puts back what a stream does not bring to a restored dataset: limits of space, properties, inherited keys.

Nothing here fails a restore: what could not be put back is found by ``check``, with the commands that do it.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from zvault.api.events import Emit, MessageEvent, WarningEvent
from zvault.core.errors import ZvaultError
from zvault.core.integrity.restore_comparison import RestoreComparison, RestoreMismatch
from zvault.core.model import Dataset
from zvault.core.names import DatasetName
from zvault.core.replication.receive_properties import list_named_properties, parse_property_words
from zvault.core.replication.source_properties import (
    FIXED_PROPERTIES,
    SOURCE_KEY_PROPERTIES,
    SOURCE_RECORD_PROPERTY,
    DatasetKey,
    SourceProperties,
    find_dataset_key,
    find_root_to_inherit,
    format_set_command,
    has_same_key,
    is_limit_set,
    list_inherit_commands,
    list_limits_to_set,
    parse_record,
    select_restored_properties,
)
from zvault.zfs import properties, scratch_datasets
from zvault.zfs.client import Zfs


@dataclass(frozen=True, slots=True)
class WantedProperties:
    """The properties that a restored dataset should have, by its copy on the vault.

    ``record`` is None where the vault has none.
    """

    dataset: Dataset
    properties: Mapping[str, str]
    record: SourceProperties | None


async def read_wanted_properties(vault: Zfs, datasets: Sequence[Dataset]) -> list[WantedProperties]:
    """Read the properties that each of these datasets of a vault should have once it is restored. Raises ToolFailed."""
    records = await properties.read_own_property(
        vault.host, [one.name for one in datasets], SOURCE_RECORD_PROPERTY
    )
    return [
        WantedProperties(
            one,
            select_restored_properties(
                await properties.read_received_properties(vault.host, one.name, _hidden(one))
            ),
            parse_record(records.get(one.name, "")),
        )
        for one in datasets
    ]


def _hidden(dataset: Dataset) -> list[str]:
    """The user properties that are left out of a vault's dataset, by its record."""
    return sorted(
        name
        for name in list_named_properties(parse_property_words(dataset.receive_properties))
        if ":" in name
    )


@dataclass
class RestoredProperties:
    """Puts back the properties of restored datasets, ``targets`` in the order of ``wanted``, on one host."""

    zfs: Zfs
    wanted: Sequence[WantedProperties]
    targets: Sequence[DatasetName]
    emit: Emit

    async def apply(self) -> None:
        """Put back what can be. Raises ToolFailed where not even what there is can be read."""
        there = await properties.read_exact_properties(self.zfs.host, self.targets, ["all"])
        for one, target in zip(self.wanted, self.targets, strict=True):
            await self._set(
                target, {key: value for key, (value, _) in _lacking(one, there.get(target, {})).items()}
            )
        keys = await self._keys()
        for one, target in zip(self.wanted, self.targets, strict=True):
            await self._inherit(target, one.record, keys)

    async def _set(self, target: str, values: Mapping[str, str]) -> None:
        """All at once, and if that is refused one by one."""
        values = {key: value for key, value in values.items() if key not in FIXED_PROPERTIES}
        if not values:
            return
        try:
            await properties.set_properties(self.zfs.host, target, values)
        except ZvaultError:
            for key, value in values.items():
                try:
                    await properties.set_properties(self.zfs.host, target, {key: value})
                except ZvaultError as error:
                    self.emit(
                        WarningEvent(text=f"{target}: {key}={value} cannot be set: {error.why or error}")
                    )

    async def _inherit(
        self, target: DatasetName, record: SourceProperties | None, keys: dict[str, DatasetKey]
    ) -> None:
        root = find_root_to_inherit(target, keys, record)
        if root is None:
            return
        with contextlib.suppress(ZvaultError):
            if has_same_key(target, root, keys):
                await self.zfs.lzc.inherit_key(target)
            elif keys[root].status == "available" and keys[root].location.startswith("file://"):
                await scratch_datasets.load_scratch_key(self.zfs.host, target, keys[root].location)
                await properties.inherit_parent_key(self.zfs.host, target)
            else:
                return
            keys[target] = replace(keys[target], root=root, status=keys[root].status)

    async def _keys(self) -> dict[str, DatasetKey]:
        """The keys of what was restored and of all that is above it."""
        if not any(one.dataset.encrypted for one in self.wanted):
            return {}
        names = dict.fromkeys(name for target in self.targets for name in [*target.ancestors, target])
        found = await properties.read_exact_properties(self.zfs.host, list(names), SOURCE_KEY_PROPERTIES)
        keys = {name: find_dataset_key(values) for name, values in found.items()}
        return {name: key for name, key in keys.items() if key is not None}

    async def check(self, compared: RestoreComparison) -> list[RestoreMismatch]:
        """Return what is not as it should be. Commands that put it back are added to ``compared``. Raises
        ToolFailed.
        """
        there = await properties.read_exact_properties(self.zfs.host, self.targets, ["all"])
        found: list[RestoreMismatch] = []
        for one, target in zip(self.wanted, self.targets, strict=True):
            lacking = _lacking(one, there.get(target, {}))
            found += [
                RestoreMismatch(target, "", f"property {key}", wanted, has)
                for key, (wanted, has) in lacking.items()
            ]
            if can_be_set := {
                key: wanted for key, (wanted, _) in lacking.items() if key not in FIXED_PROPERTIES
            }:
                compared.commands.append(format_set_command(target, can_be_set))
        if unknown := [one.dataset.name for one in self.wanted if one.record is None]:
            self.emit(
                MessageEvent(
                    text=f"limits (quota, reservation) of {', '.join(unknown[:3])}"
                    + (f" and {len(unknown) - 3} more" if len(unknown) > 3 else "")
                    + " are not known: no run since zvault keeps them has sent it",
                )
            )
        for one, target in zip(self.wanted, self.targets, strict=True):
            if one.record is not None and one.record.redacted:
                self.emit(
                    WarningEvent(text=f"{target} is redacted, as its source was: blocks of it are missing")
                )
        return found + self._check_keys(await self._keys(), there, compared)

    def _check_keys(
        self, keys: dict[str, DatasetKey], there: Mapping[str, Mapping[str, str]], compared: RestoreComparison
    ) -> list[RestoreMismatch]:
        found = []
        loaded: set[str] = set()
        for one, target in zip(self.wanted, self.targets, strict=True):
            root = find_root_to_inherit(target, keys, one.record)
            if root is None or not (root in self.targets or has_same_key(target, root, keys)):
                if root is not None or _was_inherited(one, target, keys):
                    self.emit(MessageEvent(text=_alone(target)))
                continue
            found.append(RestoreMismatch(target, "", "encryption root", root, target))
            if root not in loaded and keys[root].status != "available":
                compared.commands.append(shlex.join(["zfs", "load-key", root]))
                compared.commands += _mount(root, there.get(root, {}))
            loaded.add(root)
            compared.commands += [
                *list_inherit_commands(target, keys[root]),
                *_mount(target, there.get(target, {})),
            ]
            keys[target] = replace(keys[target], root=root)
        return found


def _was_inherited(one: WantedProperties, target: str, keys: Mapping[str, DatasetKey]) -> bool:
    own = keys.get(target)
    return bool(own is not None and own.root == target and one.record is not None and one.record.key_root)


def _alone(target: str) -> str:
    return (
        f"{target} is an encryption root of its own now: on the source it inherited its key from a dataset above it,"
        " which was not restored with it"
    )


def _mount(name: str, has: Mapping[str, str]) -> list[str]:
    if has.get("canmount") != "on" or has.get("mountpoint") in {"none", "legacy", "-", None}:
        return []
    return [shlex.join(["zfs", "mount", name])]


def _lacking(one: WantedProperties, has: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The properties that are not as they should be, each with the value that it should have and the one it has."""
    volsize = int(has["volsize"]) if has.get("volsize", "-").isdecimal() else None
    lacking = {
        key: (value, has.get(key, "-")) for key, value in one.properties.items() if has.get(key) != value
    }
    if one.record is None:
        return lacking
    limits = list_limits_to_set(one.record, volsize)
    return lacking | {
        key: (value, has.get(key, "-"))
        for key, value in limits.items()
        if not is_limit_set(value, has.get(key, "-"), volsize)
    }
