"""Note how far a vault's pool is, and tell where it is older than it was: its store was put back."""

from __future__ import annotations

from dataclasses import replace

from zvault.config.schema import Vault
from zvault.core.errors import ZvaultError
from zvault.core.integrity.put_back import PoolProgress, describe_older, follow_pool
from zvault.ops.context import Context


async def note_progress(context: Context, vault: Vault, guid: int, *, imported: bool = False) -> str:
    """Note how far a pool on this host is; returns, in words, what an import has found. ``imported``: it just was."""
    txgs = await context.clients.zpool_of(vault).read_txgs(vault.pool)
    if txgs is None:
        return ""
    book, now = context.records.progress, context.env.clock.time()
    before = book.get(guid)
    after = follow_pool(before, txgs, now, imported=imported)
    if after is None:
        return ""
    if after.is_older and (before is None or not before.is_older):
        after = await _add_newest(context, vault, after)
    book.put(guid, after)
    if not imported:
        return ""
    if before is not None and before.is_older and not after.is_older:
        return f"vault {vault.name} has again what it had when it was last seen"
    return f"vault {vault.name}: {told}" if (told := describe_older(after, context.env.zone)) else ""


async def _add_newest(context: Context, vault: Vault, progress: PoolProgress) -> PoolProgress:
    """The same with when the newest snapshot in the pool was made."""
    try:
        tree = await context.clients.vault_zfs(vault).tree(vault.pool, sizes=False)
    except ZvaultError:
        return progress
    made = [snap.creation for dataset in tree for snap in dataset.snapshots]
    return replace(progress, newest=float(max(made)) if made else None)
