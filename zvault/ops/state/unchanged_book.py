"""Until when each source was seen to be as its newest snapshot: what a run found that made no snapshot of it.

That is a fact of the source's past, bound to a snapshot's GUID. Whether a vault has that snapshot is always read from
the vault. While it is lost, lag counts from when the snapshot was made. No run needs it (invariant 1).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from zvault.core.replication.unchanged_datasets import UnchangedDatasets
from zvault.system.record_store import RecordStore


class UnchangedBook:
    """A small file for each backup: by a snapshot's GUID, in seconds since the epoch."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store

    def note(self, backup: str, found: UnchangedDatasets, known: Collection[int]) -> None:
        """Write down what a run found, and forget all that is not of a snapshot ``known`` (GUIDs) to the source.

        Where that cannot be done, it is simply not known later.
        """
        before = self.until(backup)
        kept = {guid: at for guid, at in before.items() if guid in known}
        after = kept | {snap.guid: found.at for snap in found.stands.values()}
        if after != before:
            self._store.note(backup, {"until": {f"{guid:x}": at for guid, at in after.items()}})

    def until(self, backup: str) -> dict[int, float]:
        """By a snapshot's GUID, until when nothing was written after it."""
        return self._store.recall(backup, _load) or {}


def _load(data: dict[str, Any]) -> dict[int, float]:
    return {int(guid, 16): float(at) for guid, at in data["until"].items()}
