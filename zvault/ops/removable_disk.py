"""Whether the disk of a vault that is plugged in now and then is there, and what may be asked of it."""

from __future__ import annotations

from zvault.config.schema import Vault
from zvault.ops.context import Context
from zvault.system.block_devices import has_label_link
from zvault.zfs.pool.module_parameters import list_imported_pools

DISK_GRACE = 3600.0
"""Seconds from when a disk is plugged in within which scrubs and proofs that came due while it was away may begin."""


def is_disk_away(context: Context, vault: Vault) -> bool:
    """True of a vault whose disk is plugged in now and then, while it is not there. Never waits.

    Of a disk that udev does not link by its pool's name nobody knows: it counts as there once it came up so.
    """
    if not vault.removable or vault.name in context.activity.unlinked:
        return False
    return vault.pool not in list_imported_pools() and not has_label_link(vault.pool)


def is_disk_out_of_care(context: Context, vault: Vault) -> bool:
    """True of a vault whose disk is away, or came lately: what is due of it began no earlier, and is no fault yet."""
    since = context.activity.appeared.get(vault.name)
    new = vault.removable and since is not None and context.env.clock.monotonic() - since < DISK_GRACE
    return new or is_disk_away(context, vault)


def note_disk_link(context: Context, vault: Vault) -> None:
    """Note whether udev links the disk that is there now: by that alone it is known later whether it still is."""
    unlinked = context.activity.unlinked
    if vault.removable and not has_label_link(vault.pool):
        unlinked.add(vault.name)
    else:
        unlinked.discard(vault.name)
