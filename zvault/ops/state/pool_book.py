"""Which pools the vaults were seen to have: so that none is made a second time, and what was made for one can be named
while it is down.

No run needs it (invariant 1). While it is lost, what was made for a vault that is down is reported as unknown and kept,
the vault's lag is unknown, and whether a vault is new is told by what its sources carry (ops/vaults/earlier_pools.py).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from zvault.config.schema import Vault
from zvault.core.errors import ZvaultError
from zvault.system.record_store import RecordStore

FOLDER_SETTLED = 2.0
"""Seconds since a folder changed after which another change has another time."""


@dataclass(frozen=True, slots=True)
class SeenPool:
    """A pool as it was last seen: as whose, under which name, on which storage (its devices, or the host it is on).

    ``given_up``: somebody had the vault begin anew, so that its pool may be another; this one may still be found again.
    ``turn`` grows with each time that a vault is seen to have another pool than before.
    """

    vault: str
    pool: str
    storage: str = ""
    given_up: bool = False
    turn: int = field(default=0, compare=False)

    @classmethod
    def of(cls, vault: Vault) -> SeenPool:
        """Return the sighting of a vault's pool, as the vault is configured now."""
        return cls(vault.name, vault.pool, describe_storage(vault))

    def owner(self, pools: Mapping[str, str]) -> str | None:
        """The vault that has it now, of those configured with these ``pools``: one may have another name since."""
        if self.vault in pools:
            return self.vault
        return next((vault for vault, pool in pools.items() if pool == self.pool), None)


def describe_storage(vault: Vault) -> str:
    """Return what a vault's pool lies on, so that it can be told that it is configured to lie on something else."""
    devices = sorted(" ".join(device.identity) for device in vault.device)
    return ", ".join(devices) if vault.host is None else str(vault.host)


class PoolBook:
    """A small file for each pool, named for its GUID."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._known: tuple[tuple[int, int], dict[int, SeenPool]] | None = None

    def note(self, guid: int, seen: SeenPool) -> None:
        """Write down a pool that is there. Where that cannot be done, it is simply not known later."""
        with contextlib.suppress(OSError, ZvaultError):
            known = self.all()
            last = max((one.turn for one in known.values() if one.vault == seen.vault), default=0)
            if known.get(guid) != seen or known[guid].turn != last:
                self._put(guid, replace(seen, turn=last + 1))

    def give_up(self, guid: int, seen: SeenPool) -> None:
        """Write down that a vault may have another pool than this. Raises OSError, ZvaultError."""
        self._put(guid, replace(seen, given_up=True))

    def _put(self, guid: int, seen: SeenPool) -> None:
        self._store.put(f"{guid:x}", asdict(seen))

    def all(self) -> dict[int, SeenPool]:
        """Every pool that was ever seen, by its GUID."""
        stamp = self._stamp()
        if self._known is not None and stamp == self._known[0]:
            return dict(self._known[1])
        found, names = dict[int, SeenPool](), self._store.names()
        for name in names:
            with contextlib.suppress(ValueError):
                if (seen := self._store.recall(name, _load)) is not None:
                    found[int(name, 16)] = seen
        # One that cannot be read is tried again: that it can be, no folder tells.
        self._known = (stamp, dict(found)) if stamp is not None and len(found) == len(names) else None
        return found

    def _stamp(self) -> tuple[int, int] | None:
        """What changes whenever one is written or goes: each gets its name in the folder anew.

        None just after that, when the next may be written before the folder's time goes on.
        """
        try:
            found = self._store.directory.stat()
        except OSError:
            return None
        return (found.st_ino, found.st_mtime_ns) if time.time() - found.st_mtime > FOLDER_SETTLED else None

    def last(self, vault: Vault) -> int | None:
        """The GUID of the pool that a vault had when it was last up; None where it has another one by now, or none."""
        seen = {guid: one for guid, one in self.all().items() if one.vault == vault.name}
        turn = max((one.turn for one in seen.values()), default=0)
        newest = [guid for guid, one in seen.items() if one.turn == turn]
        return newest[0] if len(newest) == 1 and seen[newest[0]] == SeenPool.of(vault) else None


def _load(data: dict[str, Any]) -> SeenPool:
    return SeenPool(
        str(data.get("vault", "")),
        str(data.get("pool", "")),
        str(data.get("storage", "")),
        data.get("given_up") is True,
        int(data.get("turn", 0)),
    )
