"""Look at a vault's pool and note its condition."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from zvault.core.errors import ToolFailed
from zvault.core.integrity.pool_devices import list_foreign_devices
from zvault.ops.context import Context
from zvault.ops.state.pool_health import PoolCondition
from zvault.ops.vaults.abandon_pool import is_on_copies
from zvault.ops.vaults.assembly import VaultAssembly
from zvault.ops.vaults.put_back import note_progress
from zvault.ops.vaults.undo_record import VaultUndoRecord
from zvault.system.block_devices import name_whole_device
from zvault.system.tasks import cancel_tasks
from zvault.zfs.pool.scrub import PoolErrors, Scrubber
from zvault.zfs.repair.half_received import list_half_received, select_half_received

RECHECK_DEADLINE = 600.0
"""Seconds to have ZFS read again what was on its error list: a few blocks, on storage that was just away."""

EXAMINE_INTERVAL = 0.5
"""Seconds between looks at whether the host goes down meanwhile."""


async def examine_pool(context: Context, name: str) -> PoolCondition:
    """Look at a vault's pool, which must be up, and note its condition. Raises ZvaultError."""
    config, now = context.env.vault(name), context.env.clock.time()
    conditions, zpool = context.records.conditions, context.clients.zpool_of(config)
    given_up = conditions.times_given_up(name)
    health = await Scrubber(zpool.runner).health(config.pool, now)
    before = conditions.get(name)
    half = await _half_received(context, name, health, before)
    born = before.born if before is not None else None
    if born is None:
        born = float(await context.clients.vault_zfs(config).number(config.pool, "creation"))
    found = PoolCondition.of(health, now, born, conditions.get(name), half, _foreign(context, name, health))
    # A look that began before the pool was given up told reads that its lost device did not answer as damage.
    if conditions.times_given_up(name) == given_up:
        conditions.put(name, found)
        guid = context.records.pools.last(config)
        # What is written to a copy that is thrown away is no progress of the pool: another host has that.
        if guid is not None and not is_on_copies(await VaultAssembly(context, name, config).devices()):
            await note_progress(context, config, guid)
    return found


def _foreign(context: Context, name: str, health: PoolErrors) -> list[str] | None:
    """The devices that the pool needs and that are not the vault's own; None where its own are not known.

    Its own are those that its lease has: what they are called is known only while they are up.
    """
    if not context.env.vault(name).device:
        return None
    own = {str(Path(path).resolve()) for path in VaultUndoRecord(context.records.undo, name).paths()}
    if not own:
        return None
    # Where a whole disk was given, ZFS makes a partition and lies on that.
    vdevs = [replace(one, devices=tuple(map(name_whole_device, one.devices))) for one in health.vdevs]
    return list_foreign_devices(vdevs, own)


async def _half_received(
    context: Context, name: str, health: PoolErrors, before: PoolCondition | None
) -> Sequence[str] | None:
    """What is half received, asked only where there are errors that were not there before; None: nobody tells.

    Errors that a cut off receive has left must not be told as damage for the moments until they are named. Where a
    dataset is so damaged that the others cannot be listed, nothing excuses them: that look must not fail, which is all
    that tells of the errors.
    """
    if not health.errors or (before is not None and before.errors >= health.errors):
        return None
    config = context.env.vault(name)
    try:
        return await list_half_received(context.clients.vault_zfs(config).host, config.pool)
    except ToolFailed:
        return None


async def wait_unless_going_down(context: Context, work: Coroutine[Any, Any, object]) -> bool:
    """Wait for some work to end; give it up and return False where a shutdown comes meanwhile.

    What waits for it has the vault, and the shutdown would wait in turn: ten minutes where storage is slow.
    """
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            if context.activity.going_down:
                return False
            await asyncio.wait({task}, timeout=EXAMINE_INTERVAL)
        await task
    finally:
        await cancel_tasks(task)
    return True


async def recheck_excused(context: Context, name: str) -> bool:
    """Have ZFS look again at errors of what was half received, once that is whole or gone; whether it did.

    They were reads and writes that had no answer: what is well by now ZFS strikes off its list. Raises ZvaultError.
    """
    known = context.records.conditions.get(name)
    # A shutdown waits for whoever has the vault; this may wait for storage that is slow or away.
    if known is None or not known.excused or context.activity.going_down:
        return False
    config = context.env.vault(name)
    host = context.clients.vault_zfs(config).host
    if known.half_received and await select_half_received(host, known.half_received):
        return False
    conditions = context.records.conditions
    async with context.clients.damage_names.permit_names(host, config.pool) as permit:
        try:
            if not await wait_unless_going_down(
                context, Scrubber(host).error_scrub(permit, RECHECK_DEADLINE)
            ):
                return False
        except ToolFailed:
            # OpenZFS 2.1, and pools without head_errlog, can never do that: damage must not be excused for ever.
            if known.half_received and conditions.get(name) is known:
                conditions.put(name, known.leave_to_scrub(context.env.clock.time()))
            raise
    await examine_pool(context, name)
    if (now := conditions.get(name)) is not None:
        # Whatever is left was read again and is bad: from here on it is damage.
        conditions.put(name, now.accuse())
    return True
