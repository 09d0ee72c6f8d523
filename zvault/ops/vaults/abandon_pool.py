"""A pool that this host still has imported, and whose storage another host has taken: exported without a write to it.

OpenZFS cannot give up a pool that has data in memory: an export writes it first, and a suspended pool waits for that
for ever (its pull request 11082 has been open since 2020). So the pool is given its devices back as copies that are
thrown away: what the block store has now, below writes that stay on this host. It writes what it has there, is
exported, and the copies end. The lease, the log and every object stay the other host's.

The pool may read blocks that the other host has changed by now. Where ZFS cannot go on with what it finds, the pool
stays suspended, and where something uses it, it goes on over a copy: what is written to it then is lost. So a vault
that is on copies has trouble for as long as it is, and the next try, of whichever zvaultd, goes on here: each copy's
lease tells what it is. If no try gets to its end only a reboot removes the pool: other pools are not concerned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from zvault.core.errors import DeviceGone, PoolSuspended, TakenOver, ZvaultError
from zvault.core.policy.automatic_repairs import ABANDON_POOL, COPIES
from zvault.devices.device_state import DeviceState
from zvault.devices.stack import DeviceStack
from zvault.ops.vaults.clear_suspended_pool import PauseTxgs, close_lost, refuse_multihost
from zvault.system.tasks import finish_work
from zvault.zfs.pool.pool import Zpool

Say = Callable[[str], None]

SYNC_SECONDS = EXPORT_SECONDS = 300.0
"""Longer than a request to a copy may take (devices/nbd/source.py, devices/rbd/throw_away_copy.py)."""


def is_on_copies(devices: Sequence[DeviceState]) -> bool:
    """True if a device of a vault is a copy that is thrown away, or what is left of one."""
    return any(device.throw_away for device in devices)


def make_not_given_up_error(vault: str) -> DeviceGone:
    """Make the error that a vault has while it is on such copies."""
    return DeviceGone(
        f"vault '{vault}' is another host's, and this host has not given its pool up yet",
        "the pool lies on a copy that is thrown away: what is written to it here is lost",
        "end what uses the pool; zvault tries again to export it, and if that does not help, reboot this host",
    )


def make_had_before_error(vault: str) -> TakenOver:
    """Why a vault on such copies does not go on as it is."""
    return TakenOver(
        f"another host has had vault '{vault}'",
        "this host's pool lay on a copy that is thrown away",
        "nothing: this host takes its turn again once its pool is exported",
    )


async def _refuse_multihost(pool: str, zpool: Zpool, stack: DeviceStack, say: Say) -> None:
    with suppress(
        PoolSuspended
    ):  # it does not answer; Zpool.clear knows whether it was seen with multihost=on
        state = await zpool.state(pool)
        if state is not None:
            await refuse_multihost(pool, state, zpool, stack, say)


async def _bring_copies_up(pool: str, zpool: Zpool, stack: DeviceStack, say: Say) -> None:
    """Raises DeviceGone unless each device that the pool looks for is a copy."""
    found = {device.path for device in await stack.up(say)}
    if missing := sorted(set(await zpool.devices(pool)) - found):
        await finish_work(stack.down(say))
        raise DeviceGone(
            f"the pool '{pool}' needs {', '.join(missing)} to be given up",
            f"the copies came up as {', '.join(sorted(found))}",
        )


async def abandon_pool(
    pool: str, zpool: Zpool, stack: DeviceStack, awake: asyncio.Event, say: Say, pause_txgs: PauseTxgs
) -> None:
    """Export a pool over copies of its devices, which may be up already. Raises ZvaultError, also of what is lost then.

    While ``awake`` is not set no export begins: the host is about to sleep.
    """
    stack.throw_away = True
    try:
        if any(device.state == "gone" and device.path for device in await stack.probe()):
            refuse = partial(_refuse_multihost, pool, zpool, stack, say)
            await close_lost(pool, zpool, stack, say, refuse, pause_txgs)
        stack.pool_paths = await zpool.devices(pool)
        await ABANDON_POOL.require_known({COPIES: partial(_bring_copies_up, pool, zpool, stack, say)})
        say(f"pool {pool} is given up: what it has in memory is written to a copy that is thrown away")
        if stack.keeps_lost and await zpool.kernel_state(pool) != "SUSPENDED":
            await zpool.reopen(pool)  # else a pool that had nothing to write takes its devices for good
        await zpool.clear(pool)
        await zpool.sync(pool, SYNC_SECONDS)
        # A sleep may have been announced meanwhile, and an export that it comes into may never end.
        await awake.wait()
        await zpool.export(pool, EXPORT_SECONDS)
    except ZvaultError as error:
        raise DeviceGone(
            f"the pool '{pool}', which another host has now, cannot be given up",
            f"{error.what}: {error.why}" if error.why else error.what,
            "what is written to the pool here is lost, so end what uses it; it is tried again, and if that does not"
            " help, reboot this host: nothing of the pool reaches the store",
        ) from error
    say(f"pool {pool} is exported here; nothing of it was written to the store")
