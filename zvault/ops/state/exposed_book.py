"""Which datasets of each backup were seen on its vault in the clear, below one that is encrypted.

It outlives zvaultd, and is true while the vault is down: nothing but a look at the vault takes it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zvault.system.record_store import RecordStore


class ExposedBook:
    """A small file for each backup that has any: by dataset of the vault, the key of what is encrypted above it."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._known: dict[str, tuple[str, dict[str, str]]] = {}

    def note(self, backup: str, way: str | None, found: Mapping[str, str]) -> None:
        """Write down what a look at the vault found of a backup that goes this ``way``.

        Where that cannot be done, it is known until zvaultd ends.
        """
        if way is None or self._read(backup) == (way, found):
            return
        self._known[backup] = way, dict(found)
        self._store.note(backup, {"way": way, "datasets": dict(found)} if found else None)

    def last(self, backup: str, way: str | None) -> dict[str, str]:
        """Return what was seen last of a backup, if it goes that ``way``."""
        then, found = self._read(backup)
        return found if then == way else {}

    def _read(self, backup: str) -> tuple[str, dict[str, str]]:
        if backup not in self._known:
            self._known[backup] = self._store.recall(backup, _load) or ("", {})
        return self._known[backup]


def _load(data: dict[str, Any]) -> tuple[str, dict[str, str]]:
    return str(data["way"]), {str(name): str(key) for name, key in data["datasets"].items()}
