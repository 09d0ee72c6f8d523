"""Retention's verdicts on one dataset, in little memory, and kept as long as they surely still hold.

A verdict depends on the dataset's snapshots (their names, dates and order), the rules, the time zone, what protects
which snapshot, whether a snapshot stands for the time until the next (``lasting``), and on now: a snapshot leaves
``keep within``, or grows older than ``min_age``, at a moment that is known beforehand, and one that is dated later
than now is believed from a moment on that is known too. Calendar rules count periods of the snapshots, not of now. So
verdicts hold from when they were made until the first of these moments, while nothing else of what they depend on is
another; a clock that was set back ends them.

Datasets whose snapshots were made together have the same names and dates, and the same verdicts: they are made once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import tzinfo
from itertools import repeat
from typing import overload
from weakref import WeakValueDictionary

from zvault.core.dates import CLOCK_TOLERANCE
from zvault.core.model import Snapshot
from zvault.core.policy.retention import KeepDecision, KeepRules, decide_retention
from zvault.core.snapshot_list import SnapshotList

CLOSE_MOMENT = 0.001
"""Seconds around the moment at which a verdict changes in which none is kept: floats are no exact times."""


class VerdictsByPlace:
    """The verdicts on snapshots by their places: see KeepDecision. Good ``since`` and ``until`` a time."""

    __slots__ = ("__weakref__", "all_kept", "kept", "long", "ranks", "reasons", "since", "until", "witnesses")

    def __init__(
        self, snapshots: Sequence[Snapshot], decided: Sequence[KeepDecision], since: float, until: float
    ) -> None:
        names = {snap.name: place for place, snap in enumerate(snapshots)}
        self.since, self.until = since, until
        self.kept = bytes(one.keep for one in decided)
        self.all_kept = all(self.kept)
        self.reasons = tuple(one.reason for one in decided)
        self.ranks = bytes(one.rank for one in decided)
        self.long = bytes(one.long for one in decided)
        self.witnesses = {
            place: names[one.witness] for place, one in enumerate(decided) if one.witness is not None
        }

    def hold(self, now: float) -> bool:
        """True if they are good at a time."""
        return self.since <= now <= self.until


class DatasetVerdicts(Sequence[KeepDecision]):
    """The verdicts on one dataset's snapshots, in their order; each is made anew when it is asked for."""

    __slots__ = ("dataset", "snapshots", "verdicts")

    def __init__(self, snapshots: Sequence[Snapshot], verdicts: VerdictsByPlace) -> None:
        self.dataset = snapshots[0].dataset if snapshots else None
        self.snapshots = snapshots
        self.verdicts = verdicts

    def __len__(self) -> int:
        return len(self.snapshots)

    @overload
    def __getitem__(self, at: int) -> KeepDecision: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[KeepDecision]: ...
    def __getitem__(self, at: int | slice) -> KeepDecision | Sequence[KeepDecision]:
        return tuple(self)[at]

    def __iter__(self) -> Iterator[KeepDecision]:
        one = self.verdicts
        names = [snap.name for snap in self.snapshots] if one.witnesses else []
        witnesses = [
            names[one.witnesses[place]] if place in one.witnesses else None
            for place in range(len(self.snapshots) if names else 0)
        ]
        return map(
            KeepDecision,
            self.snapshots,
            map(bool, one.kept),
            one.reasons,
            one.ranks,
            witnesses or repeat(None),
            map(bool, one.long),
        )


def pack_verdicts(
    verdicts: Sequence[KeepDecision], decided: Sequence[KeepDecision]
) -> Sequence[KeepDecision]:
    """The verdicts ``decided`` anew of the snapshots of ``verdicts``, in the same form: where that is in little memory,
    a million of them are made one by one, and go one by one. To free a million at once took the event loop 0.9 s.
    """
    if not isinstance(verdicts, DatasetVerdicts):
        return list(decided)
    made = VerdictsByPlace(verdicts.snapshots, decided, float("-inf"), float("inf"))
    return DatasetVerdicts(verdicts.snapshots, made)


def keeps_all(verdicts: Sequence[KeepDecision]) -> bool:
    """True if they select nothing."""
    if isinstance(verdicts, DatasetVerdicts):
        return verdicts.verdicts.all_kept
    return all(one.keep for one in verdicts)


class CachedVerdicts:
    """Decides as retention.decide_retention does, once for all datasets whose snapshots and protection are alike.

    It is for one zone, one ``ours`` and one ``lasting``: who has others takes another.
    """

    def __init__(self, zone: tzinfo, ours: Callable[[Snapshot], bool], *, lasting: bool) -> None:
        self._zone, self._ours, self._lasting = zone, ours, lasting
        self._known: WeakValueDictionary[object, VerdictsByPlace] = WeakValueDictionary()

    def decide(
        self,
        snapshots: Sequence[Snapshot],
        rules: KeepRules,
        *,
        now: float,
        protected: Mapping[int, str],
        min_age: float = 0.0,
    ) -> DatasetVerdicts:
        """See retention.decide_retention. ``min_age`` is what ``protected`` depends on besides, if it does."""
        key = _key(snapshots, rules, protected, min_age)
        found = self._known.get(key) if key is not None else None
        if found is None or not found.hold(now):
            decided = decide_retention(
                snapshots,
                rules,
                now=now,
                zone=self._zone,
                protected=protected,
                ours=self._ours,
                lasting=self._lasting,
            )
            until = find_valid_until((snap.creation for snap in snapshots), now, rules.within, min_age)
            found = VerdictsByPlace(snapshots, decided, now, until)
            if key is not None:
                self._known[key] = found
        return DatasetVerdicts(snapshots, found)


def _key(
    snapshots: Sequence[Snapshot], rules: KeepRules, protected: Mapping[int, str], min_age: float
) -> object:
    """All that verdicts on a list depend on, but for its order; None where two snapshots are of one moment of the pool,
    and their GUIDs count.
    """
    if not isinstance(snapshots, SnapshotList) or len(set(snapshots.createtxgs)) < len(snapshots):
        return None
    guards: tuple[tuple[int, str], ...] = ()
    if protected:
        guards = tuple(
            (place, protected[guid]) for place, guid in enumerate(snapshots.guids) if guid in protected
        )
    return snapshots.column, guards, rules, min_age


def find_valid_until(creations: Iterable[int], now: float, *spans: float) -> float:
    """Until when no snapshot made at one of these times grows older than one of these ``spans`` of seconds, and
    none that is dated too far ahead is dated so no more.
    """
    limits = [span for span in spans if span]
    ends = (made + span for made in creations for span in (*limits, -CLOCK_TOLERANCE))
    return max(
        now, min((end for end in ends if end > now - CLOSE_MOMENT), default=float("inf")) - CLOSE_MOMENT
    )
