"""What is set on many datasets: read on both sides in the same way, so that it can be compared; and set on all.

Where ZFS is on this host the helper process does it (lzc_child.py), without programs; else ``zfs get`` and ``zfs set``.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from zvault.core.errors import NotFound, ToolFailed, ToolMissing
from zvault.core.model import VaultProperty
from zvault.zfs import properties
from zvault.zfs.client import Zfs
from zvault.zfs.lzc import Lzc

Settings = tuple[dict[str, dict[str, str]], dict[str, dict[str, VaultProperty]]]
"""Of a source's datasets and snapshots what is set on each, by ``zfs set`` or a stream; of a vault's datasets that, and
what streams brought. One of which that cannot be told for certain is left out.
"""


async def read_both_settings(
    source: Zfs, here: Sequence[str], vault: Zfs, there: Sequence[str], hidden: Sequence[str] = ()
) -> Settings:
    """The settings of ``here`` on the source and ``there`` on the vault. Raises ToolFailed.

    ``hidden``: see properties.read_settings.
    """
    if (found := await read_settings_by_library(source, here, vault, there)) is not None:
        return found
    return (
        await properties.read_own_settings(source.host, here),
        await properties.read_settings(vault.host, there, hidden),
    )


async def read_settings_by_library(
    source: Zfs, here: Sequence[str], vault: Zfs, there: Sequence[str]
) -> Settings | None:
    """As ``read_both_settings``, with numbers in place of the words for them; None where libzfs cannot be asked for
    both.
    """
    if not (isinstance(source.lzc, Lzc) and isinstance(vault.lzc, Lzc)):
        return None
    try:
        mine, its = await source.lzc.settings(here), await vault.lzc.settings(there)
    except (ToolMissing, ToolFailed):  # a helper that died, too: zfs says in words what the matter is
        return None
    return (
        {name: _own(told) for name, told in mine.items()},
        {name: _all(told) for name, told in its.items()},
    )


def _own(told: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, (value, _) in told["set"].items()}


def _all(told: Mapping[str, Any]) -> dict[str, VaultProperty]:
    own, brought = told["set"], told["received"]
    found = {key: VaultProperty("-", str(value), "-") for key, value in brought.items()}
    for key, (value, received) in own.items():
        source = "received" if received else "local"
        found[key] = VaultProperty(str(value), str(brought.get(key, "-")), source)
    return found


async def set_property_on_each(zfs: Zfs, name: str, values: Mapping[str, str]) -> None:
    """Set a user property of zvault's on datasets of one pool, on each its own value. What keeps it from one keeps it
    from no other. Raises ToolFailed.

    On this host many share a transaction group, for which ``zfs set`` waits with each of them.
    """
    left = dict(values)
    if left and isinstance(zfs.lzc, Lzc):
        # What is refused there is tried by itself: zfs says in words what the matter is.
        with contextlib.suppress(ToolFailed, NotFound, ToolMissing):
            refused = await zfs.lzc.set_user_property(name, left)
            left = {dataset: values[dataset] for dataset in refused if dataset in values}
    by_value: dict[str, list[str]] = defaultdict(list)
    for dataset, value in left.items():
        by_value[value].append(dataset)
    failed: list[ToolFailed] = []
    for value, datasets in by_value.items():
        try:
            await properties.set_properties_on_all(zfs.host, datasets, {name: value})
        except ToolFailed as error:
            failed.append(error)
    if failed:
        raise failed[0]
