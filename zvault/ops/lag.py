"""How far each dataset of a backup lags, read from the pools."""

from __future__ import annotations

from zvault.config.schema import Backup
from zvault.core.lag import DatasetLag, dataset_lag
from zvault.ops.context import Context
from zvault.ops.plan import Sides, ours_of
from zvault.ops.protect import marks_by_vault


def lags(context: Context, backup: Backup, sides: Sides) -> dict[str, DatasetLag]:
    """Each selected dataset's lag, read from the vault's GUIDs.

    While the vault is down its GUIDs are read from the source's bookmarks, each made only after the vault had
    what it marks. Where bookmarks of several vaults leave open which is meant, the lag is unknown.
    """
    ours, now = ours_of(backup), context.clock.time()
    found = {}
    for dataset, target in sides.pairs:
        if sides.vault_seen:
            there = sides.vault.get(target)
            guids = {snap.guid for snap in there.snapshots} if there is not None else set()
        else:
            marks = marks_by_vault(dataset)
            guids = {mark.guid for mark in next(iter(marks.values()))} if len(marks) == 1 else set()
        wanted = [snap for snap in dataset.snapshots if ours(snap)]
        found[dataset.name] = dataset_lag(wanted, guids, now, dataset=dataset.name)
    return found


def age(lag: DatasetLag, now: float) -> float | None:
    """A lag some time after it was read: it grows with the clock until the vault is read again."""
    newest = lag.newest_on_vault
    return None if newest is None else now - newest.creation
