"""Who follows whom: which dataset of a vault holds the backup of which on the source, by GUID.

A name is only a hint. A dataset that was renamed on the source is known by the snapshots it shares with its
backup; one that was promoted (zfs-promote(8)) took snapshots over from another, and with them their bookmarks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from zvault.core.model import Base, Dataset, Snapshot, Tree
from zvault.core.names import DatasetName

ASIDE = "_zvault-conflict-"
"""Between a dataset's name and the time at which it was set aside, ``20261121T090000Z``."""

_SET_ASIDE = re.compile(rf"{ASIDE}\d{{8}}T\d{{6}}Z$")


def is_aside(name: str) -> bool:
    """Whether a dataset of a vault was set aside: it belongs to a person then, and follows nothing."""
    return _SET_ASIDE.search(name) is not None


def find_base(
    source: Dataset, vault: Dataset, ancestry: Iterable[Snapshot] = ()
) -> tuple[Base, Snapshot] | None:
    """The newest snapshot of the vault whose GUID the source still has, as (source side, vault side).

    A snapshot on the source is preferred to a bookmark of it: only it can start a ``-I``. ``ancestry`` are the
    snapshots of other datasets from which the source branched off (see ``ancestry_of``).
    """
    by_guid: dict[int, Base] = {snap.guid: snap for snap in ancestry}
    by_guid.update({mark.guid: mark for mark in source.bookmarks})
    by_guid.update({snap.guid: snap for snap in source.snapshots})
    for snap in reversed(vault.snapshots):
        if snap.guid in by_guid:
            return by_guid[snap.guid], snap
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

    @property
    def base(self) -> tuple[Base, Snapshot] | None:
        """The base, as (source side, vault side)."""
        return None if self.vault is None else find_base(self.source, self.vault, self.ancestry)


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


def match(
    source: Tree,
    wanted: Sequence[tuple[Dataset, DatasetName]],
    vault: Tree,
    *,
    left_out: Sequence[tuple[Dataset, DatasetName]] = (),
    apart: Sequence[str] = (),
) -> Pairing:
    """Pair the selected source datasets with what follows them.

    ``wanted`` and ``left_out`` give each source dataset, selected or not, with where its backup belongs; below
    ``apart`` are other backups' datasets, of which only those are touched that bear the name of a target.
    """
    owners = _owners(source)
    claims = _Claims()
    everyone = [*wanted, *left_out]
    top = min((target for _, target in everyone), key=len, default="")
    for dataset, target in everyone:
        there = vault.get(target)
        if there is not None and not is_aside(target):
            known = newest_known(there, owners)
            # What is on top holds all the others: it never makes way for one of them.
            if target == top or (known is not None and dataset.name in owners[known.guid]):
                claims.claim(dataset.name, there)
    strangers = [one for one in vault if not any(one.name.is_within(root) for root in apart)]
    _claim_renamed(wanted, strangers, owners, claims)
    _claim_renamed(left_out, strangers, owners, claims)
    for dataset, target in everyone:
        there = vault.get(target)
        if there is not None and claims.free(dataset.name, there):
            claims.claim(dataset.name, there)
    pairs, unselected = (
        tuple(
            DatasetPair(one, at, claims.vault_of.get(one.name), ancestry_of(one, source)) for one, at in some
        )
        for some in (wanted, left_out)
    )
    rest = [one for one in strangers if one.name not in claims.source_of and not one.placeholder]
    targets = {target for _, target in everyone}
    gone = (one for one in rest if one.name not in targets and _is_gone(one, owners, claims.vault_of))
    return Pairing(pairs, unselected, tuple(gone), tuple(one for one in rest if is_aside(one.name)))


def _is_gone(vault: Dataset, owners: Mapping[int, Sequence[str]], followed: Container[str]) -> bool:
    """Not gone is what a dataset of the source still knows that has no other backup: it may be built upon yet."""
    if is_aside(vault.name) or not vault.snapshots:
        return False
    known = newest_known(vault, owners)
    return known is None or all(name in followed for name in owners[known.guid])


def _owners(source: Tree) -> dict[int, list[str]]:
    """By GUID, the datasets that have a snapshot, then those that have a bookmark of it."""
    owners: dict[int, list[str]] = defaultdict(list)
    for dataset in source:
        for snap in dataset.snapshots:
            owners[snap.guid].append(dataset.name)
    for dataset in source:
        for mark in dataset.bookmarks:
            owners[mark.guid].append(dataset.name)
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
