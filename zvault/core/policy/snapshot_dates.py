"""How far the dates of snapshots can be believed: by the order in which the pool got them.

The date of a snapshot is the time in its name, which the source chose, and so is ``creation`` on a vault: it travels
in the stream. What the source cannot choose is the order in which the vault's pool got its snapshots (``createtxg``),
and it cannot make the vault get one before now. So a snapshot's *rank* is

- 0 where no snapshot that the pool got earlier is dated later, as it is wherever no clock was ever set;
- one more than that of the snapshots that the pool got earlier, dated later: its witnesses;
- ``AHEAD_OF_TIME`` where it is dated later than now.

A clock that was set back or ahead gives ranks above 0 too, and which of two snapshots bears the wrong date cannot be
told. Retention therefore compares a snapshot only with those of its own rank and below (retention.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zvault.core.dates import CLOCK_TOLERANCE
from zvault.core.model import Snapshot

LARGEST_RANK = 3
"""The largest rank by order; what would have a larger one has this."""

AHEAD_OF_TIME = LARGEST_RANK + 1
"""The rank of a snapshot dated later than now."""


@dataclass(frozen=True, slots=True)
class RankedSnapshot:
    """The ``rank`` of one snapshot; ``witness`` is the place of one of the next lower rank that shows it, if any.

    The witness was there earlier and is dated later. Without it the snapshot would have a lower rank.
    """

    rank: int
    witness: int | None = None


def rank_snapshots(oldest_first: Sequence[tuple[int, Snapshot]], now: float) -> dict[int, RankedSnapshot]:
    """The rank of each snapshot of one dataset, by its place; given with it in the order of the pool."""
    found: dict[int, RankedSnapshot] = {}
    latest: list[tuple[int, int]] = []  # of each rank so far the latest date, and its place
    for place, snap in oldest_first:
        if snap.creation > now + CLOCK_TOLERANCE:
            found[place] = RankedSnapshot(AHEAD_OF_TIME)
            continue
        rank = 0
        while rank < min(len(latest), LARGEST_RANK) and snap.creation < latest[rank][0]:
            rank += 1
        found[place] = RankedSnapshot(rank, latest[rank - 1][1] if rank else None)
        if rank == len(latest):
            latest.append((snap.creation, place))
        elif snap.creation >= latest[rank][0]:
            latest[rank] = (snap.creation, place)
    return found
