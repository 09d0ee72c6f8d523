"""What a listing saw of datasets, kept until an event tells that it changed (pool/event_reader.py). Pure.

Without events nothing is kept. What they do not cover is not to be read here: ``used``, ``written``, and the state of
a receive that is under way or waits to be resumed; such a dataset is stale at each look.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import attrgetter, is_not, ne

from zvault.core.names import DatasetName
from zvault.zfs import parse_listing
from zvault.zfs.listing_cache import DatasetPoints
from zvault.zfs.parse_listing import ListedDataset
from zvault.zfs.partial_listing import PartlyKnown
from zvault.zfs.pool.event_reader import BOOKMARKS, MOST_CHANGED_DATASETS, ChangedDatasets, merge_changes

_NOTHING: set[str] = set()

FEW_NAMES = 10
"""Snapshots of a dataset that are asked for by name in any case."""

MOST_VIEWS = 32
"""Roots of which all that is known is remembered apart."""


@dataclass(frozen=True, slots=True)
class ListedAt:
    """The datasets that a listing begun at ``moment`` saw, by name."""

    moment: int
    datasets: Mapping[str, ListedDataset]


@dataclass(frozen=True, slots=True)
class ComparedListing:
    """A listing of now: its datasets in its order, each as it is known where it is still so, else None; and the
    ``lines`` of those others.
    """

    datasets: dict[str, ListedDataset | None]
    lines: dict[str, str]

    @classmethod
    def anew(cls, lines: Iterable[str]) -> ComparedListing:
        """One of which nothing is known."""
        by_name = {line.partition("\t")[0]: line for line in lines}
        return cls(dict.fromkeys(by_name), by_name)


class CachedDatasets:
    """Datasets by name, and below which roots all of them are known.

    ``moment`` counts what was noted. A listing is given the moment at which it began: what changed after that is not
    taken for listed.
    """

    def __init__(self) -> None:
        self.moment = 0
        self._datasets: dict[str, ListedDataset] = {}
        self._views: dict[str, dict[str, ListedDataset]] = {}
        self._roots: set[DatasetName] = set()
        self._unfinished: set[str] = set()
        self._changed: dict[str, int] = {}
        self._what: dict[str, set[str] | None] = {}  # of each of those, as ChangedDatasets.datasets
        self._pools: dict[str, int] = {}
        self._lost = 0

    def __len__(self) -> int:
        return len(self._datasets)

    def note(self, changed: ChangedDatasets) -> None:
        """Take in what changed since this was last told."""
        self.moment += 1
        if changed.lost or len(self._changed) > MOST_CHANGED_DATASETS:
            self._lost = self.moment
            for known in (
                self._datasets,
                self._views,
                self._unfinished,
                self._roots,
                self._changed,
                self._what,
                self._pools,
            ):
                known.clear()
            return
        self._changed |= dict.fromkeys(changed.datasets, self.moment)
        for name, what in changed.datasets.items():
            # Of what is not known nothing can be looked up: all of it will be listed, if it is asked for at all.
            followed = name in self._datasets
            self._what[name] = merge_changes(self._what.get(name, _NOTHING), what) if followed else None
        for pool in changed.pools:
            self._pools[pool] = self.moment
            self._roots = {root for root in self._roots if root.pool != pool}
            self._drop(name for name in list(self._datasets) if DatasetName(name).pool == pool)

    def _drop(self, names: Iterable[str]) -> None:
        for name in names:
            self._unfinished.discard(name)
            if self._datasets.pop(name, None) is not None:
                self._views.clear()

    def _put(self, name: str, one: ListedDataset) -> None:
        if name not in self._datasets:
            self._views.clear()
        self._datasets[name] = one
        for view in self._views.values():
            if name in view:
                view[name] = one

    def _knows(self, root: DatasetName) -> bool:
        return any(root.is_within(known) for known in self._roots)

    def changed(self, root: str) -> set[str] | None:
        """Return what changed below a root since it was listed; None where that is not known."""
        top = DatasetName(root)
        if not self._knows(top):
            return None
        return {name for name in self._changed if DatasetName(name).is_within(top)}

    def list_unfinished(self, root: str) -> set[str]:
        """The datasets below a known root into which a receive is under way, or waits to be resumed."""
        top = DatasetName(root)
        return {name for name in self._unfinished if DatasetName(name).is_within(top)}

    def partly(self, lines: Mapping[str, str]) -> dict[str, PartlyKnown]:
        """Those of some datasets, given with their lines of now, of which most is still as it is known."""
        found = {}
        for name, line in lines.items():
            known, what = self._datasets.get(name), self._what.get(name, _NOTHING)
            if known is None or what is None:
                continue
            ((who, stamp),) = parse_listing.parse_stamps([line]).values()
            ((known_who, known_stamp),) = parse_listing.parse_stamps([known.line]).values()
            snapshots = frozenset(short[1:] for short in what if short != BOOKMARKS)
            # Where more is asked for than there was, a listing of all is shorter. A stamp that moved, though no event
            # names a snapshot, tells of a change of which none was read yet.
            few = len(snapshots) <= max(FEW_NAMES, len(known.dataset.snapshots))
            if few and who == known_who and (stamp == known_stamp or snapshots):
                had = DatasetPoints(known.dataset.snapshots, known.dataset.bookmarks)
                changed = had.again() if name in self._changed else had
                found[name] = PartlyKnown(changed, snapshots, BOOKMARKS in what)
        return found

    def keep(self, root: str, listed: ListedAt) -> None:
        """Keep the listing of a root and of all below it."""
        top = DatasetName(root)
        if listed.moment < max(self._lost, self._pools.get(top.pool, 0)):
            return
        self._drop(self.below(root).keys() - listed.datasets.keys())
        self._roots = {known for known in self._roots if not known.is_within(top)}
        if not self._knows(top):
            self._roots.add(top)
        below = [name for name in self._changed if DatasetName(name).is_within(top)]
        self._settle(below, listed)
        if [*self.below(root)] != [*listed.datasets]:
            # In the order of the listing, in which the next one will be.
            self._views[root] = dict(listed.datasets)

    def keep_some(self, names: Collection[str], listed: ListedAt) -> None:
        """Keep the listing of some datasets by name. Those that it does not have are gone."""
        known = [name for name in names if self._knows(DatasetName(name))]
        self._drop([name for name in known if name not in listed.datasets])
        self._settle(known, listed)

    def _settle(self, names: Iterable[str], listed: ListedAt) -> None:
        known = map(self._datasets.get, listed.datasets)
        others = compress(listed.datasets.items(), map(is_not, known, listed.datasets.values()))
        for name, one in list(others):
            if self._knows(one.dataset.name):
                self._put(name, one)
                self._unfinished.discard(name)
                if one.dataset.resume_token is not None:
                    self._unfinished.add(name)
        for name in names:
            if self._changed.get(name, 0) <= listed.moment:
                self._changed.pop(name, None)
                self._what.pop(name, None)

    def below(self, root: str) -> Mapping[str, ListedDataset]:
        """Return what is known of a root and of all below it, as long as nothing else is noted or kept."""
        view = self._views.get(root)
        if view is None:
            inside = f"{root}/"
            view = {n: one for n, one in self._datasets.items() if n == root or n.startswith(inside)}
            if len(self._views) >= MOST_VIEWS:
                self._views.clear()
            self._views[root] = view
        return view

    def compared(self, root: str, lines: Sequence[str]) -> ComparedListing:
        """A listing of now of a root and all below it, beside what is known."""
        view = self.below(root)
        names, before = list(view), list(map(attrgetter("line"), view.values()))
        if len(lines) == len(before):
            places = compress(range(len(lines)), map(ne, before, lines))
            differing = {lines[place].partition("\t")[0]: place for place in places}
            if all(names[place] == name for name, place in differing.items()):
                datasets: dict[str, ListedDataset | None] = {**view}
                found = ComparedListing(datasets, {})
                for name, place in differing.items():
                    self._compare(found, name, lines[place])
                for name in self._changed.keys() & view.keys():
                    self._compare(found, name, found.lines.get(name, view[name].line))
                return found
        found = ComparedListing({}, {})
        for line in lines:
            self._compare(found, line.partition("\t")[0], line)
        return found

    def _compare(self, found: ComparedListing, name: str, line: str) -> None:
        """Note whether a dataset is the same, by its line of just now.

        The line is younger than the last event that was read, and may tell of one that was not. What no event tells of
        may be another.
        """
        known = self._datasets.get(name)
        same = None
        if known is not None and name not in self._changed:
            if known.line == line:
                same = known
            elif parse_listing.parse_stamps([known.line]) == parse_listing.parse_stamps([line]):
                same = known.again(line)
        found.datasets[name] = same
        if same is None:
            found.lines[name] = line
