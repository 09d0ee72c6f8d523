"""The guard of a server whose blocks are in an object store: it takes the lease, runs the server, and renews the lease.

It is a process of its own, the main one of ``zvault-device@NAME.service``, so that the lease lives as long as the
server, whatever becomes of zvaultd. Once it can no longer know that the lease is its own it kills the server:

- after half the lease's bound without a renewal, by a clock that goes on while the host sleeps;
- as soon as it finds the lease replaced;
- and if it stands still itself systemd does it, by the unit's watchdog, before the bound is over.

``python -m zvault.devices.s3_lease.guard show|take|guard --bound SECONDS [--of BOOT] [--resume] … -- nbdkit …``, with
the server's argv, from which it takes what the plugin is told of the store. ``show`` and ``take`` print one JSON
document; ``take`` takes the lease from the host whose boot is BOOT, and from no other.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from zvault.core.errors import Busy, DeviceGone, ToolFailed, ZvaultError
from zvault.core.units import format_duration
from zvault.devices.s3_lease.answers import answer, answer_failed, say, show, tell
from zvault.devices.s3_lease.guard_command import STOP_SECONDS
from zvault.devices.s3_lease.lease import BucketPlace, Lease, LeaseLost, LeaseObject, Store, ours
from zvault.devices.s3_lease.takeover import Clock, acknowledge, take, take_over
from zvault.system import sd_notify
from zvault.system.process.spawn import describe_exit, put_down, spawn

RENEWALS = 10
"""Within the bound. One that takes long is tried anew in time; an answer that comes later counts as well."""
STOP_AFTER, WATCHDOG_AFTER = 0.5, 0.7
"""Parts of the bound without a renewal after which the guard kills the server, or else systemd both."""
AT_ONCE = 0.001
"""Seconds. With none at all systemd would not watch any more."""
GIVE_BACK_SECONDS = 10.0
"""For giving the lease back, at most. The TimeoutStopSec of its unit is longer than this and the server's patience."""
SETTLE_SECONDS = 2.0
"""Seconds for the store to be done with what a killed server had sent it as a whole."""


class LeaseGuard:
    """Runs one server for as long as this host has the lease."""

    def __init__(
        self, store: Store, mine: Lease, etag: str, clock: Clock, patience: float = STOP_SECONDS
    ) -> None:
        """``patience``: how many seconds the server may take to stop, with the lease renewed meanwhile."""
        self.patience = patience
        self.store = store
        self.mine = mine
        self.etag = etag
        self.clock = clock
        self.renewed = clock.now()
        self.dead = False
        self.stop = asyncio.Event()

    @property
    def pause(self) -> float:
        """Seconds between two renewals."""
        return self.mine.bound / RENEWALS

    async def run(self, argv: Sequence[str]) -> None:
        """Run the server until it is to stop. Raises ToolFailed when it ends by itself, Busy when the lease is lost."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.stop.set)
        await asyncio.wait_for(asyncio.to_thread(self._renew_once), self.mine.bound * STOP_AFTER)
        server = await spawn(
            argv, stdin=asyncio.subprocess.DEVNULL, stdout=sys.stdout.fileno(), stderr=sys.stderr.fileno()
        )
        ended, renewing = asyncio.ensure_future(server.wait()), asyncio.ensure_future(self._renew())
        stopping = asyncio.ensure_future(self.stop.wait())
        await asyncio.wait({ended, renewing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not ended.done() and not renewing.done():
            with contextlib.suppress(ProcessLookupError):
                server.terminate()
            # It may have much to put away, so the lease must not run out meanwhile.
            await asyncio.wait({ended, renewing}, timeout=self.patience, return_when=asyncio.FIRST_COMPLETED)
        if renewing.done():
            self.dead = await put_down(server)
            raise renewing.result()
        renewing.cancel()
        if not ended.done():
            await self._kill(server)
        elif not self.stop.is_set() or ended.result() != 0:
            # The lease is not given back: a pool of this host's may still wait for the device, or for the rest of it.
            why = describe_exit(ended.result())
            raise ToolFailed("the device's server died", why, "see its unit's journal")
        await self._give_back()

    async def _renew(self) -> ZvaultError:
        """Renew the lease until that can be done no more; why it cannot."""
        self._tell_watchdog()
        wait, why, told = self.pause, "the host slept", self.renewed
        while (left := await self._rest(wait)) > 0:
            wait = self.pause
            try:
                # Two renewals at once come in each other's way, so one that is late is waited for, but not to the end.
                patience = min(left, max(self.pause, left / 2))
                await asyncio.wait_for(asyncio.to_thread(self._renew_once), patience)
            except Busy as error:
                return error
            except (ZvaultError, LeaseLost, TimeoutError) as error:
                wait, why = 1.0, str(error) or "the store does not answer"
                say(f"the lease could not be renewed, trying again: {why}")
            if self.renewed > told:
                told = self.renewed
                self._tell_watchdog()
        return self._silent(self.clock.now() - self.renewed, why)

    def _tell_watchdog(self) -> None:
        """Have systemd kill guard and server in time before the lease runs out, however late its renewal was seen."""
        left = self.renewed + self.mine.bound * WATCHDOG_AFTER - self.clock.now()
        sd_notify.allow_silence(max(left, AT_ONCE))

    async def _rest(self, seconds: float) -> float:
        """Wait so long; how many seconds are left. In steps: asyncio's clock stands still while a host sleeps."""
        end = self.clock.now() + seconds
        while (now := self.clock.now()) < end and now < self.renewed + self.mine.bound * STOP_AFTER:  # noqa: ASYNC110
            await asyncio.sleep(min(1.0, end - now))
        return self.renewed + self.mine.bound * STOP_AFTER - self.clock.now()

    def _renew_once(self) -> None:
        """Put the lease anew. One that came too late to be waited for counts too, from when it was begun."""
        began = self.clock.now()
        try:
            self.etag = self.store.put(self.mine, self.etag)
        except LeaseLost:
            # It may be our own: of a put whose answer did not come.
            seen = self.store.read()
            if seen is None or not seen.lease.held or seen.lease.boot != self.mine.boot:
                raise self._lost(seen) from None
            self.etag = self.store.put(self.mine, seen.etag)
        self.renewed = max(self.renewed, began)

    def _lost(self, seen: LeaseObject | None) -> Busy:
        return Busy(
            f"this host may not write to {self.store.place} any more",
            f"it was taken over: {seen.lease.owner()}" if seen is not None else "its lease was removed",
            "its suspended pool can only be given up: with 'hosts' zvaultd does so, else reboot this host",
        )

    def _silent(self, seconds: float, why: str) -> ZvaultError:
        return DeviceGone(
            f"this host stopped writing to {self.store.place}",
            f"it could not renew its lease for {format_duration(seconds)}, and others may take it soon: {why}",
            "when the store answers again, bring the vault up: it goes on if nobody took it meanwhile",
        )

    async def _kill(self, server: asyncio.subprocess.Process) -> None:
        """End a server that does not stop in time, and let the store be done with what it was sent: others may have the
        lease after that. Raises DeviceGone where the server hangs in the kernel; the lease then ends after its bound.
        """
        if not await put_down(server):
            raise DeviceGone(
                f"the server of {self.store.place} cannot be ended",
                f"it did not stop within {format_duration(self.patience)}, and hangs in the kernel since it was killed",
                "its lease is not given back: another host has to wait until it has run out; see the kernel's log",
            )
        await asyncio.sleep(SETTLE_SECONDS)

    async def settled(self) -> None:
        """Once the server is killed: tell a host that waits for that, when the store is done with what it was sent."""
        sd_notify.allow_silence(self.mine.bound + SETTLE_SECONDS)
        if self.dead:
            await asyncio.sleep(SETTLE_SECONDS)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.to_thread(acknowledge, self.store, self.mine), self.pause)

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


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(prog="zvault.devices.s3_lease.guard")
    parser.add_argument("verb", choices=["show", "take", "guard"])
    parser.add_argument("--bound", type=float, required=True)
    parser.add_argument("--of", default="")
    parser.add_argument("--report", type=Path)
    parser.add_argument("--patience", type=float, default=STOP_SECONDS)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("server", nargs="+")
    given = parser.parse_args()
    try:
        store = Store(BucketPlace.of(given.server))
        if given.verb == "show":
            return show(store)
        mine, clock = ours(store.place, given.bound, time.time()), Clock()
        if given.verb == "take":
            return answer({"etag": take_over(store, mine, given.of, say, clock)})
        etag = take(store, mine, resume=given.resume, say=say, clock=clock)
        guard = LeaseGuard(store, mine, etag, clock, given.patience)
        asyncio.run(_guarded(guard, given.server, given.report))
    except (LeaseLost, TimeoutError):
        return _failed(Busy("the lease could not be taken", "another host is at it too", "try again"), given)
    except ZvaultError as error:
        return _failed(error, given)


async def _guarded(guard: LeaseGuard, server: Sequence[str], report: Path | None) -> NoReturn:
    code = 0
    try:
        await guard.run(server)
    except ZvaultError as error:
        tell(error, report)
        await guard.settled()
        code = 1
    os._exit(code)  # not held up by a thread that waits for the store


def _failed(error: ZvaultError, given: argparse.Namespace) -> int:
    return tell(error, given.report) if given.verb == "guard" else answer_failed(error)


if __name__ == "__main__":
    sys.exit(main())
