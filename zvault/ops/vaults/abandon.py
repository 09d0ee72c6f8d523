"""A pool that this host still has imported, and whose storage another host has taken: exported without a write to it.

OpenZFS cannot give up a pool that has data in memory: an export writes it first, and a suspended pool waits for that
for ever (its pull request 11082 has been open since 2020). So the pool is given its devices back as copies that are
thrown away: what the block store has now, below writes that stay on this host. It writes what it has there, is
exported, and the copies end. The lease, the log and every object stay the other host's.

The pool may read blocks that the other host has changed by now. Where ZFS cannot go on with what it finds, the pool
stays suspended as it was before, and only a reboot removes it: other pools are not concerned.
"""

from __future__ import annotations

from collections.abc import Callable

from zvault.core.errors import DeviceGone, ZvaultError
from zvault.devices.stack import Stack
from zvault.zfs.pool.pool import Zpool

Say = Callable[[str], None]

SYNC_SECONDS, EXPORT_SECONDS = 120.0, 60.0


async def abandon(pool: str, zpool: Zpool, stack: Stack, say: Say) -> None:
    """Export a suspended pool over copies of its devices. Raises ZvaultError; then the pool is as it was."""
    stack.throw_away = True
    try:
        found = {device.path for device in await stack.up(say)}
        if missing := sorted(set(await zpool.devices(pool)) - found):
            raise DeviceGone(
                f"the pool '{pool}' needs {', '.join(missing)} to be given up",
                f"the copies came up as {', '.join(sorted(found))}",
            )
        say(f"pool {pool} is given up: what it has in memory is written to a copy that is thrown away")
        await zpool.clear(pool)
        await zpool.sync(pool, SYNC_SECONDS)
        await zpool.export(pool, EXPORT_SECONDS)
    except ZvaultError as error:
        raise DeviceGone(
            f"the pool '{pool}', which another host has now, cannot be given up",
            f"{error.what}: {error.why}" if error.why else error.what,
            "it is tried again; if that does not help, reboot this host: nothing of the pool reaches the store",
        ) from error
    say(f"pool {pool} is exported here; nothing of it was written to the store")
