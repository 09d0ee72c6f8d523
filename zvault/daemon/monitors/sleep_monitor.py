"""The host goes to sleep and wakes, or shuts down: streams are put down and go on, and no vault is left half-written.

logind announces a sleep or a shutdown, and waits for who holds a lock of mode ``delay`` (org.freedesktop.login1(5)): a
few seconds, InhibitDelayMaxSec. While a vault is written to, a lock of ops/vaults/inhibitor.py keeps most sleeps away
altogether; this is for those that come all the same, for vaults that are up while nobody writes to them, and for
shutdowns.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

from zvault.core.errors import ZvaultError
from zvault.core.policy.sleep import DELAY_RESERVE, InhibitEvent
from zvault.core.units import format_duration
from zvault.daemon import journald
from zvault.daemon.job_runner import JobRunner, make_unexpected_error
from zvault.daemon.journald import log
from zvault.daemon.scheduler import PROMPT
from zvault.daemon.shutdown import call_off_shutdown, prepare_shutdown
from zvault.ops.context import Context
from zvault.ops.vaults.vault import ManagedVault, Vaults
from zvault.ops.vaults.vault_sleep import PausedScrub, prepare_for_sleep, resume_after_sleep
from zvault.system.logind import SleepAnnouncement, hear_announcements, hold_inhibitor, read_longest_delay

INHIBIT_REASON = "zvault stops its streams, and has its vaults write out what they have"

LOGIND_RETRY_PAUSE = 30.0
"""Seconds until logind is asked again to announce what the host does."""

USUAL_DELAY = 5.0
"""InhibitDelayMaxSec where it cannot be asked for: logind's own."""

END_OVERDUE = 900.0
"""Seconds awake after which a sleep or shutdown that was announced is over, also untold: zvaultd would have been
stopped by then, for which systemd waits ten minutes. asyncio's clock stands still while the host sleeps.
"""

LONG_INHIBITION = 86400.0
"""Seconds an inhibitor may be held before that is told: a day. A first backup can take longer, and is worth a look."""


class SleepMonitor:
    """Puts everything down before the host sleeps or shuts down, and takes it up again where it goes on.

    ``wake`` starts what was stopped.
    """

    def __init__(
        self, context: Context, vaults: Vaults, runner: JobRunner, wake: Callable[[set[str]], None]
    ) -> None:
        self.context = context
        self.vaults = vaults
        self.runner = runner
        self.wake = wake
        self.problem: ZvaultError | None = None
        self._stopped: set[str] = set()
        self._to_be_up: list[ManagedVault] = []
        self._rests: dict[str, PausedScrub] = {}
        self._rising: set[asyncio.Task[None]] = set()

    def warnings(self) -> dict[str, str]:
        """Return what keeps the host awake for longer than anybody would expect, by vault."""
        now = self.context.env.clock.time()
        return {
            f"inhibitor {vault.name}": f"vault {vault.name} has kept the host awake for"
            f" {format_duration(now - vault.awake.since)}: see with 'zvaultctl status' what is written to it"
            for vault in self.vaults.all()
            if vault.awake.since is not None and now - vault.awake.since > LONG_INHIBITION
        }

    async def watch(self) -> None:
        """Listen for ever to logind's announcements of sleep and shutdown."""
        while True:
            try:
                async with hear_announcements() as heard:
                    self.problem = None
                    await self._listen(heard)
            except Exception as error:
                told = error if isinstance(error, ZvaultError) else make_unexpected_error(error)
                if self.problem is None:
                    log.warning(
                        "sleep and shutdown are not heard of, and may come into whatever is done: %s",
                        told,
                        exc_info=None if told is error else error,
                    )
                self.problem = told
            await asyncio.sleep(LOGIND_RETRY_PAUSE)

    async def _listen(self, heard: asyncio.Queue[SleepAnnouncement | None]) -> None:
        while True:
            async with hold_inhibitor(why=INHIBIT_REASON, what="sleep:shutdown", mode="delay") as lock:
                if lock.problem is not None:
                    raise lock.problem
                told = await heard.get()
                while told is not None and not told.coming:
                    told = await heard.get()
                if told is None:
                    return
                await _try_to(self.lie_down() if told.event == "sleep" else self.prepare_shutdown())
            heard_on = await self._wait_for_end(told.event, heard)
            await _try_to(self.get_up() if told.event == "sleep" else self.stay_up())
            if not heard_on:
                return

    async def _wait_for_end(
        self, event: InhibitEvent, heard: asyncio.Queue[SleepAnnouncement | None]
    ) -> bool:
        """Wait until a sleep is over, or a shutdown was called off; whether logind is still heard.

        It also ends after END_OVERDUE: a logind that was restarted meanwhile tells nothing, and no run could start.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_OVERDUE):
                while (told := await heard.get()) is not None:
                    if told.event == event and not told.coming:
                        return True
                if event == "shutdown":
                    # The shutdown may have stopped the bus: zvaultd is stopped next, and begins nothing until then.
                    await asyncio.sleep(LOGIND_RETRY_PAUSE)
                return False
        log.warning("nobody told that the %s is over, and the host has been up for minutes: going on", event)
        return True

    async def prepare_shutdown(self) -> None:
        """Put everything down while the whole host is still there; what takes longer goes on as zvaultd is stopped."""
        began = time.monotonic()
        log.info("the host is going down; %d runs to stop", len(self.runner.current))
        self._to_be_up = [one for one in self.vaults.all() if one.facts.to_be_up]
        self._stopped = await prepare_shutdown(self.context, self.runner, self.vaults)
        log.info("ready for the shutdown after %.1f s", time.monotonic() - began)

    async def stay_up(self) -> None:
        """Take everything up again: the shutdown was called off."""
        log.info("the host does not go down after all")
        call_off_shutdown(self.context, self.runner)
        vaults, self._to_be_up = self._to_be_up, []
        await self._take_up({one.name: asyncio.create_task(self._bring_up(one)) for one in vaults})

    async def lie_down(self) -> None:
        """Put everything down within logind's patience."""
        began = time.monotonic()
        self.context.activity.awake.clear()
        until = began + await self._delay() - DELAY_RESERVE
        log.info("the host goes to sleep; %d runs to stop", len(self.runner.current))
        self._stopped = await self.runner.put_down("the host goes to sleep", until - time.monotonic())
        vaults = self.vaults.all()
        rests = await asyncio.gather(*(self._lie_down(one, until) for one in vaults))
        self._rests = {one.name: rest for one, rest in zip(vaults, rests, strict=True)}
        log.info("ready to sleep after %.1f s", time.monotonic() - began)

    async def _lie_down(self, vault: ManagedVault, until: float) -> PausedScrub:
        try:
            return await prepare_for_sleep(vault, until, journald.make_vault_logger(vault.name))
        except Exception:
            log.exception("vault %s goes to sleep as it is", vault.name)  # the others need not
            return PausedScrub()

    async def _delay(self) -> float:
        try:
            return await read_longest_delay()
        except ZvaultError:
            return USUAL_DELAY

    async def get_up(self) -> None:
        """Take everything up again, and make up for what was missed."""
        log.info("the host is awake again")
        self.context.activity.awake.set()
        self.runner.reopen()
        needed = {self._vault_of(name) for name in self._stopped}
        await self._take_up(
            {
                one.name: asyncio.create_task(self._up(one, needed=one.name in needed))
                for one in self.vaults.all()
            }
        )

    async def _take_up(self, rising: dict[str, asyncio.Task[None]]) -> None:
        """Start what was stopped, each run once its vault is up: a vault that takes long keeps no other waiting."""
        stopped, self._stopped = self._stopped, set()
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
        rest = self._rests.pop(vault.name, PausedScrub())
        goes_on = needed and not vault.config.hosts
        await self._told(
            vault, resume_after_sleep(vault, rest, journald.make_vault_logger(vault.name), needed=goes_on)
        )

    async def _bring_up(self, vault: ManagedVault) -> None:
        await self._told(vault, vault.up(journald.make_vault_logger(vault.name)))

    async def _told(self, vault: ManagedVault, work: Awaitable[None]) -> None:
        """Do that with one vault; whatever is wrong with it is told, and stops no other."""
        try:
            await work
        except Exception as error:
            told = error if isinstance(error, ZvaultError) else make_unexpected_error(error)
            if told is not error:
                log.exception("getting vault %s up failed", vault.name)
            vault.error = told
            log.error("vault %s: %s", vault.name, told, extra={"VAULT": vault.name})


async def _try_to(work: Awaitable[None]) -> None:
    """Whatever is wrong with one step, those after it are made: else nothing would ever start again."""
    try:
        await work
    except Exception:
        log.exception("what the host does could not be followed to the end")
