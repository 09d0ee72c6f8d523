"""Scrub a vault: begin or go on, give way to whatever else needs it, and tell what was found."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from zvault.api.events import Emit, MessageEvent, ProgressMade, VaultRead, WarningEvent
from zvault.core.errors import Refused
from zvault.core.policy.scrub import PoolScan
from zvault.core.units import format_duration, format_size
from zvault.ops.context import Context
from zvault.ops.healing.vault_damage import (
    GIVE_UP_HALF,
    describe_excused,
    find_leak,
    make_damaged_error,
    warn_of_damage,
)
from zvault.ops.run_outcome import RunOutcome
from zvault.ops.state.partial_tree import list_existing_around_damage
from zvault.ops.state.pool_health import PoolCondition
from zvault.ops.vaults.examine_pool import examine_pool
from zvault.ops.vaults.name_damage import name_damage
from zvault.ops.vaults.vault import OpenVault, Vaults
from zvault.zfs.pool.scrub import HELD, SCRUBBED, Scrubber

SCRUB_INTERVAL = 2.0
"""Seconds between two looks at how far a scrub is, and whether something else wants the vault."""

ScrubObstacle = Callable[[], str | None]
"""Why no scrub may go on at this moment, in words, or None."""


async def hold_scrubs(context: Context, vaults: Vaults, name: str, *, stop: bool = False) -> PoolCondition:
    """Have a vault's scrubs wait until somebody wants one again; ``stop`` gives up what one has done so far."""
    async with vaults[name].use(f"scrub {name}", lambda _: None, writes=False, create=False) as vault:
        scrubber = Scrubber(vault.zfs.host)
        await scrubber.mark(vault.pool, HELD, "on")
        await (scrubber.stop(vault.pool) if stop else scrubber.pause(vault.pool))
        return await examine_pool(context, name)


@dataclass
class VaultScrubbing:
    """One scrub from its beginning to its end, with pauses: in them the vault may go down.

    ``ending`` tells why everything is to end, as the daemon stops. ``due``: whether it is still wanted once the vault
    was looked at; a scrub that has begun always is. ``_read`` counts the bytes that it read in ``_seconds``, without
    its pauses.
    """

    context: Context
    vaults: Vaults
    name: str
    obstacle: ScrubObstacle
    ending: ScrubObstacle
    due: Callable[[PoolCondition], bool]
    emit: Emit
    outcome: RunOutcome
    _begun: bool = False
    _wrong: int = 0
    _read: int = 0
    _seconds: float = 0.0
    _told: str = field(default="", repr=False)

    @property
    def user(self) -> str:
        """The name of the scrub in the vault's list of users."""
        return f"scrub {self.name}"

    async def run(self) -> None:
        """Scrub to the end. Raises what the vault suffers; the scrub goes on another time then."""
        while await self._free():
            use = self.vaults[self.name].use(self.user, self._say, writes=False, reads=True, create=False)
            async with use as vault:
                vault.refuse_read_only("it cannot be scrubbed")
                if await self._stretch(vault):
                    return

    def _say(self, text: str) -> None:
        self.emit(MessageEvent(text=text))

    async def _free(self) -> bool:
        """Wait until nothing stands in the way; False when everything is to end."""
        while (why := self.obstacle()) is not None and self.ending() is None:
            self._note(why)
            await asyncio.sleep(SCRUB_INTERVAL)
        if self.ending() is not None:
            self._put_off()
            return False
        self._note("")
        return True

    def _note(self, why: str) -> None:
        """Say once why it does not go on."""
        if why and why.partition(" in ")[0] != self._told.partition(" in ")[0]:
            self._say(f"{'paused' if self._begun else 'waiting'}: {why}")
        self._told = why
        self.context.records.conditions.pausing(self.name, why)

    def _put_off(self) -> None:
        self.outcome.result = "interrupted"
        why = self.ending() or "it was told to"
        self.outcome.blame(
            Refused(f"the scrub of vault '{self.name}' was put off", why, "it goes on by itself")
        )

    async def _stretch(self, vault: OpenVault) -> bool:
        """Scrub until it has ended (True) or something comes between."""
        scrubber = Scrubber(vault.zfs.host)
        before = await examine_pool(self.context, self.name)
        if before.scan.resilver and before.scan.open:
            raise Refused(
                f"vault '{self.name}' cannot be scrubbed now",
                "a resilver of its pool runs",
                "wait for that",
            )
        if not self._begun and not before.scan.open and not self.due(before):
            self._say("no scrub is due any more")
            return True
        if self._begun and before.held:
            await self._paused_by_hand(scrubber, vault.pool)
            return True
        await self._go(scrubber, vault.pool, before.scan)
        wrong, read, done = self._wrong, self._read, before.scan.done if before.scan.open else 0
        seconds, began = self._seconds, time.monotonic()
        while True:
            await asyncio.sleep(SCRUB_INTERVAL)
            now = await examine_pool(self.context, self.name)
            self._progress(now.scan)
            self._read, self._seconds = (
                read + max(0, now.scan.done - done),
                seconds + time.monotonic() - began,
            )
            # An export between two stretches has ZFS count anew.
            self._wrong = wrong + max(0, now.checksums - before.checksums)
            if not now.scan.open:
                await self._ended(scrubber, vault.pool, now)
                return True
            if now.scan.state == "paused" or now.held:
                await self._paused_by_hand(scrubber, vault.pool)
                return True
            if self.ending() is not None or self.obstacle() is not None:
                if self.ending() is not None and self.vaults[self.name].config.up == "always":
                    self._put_off()
                    return True  # the pool stays up, and scrubs on
                await scrubber.pause(vault.pool)
                return False

    async def _go(self, scrubber: Scrubber, pool: str, scan: PoolScan) -> None:
        await scrubber.mark(pool, HELD, "")
        if scan.state != "scanning":
            await scrubber.start(pool)
        share = f" at {scan.share:.0%}" if scan.share is not None else ""
        self._say(f"scrub of {pool} {'goes on' + share if scan.open else 'begins'}")
        self._begun = True

    def _progress(self, scan: PoolScan) -> None:
        self.emit(
            ProgressMade(
                dataset=f"scrub of {self.name}",
                bytes=scan.done,
                total=scan.total,
                rate=scan.rate or 0.0,
                buffer=None,
                run_bytes=scan.done,
                run_total=scan.total,
            )
        )

    def _mended(self, scan: PoolScan) -> str:
        """What was wrong and could be put right, in words; empty where nothing was."""
        told = [f"repaired: {format_size(scan.repaired)}"] if scan.repaired else []
        told += [f"reads with a wrong checksum: {self._wrong}"] if self._wrong else []
        return "".join(f"; {one}" for one in told)

    async def _paused_by_hand(self, scrubber: Scrubber, pool: str) -> None:
        await scrubber.mark(pool, HELD, "on")
        self._note("somebody paused it")
        self._say(f"'zvaultctl scrub {self.name}' goes on with it")
        await examine_pool(self.context, self.name)
        self.outcome.result = "interrupted"

    def _report_reading(self, scan: PoolScan) -> None:
        """Report how fast it was. The last look came up to SCRUB_INTERVAL late; ZFS tells its end by the second."""
        if scan.ended is not None and scan.started is not None:
            self._seconds = min(self._seconds, max(1.0, scan.ended - scan.started))
        if self._read:
            self.emit(VaultRead(vault=self.name, kind="scrub", bytes=self._read, seconds=self._seconds))

    async def _ended(self, scrubber: Scrubber, pool: str, found: PoolCondition) -> None:
        scan = found.scan
        if scan.state == "canceled":
            self.outcome.result = "interrupted"
            self._say("the scrub was stopped by hand")
            return
        self._report_reading(scan)
        if scan.ended is not None:
            await scrubber.mark(pool, SCRUBBED, f"{scan.ended:.0f}")
        took = format_duration(scan.ended - scan.started) if scan.ended and scan.started else "some time"
        self._say(f"scrubbed {format_size(scan.done)} in {took}; errors: {found.errors}{self._mended(scan)}")
        if self._wrong or scan.repaired:
            self.emit(
                WarningEvent(
                    text=f"the storage of vault {self.name} gave wrong bytes{self._mended(scan)}. What ZFS has twice it"
                    " put right; see the storage, and whether the next scrub finds more",
                )
            )
        if found.errors:
            config = self.context.env.vault(self.name)
            await name_damage(self.context, config)
            known = self.context.records.conditions.get(self.name) or found
            if known.excused and not known.damaging:
                self.emit(WarningEvent(text=f"{describe_excused(known)}. {GIVE_UP_HALF}"))
                return
            warn_of_damage(known, self.emit)
            self.outcome.result = "partial"
            tree = await list_existing_around_damage(self.context.clients.vault_zfs(config), pool)
            self.outcome.blame(
                await find_leak(self.context, config, known, tree) or make_damaged_error(config, known)
            )
