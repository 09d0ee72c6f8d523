"""How far each dataset of a backup lags, read from the pools."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from zvault.config.schema import Backup
from zvault.core.model import Bookmark, Dataset
from zvault.core.replication.lag import DatasetLag, dataset_lag
from zvault.ops.context import Context
from zvault.ops.replication.base_guard import marks_by_vault
from zvault.ops.replication.sides_and_plan import Sides, ours_of
from zvault.ops.state.pools import PoolBook


def lags(context: Context, backup: Backup, sides: Sides) -> dict[str, DatasetLag]:
    """Each selected dataset's lag, read from the vault's GUIDs.

    While the vault is down its GUIDs are read from the source's bookmarks, each made only after the vault had
    what it marks. Where it is not known which bookmarks are the vault's, the lag is unknown.
    """
    ours, now = ours_of(backup), context.env.clock.time()
    mine, others = _pools(context.records.pools, backup)
    found: dict[str, DatasetLag] = {}
    for pair in sides.pairing.pairs:
        dataset = pair.source
        if sides.vault_seen:
            guids = {snap.guid for snap in pair.vault.snapshots} if pair.vault is not None else set()
            base = pair.base[0].creation if pair.base is not None else None
        else:
            marks = _marks(dataset, mine, others)
            guids = {mark.guid for mark in marks}
            base = marks[-1].creation if marks else None
        wanted = [snap for snap in dataset.snapshots if ours(snap)]
        found[dataset.name] = replace(dataset_lag(wanted, guids, now, dataset=dataset.name), base=base)
    return found


def _pools(pools: PoolBook, backup: Backup) -> tuple[set[int], set[int]]:
    """The GUIDs of the pools that the backup's vault was seen to have, and those of other vaults'."""
    seen = pools.all()
    mine = {guid for guid, one in seen.items() if one.vault == backup.vault and not one.given_up}
    return mine, seen.keys() - mine


def _marks(dataset: Dataset, mine: Collection[int], others: Collection[int]) -> list[Bookmark]:
    """The bookmarks of one vault, oldest first; none where it is open which are its own."""
    marks = marks_by_vault(dataset)
    sure = [guid for guid in marks if guid in mine]
    possible = sure or [guid for guid in marks if guid not in others]
    return marks[possible[0]] if len(possible) == 1 else []


def age(lag: DatasetLag, now: float) -> float | None:
    """A lag some time after it was read: it grows with the clock until the vault is read again."""
    newest = lag.newest_on_vault
    return None if newest is None else now - newest.creation
