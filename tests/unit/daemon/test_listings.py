"""The last listing of each backup: not what was pruned since, and of a vault that is down what it had."""

from dataclasses import replace
from typing import Any

from tests.unit.ops.ops_world import HOUR, START, context, dataset, sides, snap
from zvault.api.backups import Side
from zvault.api.events import PrunedEvent
from zvault.core.model import Tree
from zvault.daemon.listings import BackupListing, BackupListings

ON_VAULT = "cold/host/tank"


def both() -> Any:
    return sides(
        dataset("tank", *(snap(hour) for hour in range(4))),
        dataset(ON_VAULT, *(snap(hour, ON_VAULT) for hour in range(3))),
    )


def hours(listing: BackupListing | None) -> tuple[list[int], list[int]]:
    assert listing is not None
    (pair,) = listing.sides.pairing.pairs
    assert pair.vault is not None
    return [one.guid - 100 for one in pair.source.snapshots], [one.guid - 100 for one in pair.vault.snapshots]


def pruned(side: Side, *names: str, at: float) -> PrunedEvent:
    return PrunedEvent(run="r", backup="b", time=at, side=side, count=len(names), snapshots=list(names))


def test_what_is_pruned_is_gone_whether_it_was_listed_before_or_is_kept_after():
    env = context(START + 9 * HOUR).env
    listings = BackupListings(env)
    assert listings.of("b") is None
    way = env.way(env.backup("b"))
    listings.keep("b", both(), way, 100.0)
    assert hours(listings.of("b")) == ([0, 1, 2, 3], [0, 1, 2])
    listings.note_pruned(pruned("source", snap(0).name, at=150.0))
    assert hours(listings.of("b")) == ([1, 2, 3], [0, 1, 2])
    # The same name on the other side is another snapshot; a listing from before it went does not have it back.
    listings.note_pruned(pruned("vault", snap(1, ON_VAULT).name, at=160.0))
    listings.keep("b", both(), way, 155.0)
    assert hours(listings.of("b")) == ([0, 1, 2, 3], [0, 2])
    listings.keep("b", both(), way, 170.0)
    assert hours(listings.of("b")) == ([0, 1, 2, 3], [0, 1, 2])


def test_a_vault_that_is_down_has_what_it_had_when_it_was_listed():
    env = context(START + 9 * HOUR).env
    listings, way = BackupListings(env), env.way(env.backup("b"))
    seen = both()
    down = replace(seen, vault=Tree(), vault_seen=False)
    listings.keep("b", down, way, 50.0)
    first = listings.of("b")
    assert first is not None
    assert (first.source_at, first.vault_at, first.sides.vault_seen) == (50.0, None, False)
    listings.keep("b", seen, way, 100.0)
    listings.note_pruned(pruned("vault", snap(0, ON_VAULT).name, at=120.0))
    listings.keep("b", down, way, 200.0)
    found = listings.of("b")
    assert found is not None
    assert (found.source_at, found.vault_at) == (200.0, 100.0)
    assert hours(found) == ([0, 1, 2, 3], [1, 2])
