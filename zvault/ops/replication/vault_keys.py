"""Reads which keys a vault has: above a backup's root there, and which are loaded."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from zvault.core.model import Dataset
from zvault.core.names import DatasetName
from zvault.core.replication.source_properties import PROPERTY, parse_record
from zvault.zfs import properties
from zvault.zfs.client import Zfs


async def read_loaded_keys(zfs: Zfs, roots: Collection[str]) -> set[str]:
    """Those of some encryption roots whose key is loaded. Raises ToolFailed."""
    found = await properties.exact(zfs.host, list(roots), ("keystatus",))
    return {name for name, values in found.items() if values.get("keystatus") == "available"}


async def read_keys_above(
    zfs: Zfs, root: DatasetName, there: Dataset | None
) -> tuple[Mapping[str, str], frozenset[str]]:
    """By name, the encryption root of each dataset above a backup's root on its vault, "" for none; and which of these
    roots are raw copies, by zvault's own record. Raises ToolFailed.

    It is kept for as long as the backup's root is the same: a dataset is encrypted when it is made or never, and what
    lies above another cannot be exchanged without that being moved.
    """
    kept = zfs.keys_above.get(root)
    if kept is not None and there is not None and kept[0] == there.guid:
        return kept[1]
    above = list(root.ancestors)
    found = await properties.exact(zfs.host, above, ("encryptionroot",)) if above else {}
    keys = {name: _key(values.get("encryptionroot", "-")) for name, values in found.items()}
    roots = sorted({key for key in keys.values() if key})
    records = await properties.own(zfs.host, roots, PROPERTY) if roots else {}
    copies = frozenset(
        name
        for name, text in records.items()
        if (record := parse_record(text)) is not None and record.key_root is not None
    )
    if there is not None:
        zfs.keys_above[root] = there.guid, (keys, copies)
    return keys, copies


def _key(root: str) -> str:
    return "" if root in {"-", "off"} else root
