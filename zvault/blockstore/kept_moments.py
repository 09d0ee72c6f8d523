"""Moments of a store's past that are kept: which they are, and what of the bucket they still need. Pure.

A root that was the newest says what the device was. As long as it is there, with the segments and the objects of the
map that it points to, it can be read again. As with a dataset's snapshots, no list of what each needs has to be kept:
a segment was put before a root or after it (``applied``), and no root from the one on that found it dead (``died``)
points to it. So it is needed by the roots in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from zvault.core.errors import NotFound
from zvault.core.model import Snapshot
from zvault.core.names import DatasetName
from zvault.core.policy.retention import KeepRules, decide_retention

_STORE = DatasetName("store")


@dataclass(frozen=True, slots=True)
class KeptMoment:
    """A root: its epoch and number, when it was taken by its writer's clock, and what it found there.

    ``applied``: its last segment; ``map_number``: that of the newest object of the map. ``taken`` is in seconds since
    the epoch; 0: not known.
    """

    epoch: int
    number: int
    taken: float
    applied: int
    map_number: int


def select_kept_moments(moments: Sequence[KeptMoment], rules: KeepRules, now: float) -> list[KeptMoment]:
    """Those of some moments, the oldest first, that the rules keep. Periods are those of UTC: hosts may differ.

    A moment stands until the next: nothing changed in between, as far as checkpoints tell.
    """
    snapshots = [
        Snapshot(_STORE, f"{one.epoch}-{one.number}", place + 1, place + 1, int(one.taken))
        for place, one in enumerate(moments)
    ]
    verdicts = decide_retention(
        snapshots, rules, now=now, zone=UTC, protected={}, ours=lambda _: True, lasting=True
    )
    return [one for one, verdict in zip(moments, verdicts, strict=True) if verdict.keep]


def add_moment(moments: Sequence[KeptMoment], newest: KeptMoment) -> list[KeptMoment]:
    """Moments, the oldest first, and one more; not where it has nothing, or nothing that the last of them has not."""
    if newest.applied == 0 or (moments and moments[-1].applied == newest.applied):
        return list(moments)
    return [*moments, newest]


def find_moment_up_to(moments: Sequence[KeptMoment], when: float, place: str) -> KeptMoment:
    """The last of some moments that is not later than ``when``, in the order of the store. Raises NotFound.

    Of those whose time is not known none is: nobody could say that it is old enough.
    """
    # A moment of unknown time passed for one of 1970, and 'vault open --at 2001-09-09' opened it.
    timed = [one for one in moments if one.taken > 0]
    found = [one for one in timed if one.taken <= when]
    if not found:
        why = "no time is known of those that are kept" if moments else "no moment of its past is kept"
        if timed:
            oldest = min(one.taken for one in timed)
            why = f"the oldest that is kept is of {datetime.fromtimestamp(oldest, UTC):%Y-%m-%d %H:%M} UTC"
        raise NotFound(
            f"of the block store in {place} nothing is known as of then",
            why,
            "see 'zvaultctl blockstore history'",
        )
    return max(found, key=lambda one: (one.epoch, one.number))


class MomentNeeds:
    """The needs of some moments from the bucket, all together."""

    def __init__(self, moments: Sequence[KeptMoment]) -> None:
        ordered = sorted(moments, key=lambda one: one.number)
        self._numbers = np.array([one.number for one in ordered], np.int64)
        self._applied = np.array([one.applied for one in ordered], np.int64)
        self._maps = np.array([one.map_number for one in ordered], np.int64)

    def segments(self, sequences: np.ndarray, died: np.ndarray) -> np.ndarray:
        """Which of these dead segments are needed. ``died``: the number of the root that found each dead; 0: nobody
        knows, and it may be needed by any root that came after it."""
        return self._needed(self._applied, sequences, died)

    def map_object(self, number: int, died: int) -> bool:
        """True if an object of the map is needed that the root ``died`` does not point to any more."""
        return bool(self._needed(self._maps, np.array([number]), np.array([died]))[0])

    def _needed(self, reach: np.ndarray, made: np.ndarray, died: np.ndarray) -> np.ndarray:
        """The last moment before the death of each has seen most: it came after the making, or none did."""
        if not len(self._numbers):
            return np.zeros(len(made), bool)
        ends = np.where(died == 0, np.iinfo(np.int64).max, died.astype(np.int64))
        before = np.searchsorted(self._numbers, ends, "left")
        highest = np.concatenate([[-1], np.maximum.accumulate(reach)])
        return np.asarray(highest[before] >= made)


def count_kept_bytes(
    moments: Sequence[KeptMoment],
    sizes: Mapping[int, int] | np.ndarray,
    sequences: np.ndarray,
    died: np.ndarray,
) -> list[int]:
    """Return the bytes of dead segments that each moment alone keeps: what removing just it would free."""
    size = np.array([sizes[int(one)] for one in sequences], np.int64)
    everybody = MomentNeeds(moments).segments(sequences, died)
    found = []
    for place in range(len(moments)):
        others = MomentNeeds([*moments[:place], *moments[place + 1 :]]).segments(sequences, died)
        found.append(int(size[everybody & ~others].sum()))
    return found
