"""Where on each pool zvault last put what it took from a source: so that bookmarks can be told to be of that place.

A bookmark on a source says which pool has what it marks, and not where there. While the vault is down, the lag is read
from bookmarks only if they are known to be of the place that is configured now. No run needs it (invariant 1).
"""

from __future__ import annotations

from typing import Any

from zvault.system.record_store import RecordStore


class PlaceBook:
    """A small file for each pool, named for its GUID: by source, the dataset that its root goes to."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store

    def note(self, pool: int, source: str, target: str) -> None:
        """Write down that every bookmark on a source for a pool is of this place.

        Where that cannot be done, it is simply not known later.
        """
        known = self._of(pool)
        if known.get(source) == target:
            return
        self._store.note(f"{pool:x}", {"places": {**known, source: target}})

    def last(self, pool: int, source: str) -> str | None:
        """Return the place at which a pool has what was last sent of a source; None where it is not known."""
        return self._of(pool).get(source)

    def _of(self, pool: int) -> dict[str, str]:
        return self._store.recall(f"{pool:x}", _load) or {}


def _load(data: dict[str, Any]) -> dict[str, str]:
    return {str(source): str(target) for source, target in data["places"].items()}
