"""Vaults as they were, that are open beside the vaults: what is written down of each, before it is made."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from zvault.api.vaults import VaultPastDocument
from zvault.core.errors import ZvaultError
from zvault.core.name_rules import check_dataset_name
from zvault.system.record_store import RecordStore

PAST_LEASE_PREFIX = "past/"
_LEASE = re.compile(r"past/(?P<vault>[^/]+)/(?P<epoch>\d{1,20})-(?P<number>\d{1,20})")
_LATEST = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


@dataclass(frozen=True, slots=True)
class PastVault:
    """A vault as it was at a moment that its block store keeps: of the checkpoint ``number`` of ``epoch``.

    ``taken``: when that was, in seconds since the epoch. ``pool`` is what its pool is called here, ``guid`` that pool's
    GUID, 0 before it has one of its own. ``user``: for whom it was opened. ``pinned``: until somebody closes it.
    """

    vault: str
    epoch: int
    number: int
    taken: float
    pool: str
    user: str = ""
    guid: int = 0
    opened: bool = False
    pinned: bool = False

    @property
    def at(self) -> str:
        """The moment, as its server is told."""
        return f"{self.epoch}-{self.number}"

    @property
    def name(self) -> str:
        """The name of its device, in the place of a vault's name: no vault has a colon in its own."""
        return f"{self.vault}:{self.at}"

    @property
    def lease(self) -> str:
        """The lease's name."""
        return f"{PAST_LEASE_PREFIX}{self.vault}/{self.at}"

    @property
    def when(self) -> str:
        """The moment, for people."""
        return f"{datetime.fromtimestamp(self.taken, UTC):%Y-%m-%d %H:%M:%S} UTC"

    def as_lease(self) -> dict[str, object]:
        """Return what its lease has besides its name."""
        return {
            "taken": self.taken,
            "pool": self.pool,
            "user": self.user,
            "guid": self.guid,
            "opened": self.opened,
            "pinned": self.pinned,
        }

    def document(self) -> VaultPastDocument:
        """As the API sends it."""
        return {
            "pool": self.pool,
            "taken": self.taken,
            "epoch": self.epoch,
            "checkpoint": self.number,
            "opened": self.opened,
            "pinned": self.pinned,
            "user": self.user,
        }


def make_past_pool_name(pool: str, taken: float) -> str:
    """Return the name of the pool of a vault as it was."""
    return f"{pool}_zvault-at-{datetime.fromtimestamp(taken, UTC):%Y%m%dT%H%M%SZ}"


def list_past_vaults(leases: RecordStore, vault: str | None = None) -> list[PastVault]:
    """List what is, or may be, open of all vaults or of one; the oldest moment first."""
    prefix = PAST_LEASE_PREFIX if vault is None else f"{PAST_LEASE_PREFIX}{vault}/"
    read = [one for name in leases.names(prefix) if isinstance(one := _read(leases, name), PastVault)]
    return sorted(read, key=lambda one: (one.vault, one.taken, one.number))


def list_unreadable_leases(leases: RecordStore) -> list[str]:
    """The leases that cannot be read, with the reason."""
    read = (_read(leases, name) for name in leases.names(PAST_LEASE_PREFIX))
    return [one for one in read if isinstance(one, str)]


def _read(leases: RecordStore, name: str) -> PastVault | str | None:
    """What a lease tells of; why it cannot be read, in words; None where it is gone by now."""
    try:
        data = leases.get(name)
        return None if data is None else _past(name, data)
    except (ZvaultError, OSError) as error:
        return str(error)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        return (
            f"the lease {name} tells of nothing that is known: {error!r};"
            " see what it was for, undo that by hand, and delete the file"
        )


def _past(name: str, data: Mapping[str, Any]) -> PastVault:
    """What a lease tells of. Raises KeyError, TypeError, ValueError, OverflowError, ZvaultError where that is odd."""
    if (match := _LEASE.fullmatch(name)) is None:
        raise ValueError("its name is that of no moment")
    # A lease that lacked a key, or had a value of another type, had each look at vaults raise: zvaultd did not start.
    if isinstance(data["taken"], bool) or not 0 <= data["taken"] <= _LATEST:
        raise ValueError(f"{data['taken']!r} is no time")
    if type(data["guid"]) is not int or not 0 <= data["guid"] < 1 << 64:
        raise ValueError(f"{data['guid']!r} is no GUID")
    for key, kind in (("pool", str), ("user", str), ("opened", bool), ("pinned", bool)):
        if not isinstance(data[key], kind):
            raise TypeError(f"{key} is {data[key]!r}")
    check_dataset_name(data["pool"])
    if "/" in data["pool"]:
        raise ValueError(f"{data['pool']!r} is no pool")
    return PastVault(
        match["vault"],
        int(match["epoch"]),
        int(match["number"]),
        float(data["taken"]),
        data["pool"],
        data["user"],
        data["guid"],
        data["opened"],
        data["pinned"],
    )


def find_past_up_to(found: Sequence[PastVault], at: float) -> PastVault | None:
    """The last of some moments that is not later than ``at``, as the store finds it: clocks are set back, it is not."""
    known = (one for one in found if 0 < one.taken <= at)
    return max(known, key=lambda one: (one.epoch, one.number), default=None)
