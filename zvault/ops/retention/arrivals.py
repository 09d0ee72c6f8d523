"""Which snapshots a run brought, so that prune_limit counts only what was there before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from zvault.core.model import Tree
from zvault.core.snapshot_list import list_guids
from zvault.core.snapshot_list import list_newer_snapshots as newer
from zvault.ops.replication.listing import BothListings


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The GUIDs of what a run brought: what came to the ``vault``, and on the ``source`` what was made since the
    base that the run began with.

    A dataset of which the vault had no base when the run began has no arrivals on the source: what is there may be
    the history of years, which a new vault is no reason to prune at once.
    """

    source: frozenset[int] = frozenset()
    vault: frozenset[int] = frozenset()


NOTHING_ARRIVED = Arrivals()


def list_arrivals(before: BothListings, after: BothListings) -> Arrivals:
    """Return what came between two listings of both sides."""
    return Arrivals(frozenset(_since_base(before, after)), frozenset(_new_guids(before.vault, after.vault)))


def _new_guids(before: Tree, after: Tree) -> set[int]:
    """The GUIDs that the vault did not have. What is the same object as then has none."""
    changed = [
        one for one in after if (old := before.get(one.name)) is None or old.snapshots is not one.snapshots
    ]
    found = {guid for one in changed for guid in list_guids(one.snapshots)}
    for one in before if found else ():
        found.difference_update(list_guids(one.snapshots))
    return found


def _since_base(before: BothListings, after: BothListings) -> Iterator[int]:
    bases = {pair.source.name: pair.base[0] for pair in before.pairing.pairs if pair.base is not None}
    for pair in after.pairing.pairs:
        base = bases.get(pair.source.name)
        if base is not None:
            yield from (snap.guid for snap in newer(pair.source.snapshots, base.createtxg))
