"""Which dataset of a vault holds the backup of which on the source, for two whole trees (one pair: lineage.py)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from zvault.core.cached_results import list_replaced
from zvault.core.model import Base, Dataset, Snapshot, Tree
from zvault.core.names import DatasetName
from zvault.core.replication.lineage import DatasetPair, Pairing, is_aside, list_ancestry
from zvault.core.snapshot_list import list_guids


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
class CachedPairs:
    """The pairs of an earlier look, by the source's name; which datasets of that one's source have some GUIDs; and what
    that look was at (``last``).
    """

    pairs: Mapping[str, DatasetPair] = field(default_factory=dict)
    source: Mapping[str, Dataset] = field(default_factory=dict)
    sought: frozenset[int] = frozenset()
    having: Mapping[str, Sequence[int]] = field(default_factory=dict)
    last: MatchRecord | None = None


WantedDatasets = Sequence[tuple[Dataset, DatasetName]]


@dataclass(frozen=True, slots=True)
class MatchRecord:
    """The input and the result of a matching. ``places`` are those of the pairs among all that were paired, by their
    dataset on the vault; ``origins`` the datasets of the source that others branched off from; ``top`` the uppermost
    target.
    """

    wanted: WantedDatasets
    left_out: WantedDatasets
    vault: Mapping[str, Dataset]
    apart: tuple[str, ...]
    pairing: Pairing
    places: Mapping[str, int]
    origins: frozenset[str]
    top: str

    def changed(
        self,
        wanted: WantedDatasets,
        left_out: WantedDatasets,
        vault: Mapping[str, Dataset],
        apart: Sequence[str],
    ) -> set[int] | None:
        """The places of the pairs of which either side is another object now; None where a dataset came, went, has
        another place, or follows nothing.
        """
        if self.apart != tuple(apart) or len(self.wanted) != len(wanted) or [*self.vault] != [*vault]:
            return None
        before, now = (*self.wanted, *self.left_out), (*wanted, *left_out)
        if [(one.name, target) for one, target in before] != [(one.name, target) for one, target in now]:
            return None
        datasets = enumerate(zip(before, now, strict=True))
        places = {place for place, ((then, _), (one, _)) in datasets if then is not one}
        there = tuple(vault.values())
        names = [there[place].name for place in list_replaced(tuple(self.vault.values()), there) or ()]
        if not self.places.keys() >= {*names}:
            return None
        return places | {self.places[name] for name in names}


def pair_datasets(
    source: Tree,
    wanted: WantedDatasets,
    vault: Tree,
    *,
    left_out: WantedDatasets = (),
    apart: Sequence[str] = (),
    known: CachedPairs | None = None,
) -> Pairing:
    """Pair the selected source datasets with what follows them.

    ``wanted`` and ``left_out`` give each source dataset, selected or not, with where its backup belongs; below
    ``apart`` are other backups' datasets, of which only those are touched that bear the name of a target.

    ``known`` is what an earlier look knew, and has what this one knows afterwards. Where nothing changed but points of
    datasets whose backup lies where it belongs and goes on, only those are visited. Else all is decided anew, but for
    what two datasets share: that is looked up where both are the same objects as then.
    """
    if known is None:
        return _match_all(source, wanted, vault, left_out, apart, CachedPairs())
    pairing = _match_changed(source, wanted, vault, left_out, apart, known)
    if pairing is None:
        pairing = _match_all(source, wanted, vault, left_out, apart, known)
    return pairing


def _match_changed(
    source: Tree,
    wanted: WantedDatasets,
    vault: Tree,
    left_out: WantedDatasets,
    apart: Sequence[str],
    known: CachedPairs,
) -> Pairing | None:
    """The pairing, of which only what changed is visited; None where that may have to do with anything else.

    It has not where each that changed, then and now, lies in its place and goes on from a snapshot of its own source,
    is no clone and has none, and shares nothing with what lies elsewhere on the vault (``sought``).
    """
    last = known.last
    places = last.changed(wanted, left_out, vault.datasets, apart) if last is not None else None
    if last is None or places is None:
        return None
    pairs, everyone = [*last.pairing.pairs, *last.pairing.unselected], (*wanted, *left_out)
    for place in places:
        (dataset, target), before = everyone[place], pairs[place]
        if before.source is dataset and before.vault is vault.get(target):
            continue
        pairs[place] = pair = DatasetPair(dataset, target, vault.get(target))
        in_place = _in_place(before, last.top) and _in_place(pair, last.top)
        apart_from_others = _apart(before.source, known.sought) and _apart(dataset, known.sought)
        if not (in_place and apart_from_others) or dataset.name in last.origins:
            return None
    pairing = replace(last.pairing, pairs=tuple(pairs[: len(wanted)]), unselected=tuple(pairs[len(wanted) :]))
    known.last = replace(
        last, wanted=tuple(wanted), left_out=tuple(left_out), vault=vault.datasets, pairing=pairing
    )
    known.pairs = {**known.pairs, **{pairs[place].source.name: pairs[place] for place in places}}
    known.source = source.datasets
    return pairing


def _in_place(pair: DatasetPair, top: str) -> bool:
    """True if a backup surely is its source's, and lies where it belongs."""
    there, target = pair.vault, pair.target
    return (
        there is not None
        and there.name == target
        and pair.source.origin is None
        and not is_aside(target)
        and (target == top or pair.goes_on)
    )


def _apart(dataset: Dataset, sought: frozenset[int]) -> bool:
    """True if a dataset has none of these points."""
    return not sought or (
        sought.isdisjoint(list_guids(dataset.snapshots))
        and sought.isdisjoint(mark.guid for mark in dataset.bookmarks)
    )


def _match_all(
    source: Tree,
    wanted: WantedDatasets,
    vault: Tree,
    left_out: WantedDatasets,
    apart: Sequence[str],
    known: CachedPairs,
) -> Pairing:
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
    owners = _owners(source, {guid for one in rest for guid in list_guids(one.snapshots)}, known)
    for dataset, target, there in doubtful:
        if not is_aside(target):
            newest = find_newest_known(there, owners)
            if newest is not None and dataset.name in owners[newest.guid]:
                claims.claim(dataset.name, there)
    strangers = [one for one in rest if not any(one.name.is_within(root) for root in apart)]
    _claim_renamed(wanted, left_out, strangers, owners, claims)
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
    aside = tuple(one for one in rest if is_aside(one.name))
    pairing = Pairing(pairs, unselected, tuple(gone), aside)
    there_of = map(attrgetter("vault"), (*pairs, *unselected))
    at = {there.name: place for place, there in enumerate(there_of) if there is not None}
    origins = frozenset(dataset.origin.dataset for dataset in source if dataset.origin is not None)
    known.pairs = made
    known.last = MatchRecord(
        tuple(wanted), tuple(left_out), vault.datasets, tuple(apart), pairing, at, origins, top
    )
    return pairing


def _paired(
    known: CachedPairs, dataset: Dataset, target: DatasetName, there: Dataset | None, source: Tree
) -> DatasetPair:
    """The pair of these: the known one, if it is of just these, and the datasets it branched off from are as then."""
    before = known.pairs.get(dataset.name)
    ancestry = list_ancestry(dataset, source) if dataset.origin is not None else ()
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
    known = find_newest_known(vault, owners)
    return known is None or all(name in followed for name in owners[known.guid])


def _owners(source: Tree, sought: set[int], known: CachedPairs) -> dict[int, list[str]]:
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
                found := sought.intersection(list_guids(dataset.snapshots))
            ):
                having[name] = [guid for guid in list_guids(dataset.snapshots) if guid in found]
        for name, guids in having.items():
            for guid in guids:
                owners[guid].append(name)
        for dataset in source:
            for mark in dataset.bookmarks:
                if mark.guid in sought:
                    owners[mark.guid].append(dataset.name)
    known.source, known.sought, known.having = source.datasets, frozenset(sought), having
    return owners


def find_newest_known(vault: Dataset, owners: Mapping[int, object]) -> Snapshot | None:
    """The newest snapshot of a vault's dataset that anything on the source knows, or None."""
    return next((snap for snap in reversed(vault.snapshots) if snap.guid in owners), None)


def _txgs(dataset: Dataset) -> dict[int, int]:
    """By GUID, the transaction group of each snapshot of a dataset, else of its first bookmark of one."""
    points: tuple[Base, ...] = (*dataset.snapshots, *dataset.bookmarks)
    return {point.guid: point.createtxg for point in reversed(points)}


def _claim_renamed(
    wanted: WantedDatasets,
    left_out: WantedDatasets,
    vault: Iterable[Dataset],
    owners: Mapping[int, Sequence[str]],
    claims: _Claims,
) -> None:
    """Give datasets without a backup the one that ends with a snapshot of theirs, the newest if there are several.

    One that goes on after what both share, or was written to, is no mere renamed backup: it stays where it is. Of
    several datasets that have its newest snapshot it is that one's which had it first, selected or not: a restored copy
    got it later. Where that tells nothing, those that are selected come first.
    """
    by_name: dict[str, Dataset] = {dataset.name: dataset for dataset, _ in (*wanted, *left_out)}
    txgs: dict[
        str, dict[int, int]
    ] = {}  # by dataset and GUID; once each, however many on the vault end with its own
    unselected = {dataset.name for dataset, _ in left_out}
    offers: list[tuple[int, int, bool, str, Dataset]] = []
    for there in vault:
        newest = there.newest()
        if newest is None or there.written or is_aside(there.name):
            continue
        heirs: list[tuple[int, bool, str]] = []
        for name in owners.get(newest.guid, ()):
            heir = by_name.get(name)
            if heir is not None and heir.type == there.type and claims.free(name, there):
                if name not in txgs:
                    txgs[name] = _txgs(heir)
                heirs.append((txgs[name][newest.guid], name in unselected, name))
        offers += [(-min(heirs)[0], *heir, there) for heir in heirs]
    for *_, name, there in sorted(offers, key=lambda offer: (*offer[:4], offer[4].name)):
        if claims.free(name, there):
            claims.claim(name, there)
