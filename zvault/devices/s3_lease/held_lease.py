"""A lease that this host has: renewed, found to be another host's, and given back."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import signal

from zvault.core.errors import Busy, DeviceGone, ZvaultError
from zvault.devices.s3_lease.lease_object import LeaseContent, LeaseLost, LeaseObject, LeaseObjectStore
from zvault.devices.s3_lease.takeover import BootClock

RENEWALS = 10
"""Within the bound. One that takes long is tried anew in time; an answer that comes later counts as well."""
WATCHDOG_AFTER = 0.7
"""The part of the bound without a renewal after which nothing may be done with the lease any more."""
GIVE_BACK_SECONDS = 10.0
"""For giving the lease back, at most. The TimeoutStopSec of its unit is longer than this and the server's patience."""


class HeldLease:
    """A lease that its process renews until it is to stop."""

    def __init__(self, store: LeaseObjectStore, mine: LeaseContent, etag: str, clock: BootClock) -> None:
        self.store = store
        self.mine = mine
        self.etag = etag
        self.clock = clock
        self.renewed = clock.now()
        self.stop = asyncio.Event()

    @property
    def pause(self) -> float:
        """Seconds between two renewals."""
        return self.mine.bound / RENEWALS

    def _heed_signals(self) -> None:
        """Stop when the process is told to end."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.stop.set)

    def _renew_once(self) -> None:
        """Put the lease anew. One that came too late to be waited for counts too, from when it was begun."""
        began = self.clock.now()
        try:
            self.etag = self.store.put(self.mine, self.etag)
        except LeaseLost:
            # It may be our own: of a put whose answer did not come.
            seen = self.store.read()
            if seen is not None and seen.is_lost:
                self._refuse_without_etag(seen)
            elif seen is None or not seen.lease.held or seen.lease.boot != self.mine.boot:
                raise self._lost(seen) from None
            self.etag = self.store.put(self.mine, seen.etag)
        self.renewed = max(self.renewed, began)

    def _refuse_without_etag(self, seen: LeaseObject) -> None:
        """See that a lease whose words the store lost can be put again. Raises DeviceGone.

        On condition of its ETag only one host succeeds. Without one the holder leaves it alone and stops in time: to
        remove it first could remove the lease of a host that has taken over since.
        """
        if not seen.etag:
            raise DeviceGone(
                f"the lease {self.store.place} cannot be renewed",
                f"it is of {seen.lease.host}, and without an ETag",
                "'zvaultctl vault take' takes it again, once this host's server has stopped",
            )

    def _lost(self, seen: LeaseObject | None) -> Busy:
        return Busy(
            f"this host may not write to {self.store.place} any more",
            f"it was taken over: {seen.lease.owner()}" if seen is not None else "its lease was removed",
            "its suspended pool can only be given up: with 'hosts' zvaultd does so, else reboot this host",
        )

    async def _give_back(self) -> None:
        """Give the lease back, in the time that the watchdog leaves: nothing is renewed any more."""
        left = self.renewed + self.mine.bound * WATCHDOG_AFTER - self.clock.now()
        if (seconds := min(GIVE_BACK_SECONDS, left)) <= 0:
            return
        with contextlib.suppress(ZvaultError, LeaseLost, TimeoutError):
            await asyncio.wait_for(asyncio.to_thread(self._free), seconds)

    def _free(self) -> None:
        free = dataclasses.replace(self.mine, held=False)
        try:
            self.store.put(free, self.etag)
        except LeaseLost:
            # A renewal that was under way when the server ended may have been carried out since.
            seen = self.store.read()
            if seen is not None and seen.lease.held and seen.lease.boot == self.mine.boot:
                self.store.put(free, seen.etag)
