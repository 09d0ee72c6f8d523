"""The host goes to sleep, and wakes: streams are put down and go on, and no vault is left half-written.

logind announces a sleep, and waits for who holds a lock of mode ``delay`` (org.freedesktop.login1(5)): a few seconds,
InhibitDelayMaxSec. The block locks of runs (ops/awake.py) keep most sleeps away altogether; this is for those that come
all the same, and for vaults that are up while nobody writes to them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from zvault.core.errors import ZvaultError
from zvault.core.policy.sleep import MARGIN
from zvault.core.units import format_duration
from zvault.daemon import journald
from zvault.daemon.journald import log
from zvault.daemon.runs import Runs, unexpected
from zvault.daemon.scheduler import PROMPT
from zvault.ops.context import Context
from zvault.ops.vaults.sleep import PausedScrub, get_up, lie_down
from zvault.ops.vaults.vault import ManagedVault, Vaults
from zvault.system.logind import inhibit, longest_delay, sleeps

WHY = "zvault stops its streams, and has its vaults write out what they have"

AGAIN = 30.0
"""Seconds until logind is asked again to tell of sleeps."""

USUAL_DELAY = 5.0
"""InhibitDelayMaxSec where it cannot be asked for: logind's own."""


LONG = 86400.0
"""Seconds an inhibitor may be held before that is told: a day. A first backup can take longer, and is worth a look."""


class SleepMonitor:
    """Puts everything down when the host goes to sleep, and takes it up again. ``wake`` starts what was stopped."""

    def __init__(
        self, context: Context, vaults: Vaults, runs: Runs, wake: Callable[[set[str]], None]
    ) -> None:
        self.context = context
        self.vaults = vaults
        self.runs = runs
        self.wake = wake
        self.problem: ZvaultError | None = None
        self._stopped: set[str] = set()
        self._rests: dict[str, PausedScrub] = {}
        self._rising: set[asyncio.Task[None]] = set()

    def warnings(self) -> dict[str, str]:
        """What keeps the host awake for longer than anybody would expect, by vault."""
        now = self.context.env.clock.time()
        return {
            f"inhibitor {vault.name}": f"vault {vault.name} has kept the host awake for"
            f" {format_duration(now - vault.awake.since)}: see with 'zvaultctl status' what is written to it"
            for vault in self.vaults.all()
            if vault.awake.since is not None and now - vault.awake.since > LONG
        }

    async def watch(self) -> None:
        """Listen for ever."""
        while True:
            try:
                async with sleeps() as heard:
                    self.problem = None
                    await self._listen(heard)
            except ZvaultError as error:
                if self.problem is None:
                    log.warning("sleep is not heard of, and may come into whatever is done: %s", error)
                self.problem = error
            await asyncio.sleep(AGAIN)

    async def _listen(self, heard: asyncio.Queue[bool | None]) -> None:
        while True:
            async with inhibit(why=WHY, what="sleep", mode="delay") as lock:
                if lock.problem is not None:
                    raise lock.problem
                while not (going := await heard.get()):
                    if going is None:
                        return
                await self.lie_down()
            going = await heard.get()
            await self.get_up()
            if going is None:
                return

    async def lie_down(self) -> None:
        """Put everything down within logind's patience."""
        began = time.monotonic()
        self.context.activity.awake.clear()
        until = began + await self._delay() - MARGIN
        log.info("the host goes to sleep; %d runs to stop", len(self.runs.current))
        self._stopped = await self.runs.put_down("the host goes to sleep", until - time.monotonic())
        vaults = self.vaults.all()
        rests = await asyncio.gather(*(lie_down(one, until, journald.about(one.name)) for one in vaults))
        self._rests = {one.name: rest for one, rest in zip(vaults, rests, strict=True)}
        log.info("ready to sleep after %.1f s", time.monotonic() - began)

    async def _delay(self) -> float:
        try:
            return await longest_delay()
        except ZvaultError:
            return USUAL_DELAY

    async def get_up(self) -> None:
        """Take everything up again, and make up for what was missed."""
        log.info("the host is awake again")
        self.context.activity.awake.set()
        self.runs.reopen()
        stopped, self._stopped = self._stopped, set()
        needed = {self._vault_of(name) for name in stopped}
        rising = {
            one.name: asyncio.create_task(self._up(one, needed=one.name in needed))
            for one in self.vaults.all()
        }
        if rising:
            await asyncio.wait(rising.values(), timeout=PROMPT)
        slow = {name: task for name, task in rising.items() if not task.done()}
        waiting = {name for name in stopped if self._vault_of(name) in slow}
        self.wake(stopped - waiting)
        for name, task in slow.items():
            later = asyncio.create_task(self._later(name, task, waiting))
            self._rising.add(later)
            later.add_done_callback(self._rising.discard)

    def _vault_of(self, backup: str) -> str | None:
        known = backup in self.context.env.config.backup
        return self.context.env.backup(backup).vault if known else None

    async def _later(self, vault: str, rising: asyncio.Task[None], waiting: set[str]) -> None:
        """Go on with what was stopped on a vault that takes long to come up."""
        await rising
        self.wake({name for name in waiting if self._vault_of(name) == vault})

    async def _up(self, vault: ManagedVault, *, needed: bool) -> None:
        """Take one up, whatever is wrong with another."""
        try:
            rest = self._rests.pop(vault.name, PausedScrub())
            goes_on = needed and not vault.config.hosts
            await get_up(vault, rest, journald.about(vault.name), needed=goes_on)
        except Exception as error:
            told = error if isinstance(error, ZvaultError) else unexpected(error)
            if told is not error:
                log.exception("getting vault %s up failed", vault.name)
            vault.error = told
            log.error("vault %s: %s", vault.name, told, extra={"VAULT": vault.name})
