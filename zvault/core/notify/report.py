"""What a report tells of a period: how each backup and each vault fared in it, and how all is now. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Literal, get_args

from zvault.core.health.days import DaySummary
from zvault.core.health.verdict import VerdictLevel, select_worst_level

ReportEvery = Literal["weekly", "monthly"]
REPORT_PERIODS: tuple[ReportEvery, ...] = get_args(ReportEvery)

MADE_AFTER = timedelta(hours=6)
"""After the midnight that ends a period: in the night runs still end, and nobody reads."""


@dataclass(frozen=True, slots=True)
class ReportPeriod:
    """A whole week, from Monday, or a whole month: its days from ``first`` to ``last``, in seconds since the epoch."""

    every: ReportEvery
    first: date
    last: date
    begin: float
    end: float

    @property
    def name(self) -> str:
        """``November 2026``, ``16 to 22 November 2026``, ``30 November to 6 December 2026``."""
        if self.every == "monthly":
            return f"{self.first:%B %Y}"
        begin = f"{self.first.day}"
        if self.first.month != self.last.month:
            begin += f" {self.first:%B}"
        if self.first.year != self.last.year:
            begin += f" {self.first.year}"
        return f"{begin} to {self.last.day} {self.last:%B %Y}"


def find_last_period(every: ReportEvery, now: float, zone: tzinfo) -> ReportPeriod:
    """The last period of which a report is due by now."""
    today = (datetime.fromtimestamp(now, UTC).astimezone(zone).replace(tzinfo=None) - MADE_AFTER).date()
    if every == "weekly":
        after = today - timedelta(days=today.weekday())
        first = after - timedelta(days=7)
    else:
        after = today.replace(day=1)
        first = (after - timedelta(days=1)).replace(day=1)
    return ReportPeriod(
        every, first, after - timedelta(days=1), _midnight(first, zone), _midnight(after, zone)
    )


def _midnight(day: date, zone: tzinfo) -> float:
    return datetime.combine(day, time(), zone).timestamp()


def is_due(period: ReportPeriod, reported: float | None) -> bool:
    """True if a target that was told of all periods until ``reported`` is to be told of this one.

    One that is new is told of the first period that ends from then on.
    """
    return reported is not None and reported < period.end


def choose_reported_until(period: ReportPeriod, reported: float | None, now: float) -> float:
    """Until when a target counts as told, before it is told of this period: a clock may have been wrong."""
    return period.end if reported is None or reported > now else reported


@dataclass(frozen=True, slots=True)
class PeriodFigures:
    """A period in figures: runs that ended in it, those of them with a fault, bytes sent, days on which it was late.

    ``lag`` is the most that had passed, at any time of it, since the newest run without fault had begun.
    """

    runs: int = 0
    faults: int = 0
    bytes: int = 0
    late_days: int = 0
    lag: float | None = None


def sum_period(days: Iterable[DaySummary], period: ReportPeriod) -> PeriodFigures:
    """Add up the days of a period."""
    runs = faults = sent = late = 0
    lag: float | None = None
    for day in days:
        if period.first <= day.date <= period.last:
            runs, faults, sent = runs + day.runs, faults + day.faults, sent + day.bytes
            late += day.state in {"late", "very late"}
            if day.lag is not None:
                lag = max(day.lag, lag or 0.0)
    return PeriodFigures(runs, faults, sent, late, lag)


@dataclass(frozen=True, slots=True)
class BackupReport:
    """A backup: its period, and how it is now. ``proven``: when each level of verification last passed.

    One that makes snapshots only (``sends`` is false) has no lag. ``restore``: seconds that it takes to restore all of
    it; ``max_restore``: that it may.
    """

    name: str
    level: VerdictLevel
    state: str
    figures: PeriodFigures
    lag: float | None
    max_lag: float | None
    proven: tuple[tuple[str, float | None], ...] | None
    sends: bool = True
    restore: float | None = None
    max_restore: float | None = None


@dataclass(frozen=True, slots=True)
class VaultReport:
    """A vault now. ``sent``: bytes that its backups sent in the period; ``full_in``: seconds, at the pace of late.

    ``cost`` is in words: that of the month so far, and at this pace.
    """

    name: str
    level: VerdictLevel
    state: str
    size: int | None
    free: int | None
    sent: int
    full_in: float | None
    scrubbed: float | None
    damaged: int | None
    cost: str = ""


@dataclass(frozen=True, slots=True)
class NeededAction:
    """Something that needs a person: whose it is, and what is wrong, why, and what to do next."""

    whose: str
    level: VerdictLevel
    what: str
    why: str
    next: str


@dataclass(frozen=True, slots=True)
class PeriodReport:
    """All of it. ``since``: only runs from then on are known, where that is later than the period began."""

    period: ReportPeriod
    host: str
    made: float
    headlines: tuple[str, ...]
    needs: tuple[NeededAction, ...]
    backups: tuple[BackupReport, ...]
    vaults: tuple[VaultReport, ...]
    since: float | None = None

    @property
    def level(self) -> VerdictLevel:
        """The worst level of anything in it, as it is now."""
        both = *(one.level for one in self.backups), *(one.level for one in self.vaults)
        return select_worst_level((*both, *(one.level for one in self.needs)))
