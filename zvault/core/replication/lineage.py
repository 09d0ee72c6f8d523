"""Which dataset of a vault holds the backup of which on the source, by GUID; and their base.

The base is the newest snapshot or bookmark that both have: an incremental stream starts from it (``find_base``).

A name is only a hint. A dataset that was renamed on the source is known by the snapshots it shares with its
backup; one that was promoted (zfs-promote(8)) took snapshots over from another, and with them their bookmarks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from zvault.core.model import Base, Dataset, Snapshot, Tree
from zvault.core.names import DatasetName
from zvault.core.snapshot_list import list_guids

ASIDE_INFIX = "_zvault-conflict-"
"""Between a dataset's name and the time at which it was set aside, ``20261121T090000Z``."""

_SET_ASIDE = re.compile(rf"{ASIDE_INFIX}\d{{8}}T\d{{6}}Z$")


def format_set_aside(name: str) -> str:
    """The command that sets a dataset of a vault aside, so that the next run sends it anew: for a shell.

    To any other name it would be followed, and put back: within the backup's place by its snapshots, in the rest of the
    pool by its bookmarks (base_elsewhere.py). What lies below it is followed all the same. Without the ``-old`` the
    next run would branch off from it, as from what zvault set aside itself: with all that is wrong with it.
    """
    return f"zfs rename {name} {name}-old{ASIDE_INFIX}$(date -u +%Y%m%dT%H%M%SZ)"


def is_aside(name: str) -> bool:
    """True if a dataset of a vault was set aside: it belongs to a person then, and follows nothing."""
    return ASIDE_INFIX in name and _SET_ASIDE.search(name) is not None


def find_base(
    source: Dataset, vault: Dataset, ancestry: Iterable[Snapshot] = ()
) -> tuple[Base, Snapshot] | None:
    """The newest snapshot of the vault whose GUID the source still has, as (source side, vault side).

    A snapshot on the source is preferred to a bookmark of it: only it can start a ``-I``. ``ancestry`` are the
    snapshots of other datasets from which the source branched off (see ``list_ancestry``).
    """
    own = {guid: place for place, guid in enumerate(list_guids(source.snapshots))}
    others: dict[int, Base] = {snap.guid: snap for snap in ancestry}
    others.update({mark.guid: mark for mark in source.bookmarks})
    there = list_guids(vault.snapshots)
    for place in reversed(range(len(there))):
        guid = there[place]
        if guid in own:
            return source.snapshots[own[guid]], vault.snapshots[place]
        if guid in others:
            return others[guid], vault.snapshots[place]
    return None


def list_ancestry(dataset: Dataset, tree: Tree) -> tuple[Snapshot, ...]:
    """The snapshots a clone has in common with its origin's dataset, and with that one's origin's; newest first.

    Ends where the listing does.
    """
    found: list[Snapshot] = []
    origin, seen = dataset.origin, {dataset.name}
    while origin is not None:
        owner, of = origin.dataset, tree.get(origin.dataset)
        if of is None or owner in seen:
            break
        seen.add(owner)
        upto = next((snap.createtxg for snap in of.snapshots if snap.snapname == origin.snapname), -1)
        found += [snap for snap in reversed(of.snapshots) if snap.createtxg <= upto]
        origin = of.origin
    return tuple(found)


@dataclass(frozen=True, slots=True)
class DatasetPair:
    """One selected source dataset, where its backup belongs, and where it lies now (None: nowhere)."""

    source: Dataset
    target: DatasetName
    vault: Dataset | None = None
    ancestry: tuple[Snapshot, ...] = ()
    _sought: list[tuple[tuple[Base, Snapshot] | None, bool, bool]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    @property
    def base(self) -> tuple[Base, Snapshot] | None:
        """The base, as (source side, vault side)."""
        return (self._sought or self._seek())[0][0]

    @property
    def at_base(self) -> bool:
        """True if the base is the newest that the vault has."""
        return (self._sought or self._seek())[0][1]

    @property
    def goes_on(self) -> bool:
        """True if the newest that the vault has is a snapshot or bookmark of the source's dataset itself."""
        return (self._sought or self._seek())[0][2]

    def _seek(self) -> list[tuple[tuple[Base, Snapshot] | None, bool, bool]]:
        """Find the base, once."""
        there = self.vault
        found = find_base(self.source, there, self.ancestry) if there is not None else None
        newest = found is not None and there is not None and found[1].guid == there.snapshots[-1].guid
        own = newest and found is not None and found[0].dataset == self.source.name
        self._sought.append((found, newest, own))
        return self._sought


@dataclass(frozen=True, slots=True)
class Pairing:
    """The pairs of datasets that follow each other. ``gone`` are the vault's datasets whose source no longer exists.

    ``unselected`` are the pairs of excluded datasets: nothing is sent of them, but they may be in the way.
    """

    pairs: tuple[DatasetPair, ...] = ()
    unselected: tuple[DatasetPair, ...] = ()
    gone: tuple[Dataset, ...] = ()
    aside: tuple[Dataset, ...] = ()
