"""Look at a vault's pool and note its condition."""

from __future__ import annotations

from zvault.ops.context import Context
from zvault.ops.state.pool_health import Condition
from zvault.zfs.pool.scrub import Scrubber


async def look_at(context: Context, name: str) -> Condition:
    """Look at a vault's pool, which must be up, and note its condition. Raises ZvaultError."""
    config, now = context.env.vault(name), context.env.clock.time()
    conditions, zpool = context.records.conditions, context.clients.zpool_of(config)
    given_up = conditions.times_given_up(name)
    health = await Scrubber(zpool.runner).health(config.pool, now)
    before = conditions.get(name)
    born = before.born if before is not None else None
    if born is None:
        born = float(await context.clients.vault_zfs(config).number(config.pool, "creation"))
    found = Condition.of(health, now, born, before)
    if conditions.times_given_up(name) == given_up:
        conditions.put(name, found)
    return found
