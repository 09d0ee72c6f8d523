"""Who follows whom: which dataset of a vault holds the backup of which on the source, by GUID.

A name is only a hint. A dataset that was renamed on the source is known by the snapshots it shares with its
backup; one that was promoted (zfs-promote(8)) took snapshots over from another, and with them their bookmarks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from zvault.core.model import Base, Dataset, Snapshot, Tree
from zvault.core.names import DatasetName
from zvault.core.snapshot_list import guids_of

ASIDE = "_zvault-conflict-"
"""Between a dataset's name and the time at which it was set aside, ``20261121T090000Z``."""

_SET_ASIDE = re.compile(rf"{ASIDE}\d{{8}}T\d{{6}}Z$")


def is_aside(name: str) -> bool:
    """Whether a dataset of a vault was set aside: it belongs to a person then, and follows nothing."""
    return ASIDE in name and _SET_ASIDE.search(name) is not None


def find_base(
    source: Dataset, vault: Dataset, ancestry: Iterable[Snapshot] = ()
) -> tuple[Base, Snapshot] | None:
    """The newest snapshot of the vault whose GUID the source still has, as (source side, vault side).

    A snapshot on the source is preferred to a bookmark of it: only it can start a ``-I``. ``ancestry`` are the
    snapshots of other datasets from which the source branched off (see ``ancestry_of``).
    """
    own = {guid: place for place, guid in enumerate(guids_of(source.snapshots))}
    others: dict[int, Base] = {snap.guid: snap for snap in ancestry}
    others.update({mark.guid: mark for mark in source.bookmarks})
    there = guids_of(vault.snapshots)
    for place in reversed(range(len(there))):
        guid = there[place]
        if guid in own:
            return source.snapshots[own[guid]], vault.snapshots[place]
        if guid in others:
            return others[guid], vault.snapshots[place]
    return None


def ancestry_of(dataset: Dataset, tree: Tree) -> tuple[Snapshot, ...]:
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
        """Whether the base is the newest that the vault has."""
        return (self._sought or self._seek())[0][1]

    @property
    def goes_on(self) -> bool:
        """Whether the newest that the vault has is a snapshot or bookmark of the source's dataset itself."""
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
    """What follows what. ``gone`` are the vault's datasets whose source no longer exists.

    ``unselected`` are the pairs of excluded datasets: nothing is sent of them, but they may be in the way.
    """

    pairs: tuple[DatasetPair, ...] = ()
    unselected: tuple[DatasetPair, ...] = ()
    gone: tuple[Dataset, ...] = ()
    aside: tuple[Dataset, ...] = ()


@dataclass
class _Claims:
    """Who has claimed which dataset of the vault: by the name of either side."""

    vault_of: dict[str, Dataset] = field(default_factory=dict)
    source_of: dict[str, str] = field(default_factory=dict)

    def claim(self, source: str, vault: Dataset) -> None:
        self.vault_of[source] = vault
        self.source_of[vault.name] = source

    def free(self, source: str, vault: Dataset | None) -> bool:
        return vault is not None and vault.name not in self.source_of and source not in self.vault_of


@dataclass
class KnownPairs:
    """The pairs of an earlier look, by the source's name; and which datasets of that one's source have some GUIDs."""

    pairs: Mapping[str, DatasetPair] = field(default_factory=dict)
    source: Mapping[str, Dataset] = field(default_factory=dict)
    sought: frozenset[int] = frozenset()
    having: Mapping[str, Sequence[int]] = field(default_factory=dict)


def match(
    source: Tree,
    wanted: Sequence[tuple[Dataset, DatasetName]],
    vault: Tree,
    *,
    left_out: Sequence[tuple[Dataset, DatasetName]] = (),
    apart: Sequence[str] = (),
    known: KnownPairs | None = None,
) -> Pairing:
    """Pair the selected source datasets with what follows them.

    ``wanted`` and ``left_out`` give each source dataset, selected or not, with where its backup belongs; below
    ``apart`` are other backups' datasets, of which only those are touched that bear the name of a target.

    What two datasets share depends on nothing but those two, so it is looked up in ``known`` where both are the same
    objects as then; ``known`` has the pairs of this look afterwards. All else is decided anew each time.
    """
    known = known or KnownPairs()
    claims = _Claims()
    everyone = [*wanted, *left_out]
    top = min((target for _, target in everyone), key=len, default="")
    made: dict[str, DatasetPair] = {}
    doubtful: list[tuple[Dataset, DatasetName, Dataset]] = []
    for dataset, target in everyone:
        there = vault.get(target)
        if there is None:
            continue
        pair = _paired(known, dataset, target, there, source)
        made[dataset.name] = pair
        # What is on top holds all the others: it never makes way for one of them.
        if not is_aside(target) and (target == top or pair.goes_on):
            claims.claim(dataset.name, there)
        else:
            doubtful.append((dataset, target, there))
    rest = [one for one in vault if one.name not in claims.source_of]
    owners = _owners(source, {guid for one in rest for guid in guids_of(one.snapshots)}, known)
    for dataset, target, there in doubtful:
        if not is_aside(target):
            newest = newest_known(there, owners)
            if newest is not None and dataset.name in owners[newest.guid]:
                claims.claim(dataset.name, there)
    strangers = [one for one in rest if not any(one.name.is_within(root) for root in apart)]
    _claim_renamed(wanted, strangers, owners, claims)
    _claim_renamed(left_out, strangers, owners, claims)
    for dataset, _, there in doubtful:
        if claims.free(dataset.name, there):
            claims.claim(dataset.name, there)

    def paired(some: Sequence[tuple[Dataset, DatasetName]]) -> Iterator[DatasetPair]:
        for dataset, target in some:
            there, pair = claims.vault_of.get(dataset.name), made.get(dataset.name)
            if pair is None or pair.vault is not there:
                pair = made[dataset.name] = _paired(known, dataset, target, there, source)
            yield pair

    pairs, unselected = tuple(paired(wanted)), tuple(paired(left_out))
    rest = [one for one in strangers if one.name not in claims.source_of and not one.placeholder]
    targets = {target for _, target in everyone} if rest else set()
    gone = (one for one in rest if one.name not in targets and _is_gone(one, owners, claims.vault_of))
    known.pairs = made
    return Pairing(pairs, unselected, tuple(gone), tuple(one for one in rest if is_aside(one.name)))


def _paired(
    known: KnownPairs, dataset: Dataset, target: DatasetName, there: Dataset | None, source: Tree
) -> DatasetPair:
    """The pair of these: the known one, if it is of just these, and the datasets it branched off from are as then."""
    before = known.pairs.get(dataset.name)
    ancestry = ancestry_of(dataset, source) if dataset.origin is not None else ()
    if (
        before is not None
        and before.source is dataset
        and before.vault is there
        and before.target == target
        and before.ancestry == ancestry
    ):
        return before
    return DatasetPair(dataset, target, there, ancestry)


def _is_gone(vault: Dataset, owners: Mapping[int, Sequence[str]], followed: Container[str]) -> bool:
    """Not gone is what a dataset of the source still knows that has no other backup: it may be built upon yet."""
    if is_aside(vault.name) or not vault.snapshots:
        return False
    known = newest_known(vault, owners)
    return known is None or all(name in followed for name in owners[known.guid])


def _owners(source: Tree, sought: set[int], known: KnownPairs) -> dict[int, list[str]]:
    """By GUID of those that are sought, the datasets that have a snapshot, then those that have a bookmark of it.

    There are millions of GUIDs, and few of which nobody knows to whom they belong. Who has which of those is looked
    up where the same ones were sought before.
    """
    owners: dict[int, list[str]] = defaultdict(list)
    before = known.source if sought == known.sought else {}
    having = {
        name: guids
        for name, guids in known.having.items()
        if (dataset := before.get(name)) is not None and dataset is source.get(name)
    }
    if sought:
        for name, dataset in source.datasets.items():
            if before.get(name) is not dataset and (
                found := sought.intersection(guids_of(dataset.snapshots))
            ):
                having[name] = [guid for guid in guids_of(dataset.snapshots) if guid in found]
        for name, guids in having.items():
            for guid in guids:
                owners[guid].append(name)
        for dataset in source:
            for mark in dataset.bookmarks:
                if mark.guid in sought:
                    owners[mark.guid].append(dataset.name)
    known.source, known.sought, known.having = source.datasets, frozenset(sought), having
    return owners


def newest_known(vault: Dataset, owners: Mapping[int, object]) -> Snapshot | None:
    """The newest snapshot of a vault's dataset that anything on the source knows, or None."""
    return next((snap for snap in reversed(vault.snapshots) if snap.guid in owners), None)


def _claim_renamed(
    wanted: Sequence[tuple[Dataset, DatasetName]],
    vault: Iterable[Dataset],
    owners: Mapping[int, Sequence[str]],
    claims: _Claims,
) -> None:
    """Give datasets without a backup the one that ends with a snapshot of theirs, the newest if there are several.

    One that goes on after what both share, or was written to, is no mere renamed backup: it stays where it is.
    """
    by_name: dict[str, Dataset] = {dataset.name: dataset for dataset, _ in wanted}
    offers: list[tuple[int, str, Dataset]] = []
    for there in vault:
        newest = there.newest()
        if newest is None or there.written or is_aside(there.name):
            continue
        for name in owners.get(newest.guid, ()):
            heir = by_name.get(name)
            if heir is not None and heir.type == there.type and claims.free(name, there):
                points: tuple[Base, ...] = (*heir.snapshots, *heir.bookmarks)
                txg = next(point.createtxg for point in points if point.guid == newest.guid)
                offers.append((txg, name, there))
    for _, name, there in sorted(offers, key=lambda offer: (-offer[0], offer[1], offer[2].name)):
        if claims.free(name, there):
            claims.claim(name, there)
