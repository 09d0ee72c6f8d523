"""How far each dataset of a backup lags, read from the pools."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import compress, repeat
from operator import attrgetter, is_not

from zvault.config.schema import Backup
from zvault.core.cached_results import CachedResults
from zvault.core.model import Bookmark, Dataset, Tree
from zvault.core.replication.base_names import group_marks_by_vault, list_sent_marks
from zvault.core.replication.lag import DatasetLag, measure_dataset_lag
from zvault.core.replication.lineage import DatasetPair
from zvault.core.replication.plan_model import SnapshotFilter
from zvault.core.snapshot_list import list_guids
from zvault.ops.context import Context
from zvault.ops.replication.listing import BothListings, make_own_filter

KnownLags = CachedResults[DatasetPair, DatasetLag]


def measure_lags(
    context: Context,
    backup: Backup,
    sides: BothListings,
    *,
    before: Mapping[str, DatasetLag] | None = None,
    had: Collection[int] = (),
) -> dict[str, DatasetLag]:
    """Each selected dataset's lag, read from the vault's GUIDs.

    While the vault is down they are those that it had when the lags were read ``before``, and that it ``had`` when it
    was looked at last: a dataset that was renamed away and back lacks them in between. Where nobody has read them
    since zvaultd started, those of the bookmarks on the source that were made once the vault had what they mark. Where
    it is not known which bookmarks are the vault's, or where on it what they mark is, the lag is unknown. Without a
    vault there is none.

    What is read of a vault that is up depends on both sides' points (the pair is the same object), on until when the
    source was as its newest snapshot there, and on the backup's table; where all are as before, it is looked up.
    """
    if backup.vault is None:
        return {}
    unchanged = context.records.unchanged.until(backup.name)
    pairs = sides.pairing.pairs
    found: Sequence[DatasetLag]
    if sides.vault_seen:
        known: KnownLags = sides.known.lags if sides.known is not None else CachedResults()
        found = known.again(
            pairs, _of_vault(make_own_filter(backup), unchanged), lambda then: _outdated(then, unchanged)
        )
    else:
        found = list(map(_Remembered(context, backup, sides, before, had, unchanged).lag, pairs))
    # Of what cannot be listed stays known what was read before it could not be: its lag grows with the clock.
    unlisted = {name: (before or {}).get(name, DatasetLag(name, None, None)) for name in sides.unlisted}
    return {**dict(zip(map(attrgetter("dataset"), found), found, strict=True)), **unlisted}


def _of_vault(ours: SnapshotFilter, unchanged: Mapping[int, float]) -> Callable[[DatasetPair], DatasetLag]:
    """Reads lags from what the vault has."""

    def lag(pair: DatasetPair) -> DatasetLag:
        guids = set(list_guids(pair.vault.snapshots)) if pair.vault is not None else set()
        base = pair.base[0].creation if pair.base is not None else None
        return _lag(pair.source, ours, guids, base, unchanged)

    return lag


def _lag(
    dataset: Dataset,
    ours: SnapshotFilter,
    guids: Collection[int],
    base: int | None,
    unchanged: Mapping[int, float],
) -> DatasetLag:
    wanted = [snap for snap in dataset.snapshots if ours(snap)]
    return replace(measure_dataset_lag(wanted, guids, dataset=dataset.name, unchanged=unchanged), base=base)


def _outdated(lags: Sequence[DatasetLag], unchanged: Mapping[int, float]) -> Iterator[int]:
    """The places of those whose source was as its newest snapshot there until another time than they say."""
    if not unchanged:
        return compress(range(len(lags)), map(is_not, map(attrgetter("unchanged"), lags), repeat(None)))
    return (place for place, lag in enumerate(lags) if lag.unchanged != _until(unchanged, lag))


def _until(unchanged: Mapping[int, float], lag: DatasetLag) -> float | None:
    return unchanged.get(lag.newest_on_vault.guid) if lag.newest_on_vault is not None else None


class _Remembered:
    """Tells lags by what is known of a vault that is down."""

    def __init__(
        self,
        context: Context,
        backup: Backup,
        sides: BothListings,
        before: Mapping[str, DatasetLag] | None,
        had: Collection[int],
        unchanged: Mapping[int, float],
    ) -> None:
        self._context, self._backup, self._before, self._unchanged = context, backup, before, unchanged
        self._ours, self._pool = make_own_filter(backup), _pool(context, backup, sides.source)
        self._had = {*list_newest_guids(before.values() if before is not None else ()), *had}

    def lag(self, pair: DatasetPair) -> DatasetLag:
        dataset = pair.source
        marks = _marks(self._context, self._backup, dataset, self._pool)
        guids: Collection[int] | None = {mark.guid for mark in marks} if marks is not None else None
        base = marks[-1].creation if marks else None
        if self._before is not None:
            guids = self._had
            if dataset.name in self._before:
                base = _still(dataset, self._before[dataset.name].base)
        lag = _lag(dataset, self._ours, guids or (), base, self._unchanged)
        return lag if guids is not None else replace(lag, pending=None)


def count_pending(lags: Collection[DatasetLag]) -> int | None:
    """Count the snapshots that a vault lacks in all; None where that is not known of a single dataset."""
    counts = [lag.pending for lag in lags]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _still(dataset: Dataset, base: int | None) -> int | None:
    """When the base was made, if the dataset has a snapshot or bookmark of that time yet."""
    times = {snap.creation for snap in dataset.snapshots} | {mark.creation for mark in dataset.bookmarks}
    return base if base in times else None


def _pool(context: Context, backup: Backup, source: Tree) -> int | None:
    """The GUID of the pool that a backup's vault had last; None where that is open, or whether the backup goes to
    another place on it by now.

    Where nothing is on record any more it can only be the one that there are bookmarks for, if just one vault is
    configured.
    """
    env, book = context.env, context.records.pools
    if len(env.config.vault) > 1 or book.all():
        last = book.last(env.vault(backup.its_vault))
        if last is None:
            return None
        place = context.records.places.last(last, str(backup.source.whole))
        return last if place == env.target_of(backup, backup.source.dataset) else None
    marked = {guid for dataset in source for guid in group_marks_by_vault(dataset)}
    return marked.pop() if len(marked) == 1 else None


def _marks(context: Context, backup: Backup, dataset: Dataset, pool: int | None) -> list[Bookmark] | None:
    """The bookmarks that tell what a vault has of a dataset for this backup, oldest first; None where that is open."""
    if pool is None or is_taken_twice(context, backup, dataset):
        return None
    return list_sent_marks(dataset, pool)


def is_taken_twice(context: Context, backup: Backup, dataset: Dataset) -> bool:
    """True if another backup puts the same dataset into the same vault: bookmarks do not tell whose they are."""
    return any(
        other.vault == backup.vault
        and other.source.host == backup.source.host
        and dataset.name.is_within(other.source.dataset)
        and other.takes(dataset.name)
        for other in context.env.config.backup.values()
        if other.name != backup.name
    )


def list_newest_made(backup: Backup, sides: BothListings) -> dict[str, int | None]:
    """By dataset, when zvault's newest snapshot was made, in seconds since the epoch; None where there is none."""
    ours = make_own_filter(backup)
    found = ((one.name, [snap for snap in one.snapshots if ours(snap)]) for one, _ in sides.pairs)
    return {name: snaps[-1].creation if snaps else None for name, snaps in found}


def list_newest_guids(found: Iterable[DatasetLag]) -> set[int]:
    """The GUIDs of the snapshots that lags are counted from."""
    return {lag.newest_on_vault.guid for lag in found if lag.newest_on_vault is not None}
