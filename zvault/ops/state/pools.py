"""Which pools the vaults were seen to have: so that none is made a second time, and what was made for one can be named
while it is down.

No run needs it (invariant 1). While it is lost, what was made for a vault that is down is reported as unknown and kept,
and whether a vault is new is told by what its sources carry (ops/vaults/earlier_pools.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from zvault.core.errors import ZvaultError
from zvault.system.state_files import LeaseStore


@dataclass(frozen=True, slots=True)
class Seen:
    """A pool as it was last seen: as whose, and under which name.

    ``given_up``: somebody had the vault begin anew, so that its pool may be another; this one may still be found again.
    """

    vault: str
    pool: str
    given_up: bool = False

    def owner(self, pools: Mapping[str, str]) -> str | None:
        """The vault that has it now, of those configured with these ``pools``: one may have another name since."""
        if self.vault in pools:
            return self.vault
        return next((vault for vault, pool in pools.items() if pool == self.pool), None)


class PoolBook:
    """A small file for each pool, named for its GUID."""

    def __init__(self, store: LeaseStore) -> None:
        self._store = store

    def note(self, guid: int, seen: Seen) -> None:
        """Write down a pool that is there. Where that cannot be done, it is simply not known later."""
        with contextlib.suppress(OSError, ZvaultError):
            self._put(guid, seen)

    def give_up(self, guid: int, seen: Seen) -> None:
        """Write down that a vault may have another pool than this. Raises OSError, ZvaultError."""
        self._put(guid, replace(seen, given_up=True))

    def _put(self, guid: int, seen: Seen) -> None:
        if self._get(f"{guid:x}") != seen:
            data = {"vault": seen.vault, "pool": seen.pool, "given_up": seen.given_up}
            self._store.put(f"{guid:x}", data)

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
        if data is None:
            return None
        return Seen(str(data.get("vault", "")), str(data.get("pool", "")), data.get("given_up") is True)
