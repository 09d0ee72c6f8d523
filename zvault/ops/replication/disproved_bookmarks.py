"""Takes back, on the source, what a look at a vault has disproved: a bookmark tells of a snapshot that is not there.

While a vault is down its bookmarks are all that a restarted zvaultd knows of it (lag.py). A vault may have gone back
to an older state, or lost its newest snapshots; zvaultd sees that when it is up, and must not forget it with its
memory. So the bookmark gets the name of those that protect and tell nothing, as a run would name it (base_guard.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from zvault.config.schema import Backup
from zvault.core.model import Dataset
from zvault.core.replication.base_names import group_marks_by_vault
from zvault.core.replication.lineage import DatasetPair
from zvault.core.snapshot_list import list_guids
from zvault.ops.context import Context
from zvault.ops.replication.base_guard import find_disproved
from zvault.ops.replication.lag import is_taken_twice
from zvault.ops.replication.listing import BothListings
from zvault.ops.replication.run_bases import RunBases
from zvault.ops.state.cached_backups import DisprovedPairs
from zvault.ops.vaults.pool_copies import find_original


async def correct_disproved(context: Context, backup: Backup, sides: BothListings) -> Sequence[Dataset]:
    """Correct the bookmarks that tell of what the vault, as it was just seen, does not have; the datasets they are of.

    Nothing is disproved while either side has what cannot be listed: that may be what a bookmark tells of. Bookmarks
    are of a pool: they are left alone where they were made for another place on it, where another backup puts
    the same dataset there, and where this pool is a copy of the one that another vault has. Raises what keeps the vault
    from telling its GUID, or the source from being changed.
    """
    vault = context.env.vault(backup.its_vault)
    state = await context.clients.zpool_of(vault).state(vault.pool)
    if state is None or not sides.vault_seen or sides.partial:
        return ()
    # An older copy of a disk came up while the disk was in a safe: its bookmarks were taken back, and after a restart
    # nobody knew what the disk has.
    if find_original(context, vault, state.guid) is not None:
        return ()
    place = context.records.places.last(state.guid, str(backup.source.whole))
    # A bookmark does not tell the place: after 'into' was changed, the new place seemed to have what the old one has.
    if place != context.env.target_of(backup, backup.source.dataset):
        return ()
    known = sides.known.disproved if sides.known is not None else DisprovedPairs()
    if known.pool != state.guid:
        known = DisprovedPairs(state.guid)
        if sides.known is not None:
            sides.known.disproved = known
    pairs = sides.pairing.pairs
    wrong = await sides.compute(known.pairs.again, pairs, lambda pair: _tells_what_is_not(pair, state.guid))
    found = [
        pair
        for pair, is_wrong in zip(pairs, wrong, strict=True)
        if is_wrong and not is_taken_twice(context, backup, pair.source)
    ]
    if not found:
        return ()
    source = context.clients.source_of(backup)
    try:
        bases = RunBases(source, state.guid)
        await bases.correct({pair.source.name: (pair.source, _guids(pair)) for pair in found})
    finally:
        for pair in found:
            source.forget(pair.source.name)
    return [pair.source for pair in found]


def _tells_what_is_not(pair: DatasetPair, pool: int) -> bool:
    marks = {mark.name: mark.createtxg for mark in group_marks_by_vault(pair.source).get(pool, ())}
    return bool(marks) and bool(find_disproved(marks, _guids(pair)))


def _guids(pair: DatasetPair) -> frozenset[int]:
    return frozenset(list_guids(pair.vault.snapshots)) if pair.vault is not None else frozenset()
