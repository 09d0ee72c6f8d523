"""How far each pool was when it was last seen, so that a store that was put back is told."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from zvault.core.integrity.put_back import PoolProgress
from zvault.system.record_store import RecordStore


class PutBackBook:
    """A small file for each pool, named for its GUID. While it is lost, nothing is known to be older."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._known: dict[int, PoolProgress] = {}

    def get(self, guid: int) -> PoolProgress | None:
        """Return how far a pool was; None where it was never seen."""
        if guid not in self._known:
            if (found := self._store.recall(f"{guid:x}", _load)) is None:
                return None
            self._known[guid] = found
        return self._known[guid]

    def put(self, guid: int, progress: PoolProgress) -> None:
        """Write down how far a pool is. Where that cannot be done, an older one may not be told after a restart."""
        if self.get(guid) != progress:
            self._known[guid] = progress
            self._store.note(f"{guid:x}", asdict(progress))


def _load(data: dict[str, Any]) -> PoolProgress:
    return PoolProgress(
        int(data["txg"]), float(data["at"]), data["found"], int(data["since"]), data["newest"]
    )
