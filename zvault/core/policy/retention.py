"""Retention: which snapshots of one dataset to keep, and why.

Every rule votes on its own for what it keeps; a snapshot is pruned only when nobody votes for it. From this
follow the invariants that the tests try to break:

- what is protected, what zvault did not make, and the newest that it made are never pruned;
- deciding again at the same moment over what was kept keeps all of it, so pruning may be repeated at will;
- another rule, or a larger number, never prunes more. (No rule at all keeps everything.)
- a snapshot whose date cannot be believed displaces none that is better dated.

That last one keeps a source from having its history pruned by made-up names. Rules count for a snapshot only those
of its own rank and below (snapshot_dates.py). As long as one of a higher rank stays, so does its witness: without it
the snapshot would take a lower rank, and displace what it must not. So those of a high rank go first.

How much of that one run may do is limited apart from it: see prune_limit.py.

Calendar periods are those of the wall clock in the given time zone; the hour that comes twice in autumn is
two hours. "Newest" is by transaction group, the order of the dataset's own history: a clock that was wrong
for a while cannot make an old snapshot the newest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta, tzinfo
from fnmatch import fnmatchcase
from functools import lru_cache

from zvault.core.model import Snapshot
from zvault.core.names import SnapshotName
from zvault.core.policy.snapshot_dates import RankedSnapshot, rank_snapshots
from zvault.core.units import format_duration

SHORTEST_PERIOD = 60
"""Seconds of the shortest period of which one may be kept."""


@dataclass(frozen=True, slots=True)
class KeepRules:
    """The rules of what to keep: the ``last`` few, all ``within`` so many seconds, and the newest of so many periods.

    ``periods`` are those of any length: seconds of one, and how many; whole minutes, and none twice.
    What is ``matching`` one of these patterns (fnmatch, case counts) by its snapname is kept for ever.
    """

    last: int = 0
    within: float = 0.0
    hourly: int = 0
    daily: int = 0
    weekly: int = 0
    monthly: int = 0
    yearly: int = 0
    matching: tuple[str, ...] = ()
    periods: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        for rule in fields(self):
            if rule.name in {"matching", "periods"}:
                continue
            value = getattr(self, rule.name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"keep.{rule.name} = {value} is not allowed: it is zero or more")
        if len(dict(self.periods)) < len(self.periods) or any(
            length < SHORTEST_PERIOD or length % SHORTEST_PERIOD or count < 0
            for length, count in self.periods
        ):
            raise ValueError(f"keep.periods = {self.periods} is not allowed: whole minutes, and none twice")

    @property
    def empty(self) -> bool:
        """True if no rule says what may go, which keeps everything. ``matching`` alone only ever keeps."""
        periods = (self.hourly, self.daily, self.weekly, self.monthly, self.yearly)
        return not any((self.last, self.within, *periods, *(count for _, count in self.periods)))

    def match(self, snapname: str) -> str | None:
        """The first pattern that a snapname matches, or None."""
        return next((pattern for pattern in self.matching if fnmatchcase(snapname, pattern)), None)


@dataclass(frozen=True, slots=True)
class KeepDecision:
    """The decision on one snapshot, and its reason in words.

    ``rank`` tells how far its date can be believed, ``witness`` names the snapshot that shows it (snapshot_dates.py).
    ``long``: one of the LONG rules keeps it, whichever rule gave the reason.
    """

    snapshot: Snapshot
    keep: bool
    reason: str
    rank: int = 0
    witness: SnapshotName | None = None
    long: bool = False


def decide_retention(
    snapshots: Sequence[Snapshot],
    rules: KeepRules,
    *,
    now: float,
    zone: tzinfo,
    protected: Mapping[int, str],
    ours: Callable[[Snapshot], bool],
    lasting: bool = False,
) -> list[KeepDecision]:
    """A verdict on every snapshot of one dataset, in the order given.

    ``now`` is in seconds since the epoch; ``protected`` gives by GUID the reason why a snapshot must stay.
    Only snapshots that are ``ours`` count for rules, protected ones among them. ``lasting``: none is made while nothing
    changes, so that each stands for all the time until the next. Raises ValueError for
    snapshots of several datasets: the newest of each is sacred.
    """
    if len({snap.dataset for snap in snapshots}) > 1:
        raise ValueError("retention is decided for one dataset at a time")
    mine = [(place, snap) for place, snap in enumerate(snapshots) if ours(snap)]
    mine.sort(key=_age, reverse=True)
    votes = dict.fromkeys(range(len(snapshots)), "not made by zvault")
    for place, _ in mine:
        del votes[place]
    dated = rank_snapshots(mine[::-1], now)
    long: set[int] = set()
    for rank in sorted({one.rank for one in dated.values()}):
        among = [placed for placed in mine if dated[placed[0]].rank <= rank]
        won = _vote(among, rules, now, zone, lasting=lasting)
        votes |= {place: one.reason for place, one in won.items() if dated[place].rank == rank}
        long |= {place for place, one in won.items() if one.long and dated[place].rank == rank}
    votes |= {place: protected[snap.guid] for place, snap in enumerate(snapshots) if snap.guid in protected}
    verdicts = []
    for place, snap in enumerate(snapshots):
        date = dated.get(place, RankedSnapshot(0))
        witness = None if date.witness is None else snapshots[date.witness].name
        reason = votes.get(place, "no rule keeps it")
        verdicts.append(KeepDecision(snap, place in votes, reason, date.rank, witness, place in long))
    return keep_witnesses(verdicts)


def keep_witnesses(verdicts: Sequence[KeepDecision]) -> list[KeepDecision]:
    """The same verdicts, but the witness of each snapshot that stays is kept, and its own."""
    found = {verdict.snapshot.name: verdict for verdict in verdicts}
    for verdict in sorted(verdicts, key=lambda verdict: -verdict.rank):
        name, witness = verdict.snapshot.name, verdict.witness
        if found[name].keep and witness is not None and not found[witness].keep:
            reason = f"shows that @{verdict.snapshot.snapname} is dated wrongly, as it came later"
            found[witness] = replace(found[witness], keep=True, reason=reason)
    return list(found.values())


def order_by_prune(verdicts: Sequence[KeepDecision]) -> list[KeepDecision]:
    """The verdicts that select, in the order in which they are to go: the worst dated first, then the oldest.

    Pruning may end after any of them.
    """
    return sorted((verdict for verdict in verdicts if not verdict.keep), key=_turn)


def _turn(verdict: KeepDecision) -> tuple[int, int, int, int]:
    snap = verdict.snapshot
    return -verdict.rank, snap.createtxg, snap.creation, snap.guid


_Placed = tuple[int, Snapshot]  # a snapshot with its place in the list that was given


def _age(placed: _Placed) -> tuple[int, int, int]:
    snap = placed[1]
    return snap.createtxg, snap.creation, snap.guid


@dataclass(slots=True)
class _Vote:
    """Why the rules keep one snapshot, by the first of them in their order; ``long``: a LONG rule is among them."""

    reason: str
    long: bool = False


def _vote(
    newest_first: Sequence[_Placed], rules: KeepRules, now: float, zone: tzinfo, *, lasting: bool
) -> dict[int, _Vote]:
    """What the rules keep, by place."""
    if rules.empty:
        return {place: _Vote("no keep rules are set") for place, _ in newest_first}
    votes = {
        place: _Vote(f"matches {pattern}")
        for place, snap in newest_first
        if (pattern := rules.match(snap.snapname))
    }
    last = "the last one" if rules.last == 1 else f"one of the last {rules.last}"
    for place, _ in newest_first[: rules.last]:
        votes.setdefault(place, _Vote(last))
    if rules.within:
        within = f"made within the last {format_duration(rules.within)}"
        for place, snap in newest_first:
            if snap.creation >= now - rules.within:
                votes.setdefault(place, _Vote(within))
        older = (place for place, snap in newest_first if snap.creation < now - rules.within)
        if lasting and (first := next(older, None)) is not None:
            votes.setdefault(first, _Vote(f"stood when the last {format_duration(rules.within)} began"))
    _vote_periods(newest_first, rules, zone, votes)
    if newest_first:
        votes.setdefault(newest_first[0][0], _Vote("the newest"))
    return votes


def _vote_periods(
    newest_first: Sequence[_Placed], rules: KeepRules, zone: tzinfo, votes: dict[int, _Vote]
) -> None:
    """One walk from the newest back: the first snapshot seen of a period is its newest."""
    unfilled: list[tuple[_Period, int, set[Hashable]]] = [
        (period, count, set()) for period, count in _list_periods(rules) if count
    ]
    for place, snap in newest_first:
        if not unfilled:
            return
        local = datetime.fromtimestamp(snap.creation, zone)
        for entry in tuple(unfilled):
            period, count, seen = entry
            key = period.key(local)
            if key not in seen:
                seen.add(key)
                vote = votes.setdefault(place, _Vote(period.describe(local)))
                vote.long |= period.rule in LONG_RULES
                if len(seen) == count:
                    unfilled.remove(entry)


@dataclass(frozen=True, slots=True)
class _Period:
    """A rule by the calendar: ``key`` is equal for times in the same period, ``form`` names it (strftime) by when it
    began.
    """

    rule: str
    key: Callable[[datetime], Hashable]
    form: str
    begin: Callable[[datetime], datetime] = lambda local: local

    def describe(self, local: datetime) -> str:
        text = f"{self.rule} {self.begin(local).strftime(self.form)}"
        if self.rule == "hourly" and local.utcoffset() != local.replace(fold=1 - local.fold).utcoffset():
            text += local.strftime(" (UTC%z)")  # this hour comes twice
        return text


_PERIODS = (
    _Period("hourly", lambda local: (local.toordinal(), local.hour, local.utcoffset()), "%Y-%m-%d %H:00"),
    _Period("daily", lambda local: local.toordinal(), "%Y-%m-%d"),
    _Period("weekly", lambda local: local.isocalendar()[:2], "%G-W%V"),
    _Period("monthly", lambda local: (local.year, local.month), "%Y-%m"),
    _Period("yearly", lambda local: local.year, "%Y"),
)


def _list_periods(rules: KeepRules) -> list[tuple[_Period, int]]:
    """The periods that rules count, and how many of each."""
    own = [(_make_period(length), count) for length, count in sorted(rules.periods)]
    return [*own, *((period, getattr(rules, period.rule)) for period in _PERIODS)]


@lru_cache(maxsize=64)
def _make_period(length: int) -> _Period:
    """A period of so many seconds by the wall clock: what divides a day begins at midnight, a week on Monday."""

    def place(local: datetime) -> int:
        return ((local.toordinal() - 1) * DAY + local.hour * 3600 + local.minute * 60) // length

    def key(local: datetime) -> Hashable:
        # As of hours: those that come twice as the clock is put back are two.
        return place(local), local.utcoffset() if length < DAY else None

    def begin(local: datetime) -> datetime:
        return datetime.min + timedelta(seconds=place(local) * length)

    return _Period(f"every {format_duration(length)}:", key, "%Y-%m-%d %H:%M", begin)


DAY = 86400

LONG_RULES = frozenset({"weekly", "monthly", "yearly"})
"""The rules whose snapshots are held on a vault (vault_holds.py): what they keep is soon nowhere else."""


def list_period_ends(snapshots: Sequence[Snapshot], zone: tzinfo) -> list[Snapshot]:
    """The newest of each week, month and year among some snapshots of one dataset: no LONG rule keeps any other.

    That is so as long as all are of one rank (snapshot_dates.py). Their times are in zvault's form of name.
    """
    found: dict[Hashable, Snapshot] = {}
    for snap in sorted(snapshots, key=lambda snap: snap.createtxg):
        local = datetime.fromtimestamp(snap.creation, zone)
        found |= {(period.rule, period.key(local)): snap for period in _PERIODS if period.rule in LONG_RULES}
    return list({snap.guid: snap for snap in found.values()}.values())
