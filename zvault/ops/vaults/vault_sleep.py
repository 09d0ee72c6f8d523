"""A vault before the host sleeps, and after: nothing is under way on its devices while nobody can answer."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from zvault.core.errors import DeadlineExceeded, ZvaultError
from zvault.core.policy.sleep import has_time_to_export
from zvault.core.policy.vault_life import VaultLife
from zvault.ops.vaults.assembly import Say
from zvault.ops.vaults.vault import Export, ManagedVault
from zvault.zfs.pool.scrub import Scrubber


@dataclass
class PausedScrub:
    """A scrub of a vault's pool that was paused before the host slept."""

    scrub: bool = False


async def prepare_for_sleep(vault: ManagedVault, until: float, say: Say) -> PausedScrub:
    """Have the pool of a vault that is up write out what it has, before ``until`` (monotonic seconds).

    Never raises, and never takes longer. What is not done by then waits in the kernel, and may keep the host awake: the
    freezer gives up after 20 s.
    """
    rest = PausedScrub()
    if vault.config.is_imported_by_zvault:
        try:
            async with asyncio.timeout_at(_loop_time(until)):
                # Also of a vault that is being taken down: what is left of its write-back goes on after the sleep.
                await vault.assembly().stack().rest(resting=True)
                async with vault.before_sleep() as export:
                    await _settle(vault, export, until, rest, say)
        except (TimeoutError, DeadlineExceeded):
            say(f"vault {vault.name} has not come to rest in time, and may keep the host from its sleep")
        except ZvaultError as error:
            say(f"vault {vault.name} goes to sleep as it is: {error}")
    return rest


def _loop_time(until: float) -> float:
    return asyncio.get_running_loop().time() + until - time.monotonic()


async def _settle(
    vault: ManagedVault, export: Export | None, until: float, rest: PausedScrub, say: Say
) -> None:
    assembly, pool = vault.assembly(), vault.config.pool
    state = await assembly.zpool.kernel_state(pool)
    if state is None:
        return
    if state == "SUSPENDED":
        say(f"pool {pool} is suspended, and goes to sleep so")
        return
    began = time.monotonic()
    scrubber = Scrubber(vault.context.env.runner)
    if (await scrubber.health(pool, vault.context.env.clock.time())).scan.state == "scanning":
        # Its reads would fill the device's queue, and the sync wait behind them.
        rest.scrub = True
        await scrubber.pause(pool)
    await assembly.zpool.sync(pool, until - time.monotonic())
    now = time.monotonic()
    say(f"pool {pool} has written out what it had, in {now - began:.1f} s")
    if vault.config.on_sleep == "export" or vault.config.hosts:
        if export is None:
            say(f"pool {pool} stays imported: zvault has not imported it")
        elif has_time_to_export(until - now, now - began):
            await export(until - now)
            say(f"exported pool {pool}")
            if vault.config.hosts:
                # Its server gives the lease back, and another host need not wait for it to end.
                await assembly.stack().down(say)
        else:
            say(f"pool {pool} stays imported: {until - now:.1f} s are not enough to export it for sure")


async def resume_after_sleep(vault: ManagedVault, rest: PausedScrub, say: Say, *, needed: bool) -> None:
    """Have a vault be again what it was before the host slept. ``needed``: a run goes on with it.

    Raises what is in the way.
    """
    if not vault.config.is_imported_by_zvault or not vault.lease.exists:
        return
    await vault.assembly().stack().rest(resting=False)
    if vault.moving:
        return
    if vault.facts.to_be_up:
        if vault.life is VaultLife.EXPORTED:
            await vault.up(say)
        if rest.scrub:
            await Scrubber(vault.context.env.runner).start(vault.config.pool)
    elif not needed and not vault.users:
        await vault.down(say, by_hand=False)
