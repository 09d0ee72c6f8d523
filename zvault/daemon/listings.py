"""What both sides of each backup had when they were last listed, for whoever asks later and must wait for no pool."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace

from zvault.api.events import PrunedEvent
from zvault.core.lazy import LazyProperty
from zvault.core.model import Dataset, Tree
from zvault.core.names import SnapshotName
from zvault.daemon.per_backup import ValuesByBackup
from zvault.ops.replication.listing import BothListings
from zvault.ops.state.environment import Environment


@dataclass(frozen=True)
class BackupListing:
    """Both sides as they were ``listed``, and when each was, in seconds since the epoch; what was ``pruned`` since, by
    side and full name.

    ``vault_at`` is None where nobody has listed the vault since zvaultd started, or there is none.
    """

    listed: BothListings
    source_at: float
    vault_at: float | None
    pruned: frozenset[tuple[str, str]] = frozenset()

    @LazyProperty
    def sides(self) -> BothListings:
        """Both sides without what was pruned. Of a large listing that takes seconds, so it waits until somebody asks.

        Whoever asks does so beside the event loop (``BothListings.compute``).
        """
        return _without(self.listed, self.pruned)


class BackupListings:
    """The last listing of each backup, without what was pruned since."""

    def __init__(self, env: Environment) -> None:
        self._found: ValuesByBackup[BackupListing] = ValuesByBackup(env)
        self._env = env
        self._pruned: dict[str, dict[tuple[str, str], float]] = {}

    def keep(self, backup: str, sides: BothListings, way: str | None, at: float) -> None:
        """Keep what was listed from that time on. Of a vault that is down by now stays what it had."""
        before = self._found.get(backup)
        vault_at = at if sides.vault_seen else None
        if not sides.vault_seen and before is not None and before.vault_at is not None:
            sides, vault_at = sides.with_trees(sides.source, before.listed.vault), before.vault_at
            sides = replace(sides, vault_seen=True)
        oldest = min(at, vault_at or at)
        gone = {key: when for key, when in self._pruned.get(backup, {}).items() if when >= oldest}
        self._pruned[backup] = gone
        self._found.put(backup, BackupListing(sides, at, vault_at, frozenset(gone)), way)

    def note_pruned(self, event: PrunedEvent) -> None:
        """Take in what a run pruned: no listing before that tells of it."""
        backup, side = event.backup, event.side
        gone: set[tuple[str, str]] = {(side, name) for name in event.snapshots}
        known = self._pruned.setdefault(backup, {})
        known |= dict.fromkeys(gone, event.time)
        if (before := self._found.get(backup)) is not None:
            self._found[backup] = replace(before, pruned=before.pruned | gone)

    def of(self, backup: str) -> BackupListing | None:
        """Return what was listed of a backup as it is configured now; None where nobody has listed it yet."""
        return self._found.get(backup)


def _without(sides: BothListings, gone: Set[tuple[str, str]]) -> BothListings:
    """The same without snapshots, given by side and full name."""
    if not gone:
        return sides
    source = _pruned(sides.source, {name for side, name in gone if side == "source"})
    vault = _pruned(sides.vault, {name for side, name in gone if side == "vault"})
    return sides.with_trees(source, vault)


def _pruned(tree: Tree, names: set[str]) -> Tree:
    touched = {SnapshotName(name).dataset for name in names}
    if not touched:
        return tree
    return replace(
        tree,
        datasets={
            name: _but(dataset, names) if name in touched else dataset
            for name, dataset in tree.datasets.items()
        },
    )


def _but(dataset: Dataset, names: set[str]) -> Dataset:
    return replace(dataset, snapshots=tuple(snap for snap in dataset.snapshots if snap.name not in names))
