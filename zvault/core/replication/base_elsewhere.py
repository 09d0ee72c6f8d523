"""Where else in a vault's pool the backup of a dataset lies, found by GUID where its own place has no base of it.

The place follows from names: the host's, the source's, ``into``. All of them may change, and nothing may be sent again
because of that. What is found is followed (renamed to its place) where three things agree: a bookmark of the source
says that it was sent to this pool, the backup ends with a snapshot that the source still knows, and zvault itself
received it. Where they do not a person has to decide, and is told how: a clone of this host has the same bookmarks,
and a copy of a source has the same snapshots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from zvault.core.model import Base, Dataset, Tree
from zvault.core.names import DatasetName
from zvault.core.replication.base_names import group_marks_by_vault
from zvault.core.replication.lineage import DatasetPair, Pairing, format_set_aside, is_aside
from zvault.core.snapshot_list import list_guids


@dataclass(frozen=True, slots=True)
class StrayBackup:
    """A backup of a dataset that lies elsewhere, or may, and is not followed by itself: why, and what to do."""

    problem: str
    advice: str


@dataclass(frozen=True, slots=True)
class BasesElsewhere:
    """The datasets to ``follow``, with all below them, and the backups that are ``stray``, by source."""

    follow: Mapping[str, Dataset] = field(default_factory=dict)
    stray: Mapping[str, StrayBackup] = field(default_factory=dict)


def lacks_base(pair: DatasetPair, made: str = "") -> bool:
    """True if a dataset has a history of which its place on the vault has nothing that a stream could start from.

    A snapshot of the name ``made`` is of this very moment: no pool has it yet. A receive into its place that was begun
    and waits to be resumed is not looked behind.
    """
    source, there = pair.source, pair.vault
    if pair.base is not None or (there is not None and there.resume_token):
        return False
    new = len(source.snapshots) == 1 and source.snapshots[0].snapname == made
    return bool(source.bookmarks) or (bool(source.snapshots) and not new)


def find_unsure(pairing: Pairing, pool: int, why: str) -> dict[str, StrayBackup]:
    """The datasets that a pool had, by its GUID, and of which it is not known where, as it cannot be searched.

    They are not sent in full: that could be for nothing, and give their base up.
    """
    return {
        pair.source.name: StrayBackup(
            f"a bookmark of {pair.source.name} says that the pool has its base, which is not at {pair.target}, and the "
            f"rest of the pool cannot be searched: {why}",
            "see to it that 'zfs list -r' of the whole pool works, or rename what the pool has of it to its place",
        )
        for pair in pairing.pairs
        if lacks_base(pair) and pool in group_marks_by_vault(pair.source)
    }


@dataclass(frozen=True)
class PoolSearch:
    """A search through a vault's ``pool``, whose GUID is ``guid``.

    ``taken`` are the roots below which this backup and the others of this configuration have theirs: what lies there is
    theirs. ``sources`` are roots of configured sources in the same pool: nothing there is a backup. ``anew``: the user
    wants a new dataset where one cannot be followed (``on_conflict``).
    """

    pool: Tree
    guid: int
    taken: Sequence[DatasetName] = ()
    sources: Sequence[DatasetName] = ()
    anew: bool = False

    def find(self, pairing: Pairing) -> BasesElsewhere:
        """Find the backups of the selected datasets that lack a base in their place."""
        lacking = [pair for pair in pairing.pairs if lacks_base(pair)]
        top = min((pair.target for pair in (*pairing.pairs, *pairing.unselected)), key=len, default="")
        holders = self._holders({guid for pair in lacking for guid in _txgs(pair.source)})
        follow: dict[str, Dataset] = {}
        astray: dict[DatasetName, Dataset] = {}
        told: dict[str, StrayBackup] = {}
        for pair in lacking:
            there = _best(pair.source, holders)
            if there is None:
                continue
            obstacle = self._obstacle(pair, there, top)
            if obstacle is None:
                follow |= {one.name: one for one in self.pool if one.name.is_within(there.name)}
            elif obstacle:
                astray[pair.target] = there
                told[pair.source.name] = StrayBackup(
                    obstacle, _advice(pair, there, astray, anew=self._may_begin_anew(pair, there))
                )
        return BasesElsewhere(follow, told)

    def _holders(self, sought: set[int]) -> dict[int, list[Dataset]]:
        """The datasets outside of all known places that have any of these snapshots, by GUID."""
        found: dict[int, list[Dataset]] = {}
        for one in self.pool:
            if is_aside(one.name) or any(one.name.is_within(root) for root in (*self.taken, *self.sources)):
                continue
            for guid in sought.intersection(list_guids(one.snapshots)):
                found.setdefault(guid, []).append(one)
        return found

    def _obstacle(self, pair: DatasetPair, there: Dataset, top: str) -> str | None:
        """Why a backup elsewhere cannot simply be followed; empty where it is no matter, None where it can."""
        source, newest = pair.source, there.snapshots[-1]
        ends = newest.guid in _txgs(source)
        marked = self._marked(source, there)
        if self.anew and not (marked and ends):
            return ""
        if not marked:
            told = (
                f"{there.name} is a backup that ends with @{newest.snapname}, which {source.name} has too, but no "
                f"bookmark of {source.name} says that it was sent there: it was moved or restored, or is a copy"
            )
            return told if ends and there.sent else ""
        obstacles = {
            f"goes on with @{newest.snapname}, which {source.name} does not have: something else was sent there since, "
            "as by a clone of this host": not ends,
            f"{there.written} bytes were written to it after @{newest.snapname}": there.written > 0,
            "zvault did not receive it": not there.sent,
            "other backups belong below it": any(root.is_below(there.name) for root in self.taken),
            f"something else lies at {pair.target}": pair.target == top and pair.vault is not None,
            f"it is encrypted by the key of {there.key_root}, and ZFS renames it to nothing outside of that": (
                _is_bound(pair, there)
            ),
        }
        why = next((text for text, so in obstacles.items() if so), None)
        return f"{there.name} has the base of {source.name}, but {why}" if why is not None else None

    def _marked(self, source: Dataset, there: Dataset) -> bool:
        """True if a bookmark says that what a dataset has was sent to this pool."""
        guids = set(list_guids(there.snapshots))
        return any(mark.guid in guids for mark in group_marks_by_vault(source).get(self.guid, ()))

    def _may_begin_anew(self, pair: DatasetPair, there: Dataset) -> bool:
        """True if ``on_conflict = "new-dataset"`` would send in full: not where the backup stands on the base."""
        ends = there.snapshots[-1].guid in _txgs(pair.source)
        return not (ends and self._marked(pair.source, there))


def _advice(pair: DatasetPair, there: Dataset, astray: Mapping[DatasetName, Dataset], *, anew: bool) -> str:
    """What to do. A tree is renamed at once, by its top."""
    if _is_bound(pair, there):
        return f"'{format_set_aside(there.name)}' keeps it, and the next run sends in full; or leave 'into' as it was"
    if there.written:
        return f"'zfs rollback {there.snapshots[-1].name}' gives that up, and the next run goes on from it"
    if pair.vault is not None:
        return f"rename {pair.target}, and the next run puts {there.name} there"
    old, new = _whole_tree(there.name, pair.target, astray)
    advice = f"'zfs rename -p {old} {new}' on the vault, and the next run goes on from it"
    return advice + '; or on_conflict = "new-dataset", and it is sent in full beside that one' * anew


def _is_bound(pair: DatasetPair, there: Dataset) -> bool:
    """True if a dataset cannot be renamed to its place: what inherits its key stays below where that comes from
    ("cannot move encrypted child outside of its encryption root", OpenZFS's dsl_crypt.c).
    """
    root = there.key_root
    return bool(root) and root != there.name and not pair.target.is_within(root)


def _whole_tree(
    old: DatasetName, new: DatasetName, astray: Mapping[DatasetName, Dataset]
) -> tuple[DatasetName, DatasetName]:
    """The rename that brings a dataset to its place together with all that is astray in the same way above it."""
    above_old, above_new = old.parent, new.parent
    while (
        above_old is not None
        and above_new is not None
        and old.name == new.name
        and (other := astray.get(above_new)) is not None
        and other.name == above_old
    ):
        old, new = above_old, above_new
        above_old, above_new = old.parent, new.parent
    return old, new


def _txgs(source: Dataset) -> dict[int, int]:
    """The transaction groups of a dataset's own points, by GUID."""
    points: tuple[Base, ...] = (*source.snapshots, *source.bookmarks)
    return {point.guid: point.createtxg for point in points}


def _best(source: Dataset, holders: Mapping[int, Sequence[Dataset]]) -> Dataset | None:
    """The dataset elsewhere from which least would be left to send: one that ends with what the source knows first."""
    txgs = _txgs(source)
    offers = {
        one.name: (one.snapshots[-1].guid in txgs, txg, one)
        for guid, txg in sorted(txgs.items(), key=lambda item: item[1])
        for one in holders.get(guid, ())
        if one.type == source.type and one.guid != source.guid
    }
    return max(offers.values(), key=lambda offer: offer[:2])[2] if offers else None
