"""Which datasets of each backup were seen on its vault in the clear, below one that is encrypted.

It outlives zvaultd, and is true while the vault is down: nothing but a look at the vault takes it back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from zvault.core.errors import ZvaultError
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
        with contextlib.suppress(OSError):
            if found:
                self._store.put(backup, {"way": way, "datasets": dict(found)})
            else:
                self._store.drop(backup)

    def last(self, backup: str, way: str | None) -> dict[str, str]:
        """Return what was seen last of a backup, if it goes that ``way``."""
        then, found = self._read(backup)
        return found if then == way else {}

    def _read(self, backup: str) -> tuple[str, dict[str, str]]:
        if backup not in self._known:
            self._known[backup] = self._written(backup)
        return self._known[backup]

    def _written(self, backup: str) -> tuple[str, dict[str, str]]:
        with contextlib.suppress(OSError, ZvaultError):
            noted = self._store.get(backup) or {}
            way, datasets = noted.get("way"), noted.get("datasets")
            if isinstance(way, str) and isinstance(datasets, dict):
                return way, {str(name): str(key) for name, key in datasets.items()}
        return "", {}
