"""Prune a source that is too full for a snapshot, before it gets one: else nothing in it would ever be free again.

A run prunes in its end. Where its snapshot finds no room it would not get there, though what fills the source may be
nothing but snapshots that no rule wants any more.
"""

from __future__ import annotations

import asyncio
from operator import attrgetter

from zvault.api.events import Emit, WarningEvent
from zvault.config.schema import Backup
from zvault.core.errors import ZvaultError
from zvault.ops.context import Context
from zvault.ops.replication.listing import list_both_sides
from zvault.ops.retention.prune import apply_prune
from zvault.ops.retention.prune_plan import plan_prune
from zvault.ops.retention.vault_holds import move_holds
from zvault.zfs.client import Zfs

DEFERRED = 3
"""Transaction groups until what was freed can be used: OpenZFS keeps it for two more (TXG_DEFER_SIZE), as those before
them may have to be read after a crash."""

FREEING_TRIES = 60
"""Seconds for which what was destroyed is waited for: on a large pool it may take hours, and the next run has it."""


async def prune_full_source(context: Context, backup: Backup, vault: Zfs | None, emit: Emit) -> int:
    """Prune a backup's source by its rules, with all their guards, and wait until the room is there; how many went.

    ``vault`` None: it is not there. Raises nothing that keeps the source from being pruned: that is told.
    """
    source, gone = context.clients.source_of(backup), 0
    try:
        sides = await list_both_sides(context, backup, vault, sizes="none")
        judged = await sides.compute(plan_prune, context, backup, sides)
        plans = [plan for plan in judged if plan.side == "source"]
        if not [plan for plan in plans if await plan.compute(attrgetter("selected"), plan)]:
            return 0
        emit(
            WarningEvent(
                text=f"there is no room for a snapshot of {backup.source}: what has expired there goes first",
            )
        )
        if backup.vault is None:
            await move_holds(context, backup, {"source": source}, plans, emit)
        gone = await apply_prune(source, None, plans, emit)
        if gone:
            await _wait_freed(context, backup)
    except ZvaultError as error:
        emit(WarningEvent(text=f"the source could not be pruned to make room: {error}"))
    return gone


async def _wait_freed(context: Context, backup: Backup) -> None:
    """Wait for a while until the room of what was destroyed can be used."""
    zpool, pool = context.clients.zpool_at(backup.source.host), backup.source.dataset.pool
    for _ in range(FREEING_TRIES):
        if not await zpool.read_freeing(pool):
            break
        await asyncio.sleep(1.0)
    for _ in range(DEFERRED):
        await zpool.sync(pool)
