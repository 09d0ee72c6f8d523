"""What check-config tells of encryption: a key that a vault needs and lacks, and what lies there in the clear."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from zvault.config.schema import Backup
from zvault.core.errors import HostUnreachable, NotFound, ZvaultError
from zvault.core.names import DatasetName
from zvault.ops.context import Context
from zvault.ops.replication.listing import list_both_sides
from zvault.ops.replication.plan_all import plan_all
from zvault.ops.replication.vault_encryption import expect_encryptions, list_exposed

NAMED_DATASETS = 3
"""Datasets of one backup that are told by name."""


async def list_encryption_warnings(context: Context) -> list[str]:
    """Warn of encryption on the vaults that are up, as ``KEY: what``. Changes nothing, and brings nothing up.

    What of a vault cannot be listed is told as well. A source or a vault that cannot be asked at all is told of itself.
    """
    backups = [backup for backup in context.env.config.backup.values() if backup.vault is not None]
    found = await asyncio.gather(*(_warnings(context, backup) for backup in backups))
    return [text for one in found for text in one]


async def _warnings(context: Context, backup: Backup) -> Sequence[str]:
    vault = context.clients.vault_of(backup)
    try:
        if not await context.clients.pool_is_up(context.env.vault(backup.its_vault)):
            return []
        sides = await list_both_sides(context, backup, vault, sizes="none")
        lying = await sides.compute(expect_encryptions, sides, await plan_all(context, backup, sides))
        needed = sorted({one.key for one in lying.values() if one.inherits})
        loaded = await vault.loaded_keys(needed) if needed else set()
        exposed = await sides.compute(list_exposed, sides)
    except (NotFound, HostUnreachable):
        return []
    except ZvaultError as error:
        return [f"backup.{backup.name}.into: how it lies on the vault cannot be asked now: {error}"]
    locked = [
        f"backup.{backup.name}.into: {key} on the vault is encrypted, and its key is not loaded: "
        f"nothing is sent there until 'zfs load-key {key}'"
        for key in needed
        if key not in loaded
    ]
    clear = [
        f"backup.{backup.name}: {name} lies on the vault in the clear, below {key}, which is encrypted: "
        "docs/how-to/encrypt-a-vault.md says how to make it anew"
        for name, key in exposed.items()
    ]
    more = [f"backup.{backup.name}: so do {len(clear) - NAMED_DATASETS} more"]
    hurt = [
        f"backup.{backup.name}.into: {one.problem}; {one.advice}"
        for name, one in sides.unlisted.items()
        if DatasetName(name) not in sides.source.unlisted
    ]
    also = [f"backup.{backup.name}.into: nor is it known of {len(hurt) - NAMED_DATASETS} more datasets"]
    return [
        *locked,
        *clear[:NAMED_DATASETS],
        *more[: len(clear) > NAMED_DATASETS],
        *hurt[:NAMED_DATASETS],
        *also[: len(hurt) > NAMED_DATASETS],
    ]
