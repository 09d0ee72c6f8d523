"""Vaults as they were, that are open beside the vaults: what is written down of each, before it is made."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from zvault.api.vaults import PastDocument
from zvault.core.errors import ZvaultError
from zvault.system.state_files import LeaseStore

PREFIX = "past/"
_LEASE = re.compile(r"past/(?P<vault>[^/]+)/(?P<epoch>\d{1,20})-(?P<number>\d{1,20})")


@dataclass(frozen=True, slots=True)
class Past:
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
        """What its device is called in the place of a vault's name: no vault has a colon in its own."""
        return f"{self.vault}:{self.at}"

    @property
    def lease(self) -> str:
        """The lease's name."""
        return f"{PREFIX}{self.vault}/{self.at}"

    @property
    def when(self) -> str:
        """The moment, for people."""
        return f"{datetime.fromtimestamp(self.taken, UTC):%Y-%m-%d %H:%M:%S} UTC"

    def as_lease(self) -> dict[str, object]:
        """What its lease has besides its name."""
        return {
            "taken": self.taken,
            "pool": self.pool,
            "user": self.user,
            "guid": self.guid,
            "opened": self.opened,
            "pinned": self.pinned,
        }

    def document(self) -> PastDocument:
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


def pool_name(pool: str, taken: float) -> str:
    """What the pool of a vault as it was is called."""
    return f"{pool}_zvault-at-{datetime.fromtimestamp(taken, UTC):%Y%m%dT%H%M%SZ}"


def pasts(leases: LeaseStore, vault: str | None = None) -> list[Past]:
    """What there is, or may be, of all vaults or of one; the oldest moment first."""
    prefix = PREFIX if vault is None else f"{PREFIX}{vault}/"
    read = [_read(leases, name) for name in leases.names(prefix)]
    return sorted(
        (one for one in read if one is not None), key=lambda one: (one.vault, one.taken, one.number)
    )


def unreadable(leases: LeaseStore) -> list[str]:
    """The leases that cannot be read, with the reason."""
    found = []
    for name in leases.names(PREFIX):
        try:
            leases.get(name)
        except ZvaultError as error:
            found.append(str(error))
    return found


def _read(leases: LeaseStore, name: str) -> Past | None:
    match = _LEASE.fullmatch(name)
    try:
        data = leases.get(name)
    except ZvaultError:
        return None  # see ``unreadable``
    if match is None or data is None:
        return None
    return Past(
        match["vault"],
        int(match["epoch"]),
        int(match["number"]),
        float(data["taken"]),
        str(data["pool"]),
        str(data["user"]),
        int(data["guid"]),
        bool(data["opened"]),
        bool(data["pinned"]),
    )


def up_to(found: Sequence[Past], at: float) -> Past | None:
    """The last of some moments that is not later than ``at``."""
    return max(
        (one for one in found if one.taken <= at), key=lambda one: (one.taken, one.number), default=None
    )
