"""What a listing saw of datasets, kept until an event tells that it changed (pool/change_reader.py). Pure.

Without events nothing is kept. What they do not cover is not to be read here: ``used``, ``written``, and the state of
a receive that is under way or waits to be resumed; such a dataset is stale at each look.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from zvault.core.names import DatasetName
from zvault.zfs import parse
from zvault.zfs.parse import ListedDataset
from zvault.zfs.pool.change_reader import MOST, Changed


@dataclass(frozen=True, slots=True)
class Listed:
    """What a listing begun at ``moment`` saw, by name."""

    moment: int
    datasets: Mapping[str, ListedDataset]


class KnownDatasets:
    """Datasets by name, and below which roots all of them are known.

    ``moment`` counts what was noted. A listing is given the moment at which it began: what changed after that is not
    taken for listed.
    """

    def __init__(self) -> None:
        self.moment = 0
        self._datasets: dict[str, ListedDataset] = {}
        self._roots: set[DatasetName] = set()
        self._unfinished: set[str] = set()
        self._changed: dict[str, int] = {}
        self._pools: dict[str, int] = {}
        self._lost = 0

    def note(self, changed: Changed) -> None:
        """Take in what changed since this was last told."""
        self.moment += 1
        if changed.lost or len(self._changed) > MOST:
            self._lost = self.moment
            for known in (self._datasets, self._unfinished, self._roots, self._changed, self._pools):
                known.clear()
            return
        self._changed |= dict.fromkeys(changed.datasets, self.moment)
        for pool in changed.pools:
            self._pools[pool] = self.moment
            self._roots = {root for root in self._roots if root.pool != pool}
            self._drop(name for name in list(self._datasets) if DatasetName(name).pool == pool)

    def _drop(self, names: Iterable[str]) -> None:
        for name in names:
            self._datasets.pop(name, None)
            self._unfinished.discard(name)

    def _knows(self, root: DatasetName) -> bool:
        return any(root.is_within(known) for known in self._roots)

    def changed(self, root: str) -> set[str] | None:
        """What changed below a root since it was listed; None where that is not known."""
        top = DatasetName(root)
        if not self._knows(top):
            return None
        return {name for name in self._changed if DatasetName(name).is_within(top)}

    def unfinished(self, root: str) -> set[str]:
        """The datasets below a known root into which a receive is under way, or waits to be resumed."""
        top = DatasetName(root)
        return {name for name in self._unfinished if DatasetName(name).is_within(top)}

    def keep(self, root: str, listed: Listed) -> None:
        """Keep the listing of a root and of all below it."""
        top = DatasetName(root)
        if listed.moment < max(self._lost, self._pools.get(top.pool, 0)):
            return
        self._drop([name for name in self.below(root) if name not in listed.datasets])
        self._roots = {known for known in self._roots if not known.is_within(top)}
        if not self._knows(top):
            self._roots.add(top)
        below = [name for name in self._changed if DatasetName(name).is_within(top)]
        self._settle(below, listed)

    def keep_some(self, names: Collection[str], listed: Listed) -> None:
        """Keep the listing of some datasets by name. Those that it does not have are gone."""
        known = [name for name in names if self._knows(DatasetName(name))]
        self._drop(known)
        self._settle(known, listed)

    def _settle(self, names: Iterable[str], listed: Listed) -> None:
        for name, one in listed.datasets.items():
            if self._datasets.get(name) is not one and self._knows(one.dataset.name):
                self._datasets[name] = one
                self._unfinished.discard(name)
                if one.dataset.resume_token is not None:
                    self._unfinished.add(name)
        for name in names:
            if self._changed.get(name, 0) <= listed.moment:
                self._changed.pop(name, None)

    def below(self, root: str) -> dict[str, ListedDataset]:
        """What is known of a root and of all below it."""
        inside = f"{root}/"
        return {name: one for name, one in self._datasets.items() if name == root or name.startswith(inside)}

    def same(self, lines: Mapping[str, str]) -> dict[str, ListedDataset]:
        """Of datasets with their lines of just now, those that are known and did not change since they were listed.

        The lines are younger than the last event that was read, and may tell of one that was not. What no event tells
        of may be another.
        """
        found: dict[str, ListedDataset] = {}
        for name, line in lines.items():
            known = self._datasets.get(name)
            if known is None or name in self._changed:
                continue
            if known.line == line:
                found[name] = known
            elif parse.stamps([known.line]) == parse.stamps([line]):
                found[name] = known.again(line)
        return found
