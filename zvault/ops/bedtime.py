"""A vault before the host sleeps, and after: nothing is under way on its devices while nobody can answer."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from zvault.core.bedtime import time_to_export
from zvault.core.errors import DeadlineExceeded, ZvaultError
from zvault.ops.assembly import Say
from zvault.ops.vault import Keeper
from zvault.zfs.scrub import Scrubber


@dataclass
class Rest:
    """What a vault did before the host slept: a scrub of its pool was paused, the pool was exported."""

    scrub: bool = False
    exported: bool = False


async def lie_down(keeper: Keeper, until: float, say: Say) -> Rest:
    """Have the pool of a vault that is up write out what it has, before ``until`` (monotonic seconds).

    Never raises, and never takes longer. What is not done by then waits in the kernel, and may keep the host awake: the
    freezer gives up after 20 s.
    """
    rest = Rest()
    if keeper.config.device:
        try:
            async with asyncio.timeout_at(_loop_time(until)):
                # Also of a vault that is being taken down: what is left of its write-back goes on after the sleep.
                await keeper.assembly().stack().rest(resting=True)
                async with keeper.turn:
                    await _settle(keeper, until, rest, say)
        except (TimeoutError, DeadlineExceeded):
            say(f"vault {keeper.name} has not come to rest in time, and may keep the host from its sleep")
        except ZvaultError as error:
            say(f"vault {keeper.name} goes to sleep as it is: {error}")
    return rest


def _loop_time(until: float) -> float:
    return asyncio.get_running_loop().time() + until - time.monotonic()


async def _settle(keeper: Keeper, until: float, rest: Rest, say: Say) -> None:
    assembly, pool = keeper.assembly(), keeper.config.pool
    state = await assembly.zpool.kernel_state(pool)
    if state is None:
        return
    if state == "SUSPENDED":
        say(f"pool {pool} is suspended, and goes to sleep so")
        return
    began = time.monotonic()
    scrubber = Scrubber(keeper.context.runner)
    if (await scrubber.health(pool, keeper.context.clock.time())).scan.state == "scanning":
        # Its reads would fill the device's queue, and the sync wait behind them.
        rest.scrub = True
        await scrubber.pause(pool)
    await assembly.zpool.sync(pool, until - time.monotonic())
    now = time.monotonic()
    say(f"pool {pool} has written out what it had, in {now - began:.1f} s")
    if keeper.config.on_sleep == "export":
        if time_to_export(until - now, now - began):
            rest.exported = True
            await assembly.zpool.export(pool, until - now)
            say(f"exported pool {pool}")
        else:
            say(f"pool {pool} stays imported: {until - now:.1f} s are not enough to export it for sure")


async def get_up(keeper: Keeper, rest: Rest, say: Say, *, needed: bool) -> None:
    """Have a vault be again what it was before the host slept. ``needed``: a run goes on with it.

    Raises what is in the way.
    """
    if not keeper.config.device or keeper.context.leases.get(keeper.lease) is None:
        return
    await keeper.assembly().stack().rest(resting=False)
    if keeper.moving:
        return
    if keeper.pinned or keeper.config.up == "always":
        if rest.exported:
            await keeper.up(say)
        if rest.scrub:
            await Scrubber(keeper.context.runner).start(keeper.config.pool)
    elif not needed and not keeper.users:
        await keeper.down(say)
