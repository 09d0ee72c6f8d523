"""Prune a backup's source while nobody looks at its vault: by what the source itself says of what the vault has."""

from __future__ import annotations

from zvault.api.events import Emit
from zvault.config.schema import Backup
from zvault.ops.context import Context
from zvault.ops.replication.listing import BothListings, list_both_sides
from zvault.ops.retention.prune import apply_prune
from zvault.ops.retention.prune_plan import plan_prune


async def prune_source(
    context: Context,
    backup: Backup,
    emit: Emit,
    sides: BothListings | None = None,
    *,
    between_runs: bool = False,
) -> int:
    """Prune the source of a backup by its rules, with all their guards; how many snapshots went.

    What is not on the vault yet stays: from the newest bookmark on that tells what the pool had which the vault had
    last, and all of it where none does. Each base is held besides. ``sides`` is a look at the source of a moment ago.
    ``between_runs`` a dataset over prune_limit is left to the next run. Raises ZvaultError where the source
    cannot be listed.
    """
    seen = sides if sides is not None else await list_both_sides(context, backup, None, sizes="none")
    judged = await seen.compute(plan_prune, context, backup, seen, between_runs=between_runs)
    plans = [plan for plan in judged if plan.side == "source"]
    return await apply_prune(context.clients.source_of(backup), None, plans, emit)
