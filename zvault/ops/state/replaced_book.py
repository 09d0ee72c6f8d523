"""Which snapshots each backup's run makes anew and then destroys: known also after a crash in between.

Without that they would stay, and their datasets would be in conflict until somebody destroys them by hand.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from zvault.core.model import Snapshot
from zvault.core.names import SnapshotName
from zvault.core.replication.name_clash import ReplacedSnapshot
from zvault.system.record_store import RecordStore


class ReplacedBook:
    """A small file for each backup that has such snapshots."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store

    def add(self, backup: str, snapshots: Iterable[Snapshot]) -> None:
        """Write down some more. Where that cannot be done, a crash leaves them to a person."""
        new = [ReplacedSnapshot(snap.name, snap.guid, snap.createtxg) for snap in snapshots]
        self._keep(backup, [*(one for one in self.of(backup) if one not in new), *new])

    def remove(self, backup: str, guids: Collection[int]) -> None:
        """Forget those of some GUIDs."""
        before = self.of(backup)
        left = [one for one in before if one.guid not in guids]
        if left != before:
            self._keep(backup, left)

    def _keep(self, backup: str, listed: list[ReplacedSnapshot]) -> None:
        rows = [[name, f"{guid:x}", createtxg] for name, guid, createtxg in listed]
        self._store.note(backup, {"snapshots": rows} if rows else None)

    def of(self, backup: str) -> list[ReplacedSnapshot]:
        """Those that are written down; none where the file cannot be read."""
        return self._store.recall(backup, _load) or []


def _load(data: dict[str, Any]) -> list[ReplacedSnapshot]:
    return [
        ReplacedSnapshot(SnapshotName(str(name)), int(guid, 16), int(txg))
        for name, guid, txg in data["snapshots"]
    ]
