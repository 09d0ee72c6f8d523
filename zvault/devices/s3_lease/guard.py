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

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from zvault.core.errors import Busy, DeviceGone, ToolFailed, ZvaultError
from zvault.core.units import format_duration
from zvault.devices.s3_lease.answers import log_lease_line, report_lease_error
from zvault.devices.s3_lease.guard_command import GUARD_STOP_SECONDS
from zvault.devices.s3_lease.held_lease import WATCHDOG_AFTER, HeldLease
from zvault.devices.s3_lease.lease_object import (
    BucketPlace,
    LeaseContent,
    LeaseLost,
    LeaseObjectStore,
    parse_lease_params,
)
from zvault.devices.s3_lease.lease_process import make_lease_parser, run_with_lease
from zvault.devices.s3_lease.takeover import BootClock, acknowledge_shutout
from zvault.system import sd_notify
from zvault.system.process.spawn import describe_exit, kill_process, spawn_program

STOP_AFTER = 0.5
"""The part of the bound without a renewal after which the guard kills the server; systemd both after WATCHDOG_AFTER."""
WATCHDOG_NOW = 0.001
"""Seconds. With none at all systemd would not watch any more."""
LONGEST_GUARD_STATUS = 1 << 20
"""Characters read of what a server says."""
SETTLE_SECONDS = 2.0
"""Seconds for the store to be done with what a killed server had sent it as a whole."""


class LeaseGuard(HeldLease):
    """Runs one server for as long as this host has the lease."""

    def __init__(
        self,
        store: LeaseObjectStore,
        mine: LeaseContent,
        etag: str,
        clock: BootClock,
        patience: float = GUARD_STOP_SECONDS,
        *,
        resume: bool = False,
    ) -> None:
        """``patience``: how many seconds the server may take to stop, with the lease renewed meanwhile.

        ``resume``: a pool of this host's waits for the device, so the lease is kept whatever becomes of the server.
        """
        super().__init__(store, mine, etag, clock)
        self.patience = patience
        self.resume = resume
        self.dead = False

    async def run(self, argv: Sequence[str]) -> None:
        """Run the server until it is to stop. Raises ToolFailed when it ends by itself, Busy when the lease is lost."""
        self._heed_signals()
        await asyncio.wait_for(asyncio.to_thread(self._renew_once), self.mine.bound * STOP_AFTER)
        server = await spawn_program(
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
            self.dead = await kill_process(server)
            raise renewing.result()
        renewing.cancel()
        if not ended.done():
            await self._kill(server)
        elif not self.stop.is_set() or ended.result() != 0:
            # The lease is not given back: a pool of this host's may still wait for the device, or for the rest of it.
            # But not where the server never attached: the lease would only keep a repair away.
            if not self.resume and has_never_served(argv):
                await self._give_back()
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
                log_lease_line(f"the lease could not be renewed, trying again: {why}")
            if self.renewed > told:
                told = self.renewed
                self._tell_watchdog()
        return self._silent(self.clock.now() - self.renewed, why)

    def _tell_watchdog(self) -> None:
        """Have systemd kill guard and server in time before the lease runs out, however late its renewal was seen."""
        left = self.renewed + self.mine.bound * WATCHDOG_AFTER - self.clock.now()
        sd_notify.allow_silence(max(left, WATCHDOG_NOW))

    async def _rest(self, seconds: float) -> float:
        """Wait so long; how many seconds are left. In steps: asyncio's clock stands still while a host sleeps."""
        end = self.clock.now() + seconds
        while (now := self.clock.now()) < end and now < self.renewed + self.mine.bound * STOP_AFTER:  # noqa: ASYNC110
            await asyncio.sleep(min(1.0, end - now))
        return self.renewed + self.mine.bound * STOP_AFTER - self.clock.now()

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
        if not await kill_process(server):
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
                await asyncio.wait_for(
                    asyncio.to_thread(acknowledge_shutout, self.store, self.mine), self.pause
                )


def has_never_served(argv: Sequence[str]) -> bool:
    """Whether zvault's own server says in its status file that it could not attach. False where nobody says so."""
    file = parse_lease_params(argv).get("status")
    if file is None:
        return False
    try:
        # Whatever the server put there: its folder is not root's.
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, encoding="utf-8") as status:
            found = json.loads(status.read(LONGEST_GUARD_STATUS))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and bool(found.get("error")) and found.get("engine") is None


def main() -> int:
    parser = make_lease_parser("zvault.devices.s3_lease.guard", "show", "take", "guard")
    parser.add_argument("--bound", type=float, required=True)
    parser.add_argument("--patience", type=float, default=GUARD_STOP_SECONDS)
    parser.add_argument("server", nargs="+")
    given = parser.parse_args()

    def hold(store: LeaseObjectStore, mine: LeaseContent, etag: str, clock: BootClock) -> None:
        guard = LeaseGuard(store, mine, etag, clock, given.patience, resume=given.resume)
        asyncio.run(_guarded(guard, given.server, given.report))

    return run_with_lease(given, lambda: LeaseObjectStore(BucketPlace.of(given.server)), hold)


async def _guarded(guard: LeaseGuard, server: Sequence[str], report: Path | None) -> NoReturn:
    code = 0
    try:
        await guard.run(server)
    except ZvaultError as error:
        report_lease_error(error, report)
        await guard.settled()
        code = 1
    os._exit(code)  # not held up by a thread that waits for the store


if __name__ == "__main__":
    sys.exit(main())
