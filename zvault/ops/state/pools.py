"""Which pools the vaults were seen to have, so that what was made for one can be named while it is down.

No run needs it (invariant 1): while it is lost, what was made for a vault that is down is nobody's that is known,
and stays.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from zvault.core.errors import ZvaultError
from zvault.system.state_files import LeaseStore


@dataclass(frozen=True, slots=True)
class Seen:
    """A pool as it was last seen: as whose, and under which name."""

    vault: str
    pool: str


class PoolBook:
    """A small file for each pool, named for its GUID."""

    def __init__(self, store: LeaseStore) -> None:
        self._store = store

    def note(self, guid: int, seen: Seen) -> None:
        """Write down a pool that is there. Where that cannot be done, it is simply not known later."""
        with contextlib.suppress(OSError, ZvaultError):
            if self._get(f"{guid:x}") != seen:
                self._store.put(f"{guid:x}", {"vault": seen.vault, "pool": seen.pool})

    def all(self) -> dict[int, Seen]:
        """Every pool that was ever seen, by its GUID."""
        found = {}
        for name in self._store.names():
            with contextlib.suppress(OSError, ValueError, ZvaultError):
                if (seen := self._get(name)) is not None:
                    found[int(name, 16)] = seen
        return found

    def _get(self, name: str) -> Seen | None:
        data = self._store.get(name)
        return Seen(str(data.get("vault", "")), str(data.get("pool", ""))) if data is not None else None
