"""The undo record: the note on this host about a vault of which anything may be up, which the next zvaultd reads.

The leases that keep other hosts out are those of devices/s3_lease and devices/rbd.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zvault.core.policy.vault_life import LeftoverRecord
from zvault.system.record_store import RecordStore


@dataclass(frozen=True, slots=True)
class VaultUndoRecord:
    """The undo record of the vault ``name``: there before any of the vault is up, until nothing is any more."""

    store: RecordStore
    name: str

    @property
    def key(self) -> str:
        """The name it is stored under."""
        return f"vault/{self.name}"

    @property
    def exists(self) -> bool:
        """True if something of the vault may be up; one from before a reboot counts. Raises ZvaultError."""
        return self.store.get(self.key) is not None

    def left(self) -> LeftoverRecord | None:
        """Return what it says of an earlier zvaultd, None where there is none. Raises ZvaultError."""
        data = self.store.get(self.key)
        if data is None:
            return None
        return LeftoverRecord(bool(data.get("pinned")), bool(data.get("exported")), bool(data["stale"]))

    def paths(self) -> list[str]:
        """Return the paths that the pool lay on when zvault last brought it up, if that was in this boot.

        Raises ZvaultError.
        """
        data = self.store.get(self.key)
        return list(data.get("paths", [])) if data is not None and not data["stale"] else []

    def put(self, pool: str, paths: Sequence[str], *, pinned: bool, exported: bool) -> None:
        """Write it. ``exported``: somebody exported the pool by hand. Raises OSError."""
        self.store.put(self.key, {"pool": pool, "pinned": pinned, "exported": exported, "paths": list(paths)})

    def drop(self) -> None:
        """Delete it, if it is there."""
        self.store.drop(self.key)
