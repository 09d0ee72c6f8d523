"""Reads which keys the datasets above a backup's root have on its vault, and which keys are loaded."""

from __future__ import annotations

from collections.abc import Sequence

from zvault.core.errors import ToolFailed
from zvault.core.model import Dataset
from zvault.core.names import DatasetName
from zvault.core.replication.source_properties import SOURCE_RECORD_PROPERTY, parse_record
from zvault.core.replication.vault_encryption import KeysAbove
from zvault.system.process.runner import ToolRunner
from zvault.zfs import properties


class VaultKeyReader:
    """Reads the keys of one host's pools."""

    def __init__(self, host: ToolRunner) -> None:
        self._host = host
        self._known: dict[DatasetName, tuple[int, KeysAbove]] = {}

    async def above(self, root: DatasetName, there: Dataset | None) -> KeysAbove:
        """The keys above a backup's root; ``there`` is the root, where it exists. Raises ToolFailed.

        They are kept for as long as the root is the same one: a dataset is encrypted when it is made or never, and what
        lies above another cannot be exchanged without that being moved. So an idle look starts no program for it.
        """
        kept = self._known.get(root)
        if kept is not None and there is not None and kept[0] == there.guid:
            return kept[1]
        found = await properties.read_exact_properties(self._host, list(root.ancestors), ("encryptionroot",))
        keys = {name: _key(values.get("encryptionroot", "-")) for name, values in found.items()}
        roots = sorted({key for key in keys.values() if key})
        records = (
            await properties.read_own_property(self._host, roots, SOURCE_RECORD_PROPERTY) if roots else {}
        )
        parsed = {name: parse_record(text) for name, text in records.items()}
        copies = {name for name, one in parsed.items() if one is not None and one.key_root is not None}
        above = KeysAbove(keys, frozenset(copies))
        if there is not None:
            self._known[root] = there.guid, above
        return above

    def forget(self) -> None:
        """Something was put on record of datasets: of what is above another's root it may say that it is a raw copy."""
        self._known.clear()

    async def loaded(self, roots: Sequence[str]) -> set[str]:
        """Those of some encryption roots whose key is known to be loaded.

        One that does not tell counts as not loaded: what needs it is refused, and what needs none goes on.
        """
        try:
            found = await properties.read_exact_properties(self._host, roots, ("keystatus",))
        except ToolFailed:
            return set()
        return {name for name, values in found.items() if values.get("keystatus") == "available"}


def _key(root: str) -> str:
    return "" if root in {"-", "off"} else root
