"""The days of a backup's past, by its runs: each day's worst state, its lag, and what was sent. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Literal, get_args

from zvault.core.health.backup import FAR_BEHIND_FACTOR
from zvault.core.health.verdict import VerdictLevel

DayState = Literal["no run", "ok", "interrupted", "partial", "failed", "late", "very late"]
DAY_STATES: tuple[DayState, ...] = get_args(DayState)
"""From good to bad. A day without a run is no good day, and nothing bad is known of it either."""

STATE_LEVELS: dict[DayState, VerdictLevel] = {
    "no run": "unknown",
    "ok": "ok",
    "interrupted": "warning",
    "partial": "warning",
    "failed": "warning",
    "late": "warning",
    "very late": "critical",
}

MOST_DAYS = 366
"""Days that are told of at most."""


@dataclass(frozen=True, slots=True)
class PastRun:
    """A run that ended, in seconds since the epoch, and the bytes it sent."""

    started: float
    ended: float
    result: str
    bytes: int


@dataclass(slots=True)
class DaySummary:
    """A day: its ``runs`` that ended, the ``faults`` among them, bytes sent and seconds of these runs.

    ``lag`` is the most that had passed, at any time of the day, since the newest run without a fault had begun; None
    where none is known. A pool was not asked for it then: it is what the runs tell.
    """

    date: date
    state: DayState = "no run"
    runs: int = 0
    faults: int = 0
    bytes: int = 0
    seconds: float = 0.0
    lag: float | None = None
    results: set[str] = field(default_factory=set)

    @property
    def level(self) -> VerdictLevel:
        return STATE_LEVELS[self.state]


def summarize_days(
    runs: Iterable[PastRun], now: float, zone: tzinfo, max_lag: float | None = None
) -> tuple[DaySummary, ...]:
    """The days from the first known run until today, in order, a year of them at most."""
    ended = sorted((run for run in runs if run.ended <= now), key=lambda run: run.ended)
    if not ended:
        return ()
    today = _date(now, zone)
    first = max(_date(ended[0].ended, zone), today - timedelta(days=MOST_DAYS - 1))
    found = {one: DaySummary(one) for one in _dates(min(first, today), today)}
    newest: float | None = None
    waiting = list(reversed(ended))
    for day in found.values():
        until = min(now, _midnight(day.date + timedelta(days=1), zone))
        while waiting and (waiting[-1].ended < until or until == now):
            newest = _count(waiting.pop(), found, newest, zone)
        if newest is not None:
            day.lag = max(day.lag or 0.0, until - newest)
        day.state = _state(day, max_lag)
    return tuple(found.values())


def _count(run: PastRun, found: dict[date, DaySummary], newest: float | None, zone: tzinfo) -> float | None:
    """Count a run to its day; the beginning of the newest run without fault so far comes back."""
    day = found.get(_date(run.ended, zone))
    if day is not None:
        day.runs += 1
        day.faults += run.result != "ok"
        day.results.add(run.result)
        day.bytes += run.bytes
        day.seconds += max(0.0, run.ended - run.started)
        if newest is not None:
            day.lag = max(day.lag or 0.0, run.ended - newest)
    if run.result != "ok":
        return newest
    begun = min(run.started, run.ended)
    return begun if newest is None else max(newest, begun)


def _state(day: DaySummary, max_lag: float | None) -> DayState:
    found: list[DayState] = [one for one in DAY_STATES if one in day.results]
    if max_lag is not None and day.lag is not None and day.lag > max_lag:
        found.append("very late" if day.lag > FAR_BEHIND_FACTOR * max_lag else "late")
    return max(found, key=DAY_STATES.index, default="no run")


def merge_days(several: Sequence[Sequence[DaySummary]]) -> tuple[DaySummary, ...]:
    """The days of several backups as one: each day's worst state, the sums, and the largest lag."""
    found: dict[date, DaySummary] = {}
    for one in sorted((day for its in several for day in its), key=lambda day: day.date):
        day = found.setdefault(one.date, DaySummary(one.date))
        day.state = max(day.state, one.state, key=DAY_STATES.index)
        day.runs, day.faults, day.bytes = day.runs + one.runs, day.faults + one.faults, day.bytes + one.bytes
        day.seconds += one.seconds
        day.lag = max((lag for lag in (day.lag, one.lag) if lag is not None), default=None)
    return tuple(found.values())


def _date(when: float, zone: tzinfo) -> date:
    return datetime.fromtimestamp(when, UTC).astimezone(zone).date()


def _midnight(day: date, zone: tzinfo) -> float:
    return datetime.combine(day, time(), zone).timestamp()


def _dates(first: date, last: date) -> Iterable[date]:
    return (first + timedelta(days=one) for one in range((last - first).days + 1))
