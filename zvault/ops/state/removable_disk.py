"""Whether the disk of a removable vault is there, and since when: what is due of one that is not is no fault."""

from __future__ import annotations

from zvault.config.schema import Vault
from zvault.ops.state.activity import Activity
from zvault.system.block_devices import has_label_link
from zvault.zfs.pool.module_parameters import list_imported_pools

DISK_GRACE = 3600.0
"""Seconds from when a disk is plugged in within which scrubs and proofs that came due while it was away may begin."""


def is_disk_away(activity: Activity, vault: Vault) -> bool:
    """True of a vault whose disk is plugged in now and then, while it is not there. Never waits.

    Of a disk that udev does not link by its pool's name nobody knows: it counts as there once it came up so.
    """
    if not vault.removable or vault.name in activity.unlinked:
        return False
    return vault.pool not in list_imported_pools() and not has_label_link(vault.pool)


def is_disk_out_of_care(activity: Activity, vault: Vault, now: float) -> bool:
    """True of a vault whose disk is away, or came lately: what is due of it began no earlier, and is no fault yet.

    ``now``: monotonic seconds.
    """
    since = activity.appeared.get(vault.name)
    new = vault.removable and since is not None and now - since < DISK_GRACE
    return new or is_disk_away(activity, vault)


def note_disk_link(activity: Activity, vault: Vault) -> None:
    """Note of a vault that is up whether udev links its disk: by that alone it is known later whether it still is."""
    if vault.removable and not has_label_link(vault.pool):
        activity.unlinked.add(vault.name)
    else:
        activity.unlinked.discard(vault.name)
