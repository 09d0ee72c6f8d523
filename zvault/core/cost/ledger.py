"""What was asked of one object store, day by day, and what a month of it costs. Pure.

A store counts what its writers ask of it over all its life, whichever host they are on. So what a time asked is the
difference of two readings, however long nobody looked.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, date, datetime, timedelta, tzinfo

from zvault.core.cost.prices import BILLED_GIGABYTE, StorePrices

KEPT_DAYS = 400
"""Days remembered: a year, and the month that it began in."""

RECENT_DAYS = 7
"""Days, with today, whose pace a forecast goes on with: a week has its weekend."""

FORECAST_SPAN = 86400.0
"""Seconds that have to be known for a forecast: less has no night in it."""


@dataclass(frozen=True, slots=True)
class StoreReading:
    """A store at a time ``at``, in seconds since the epoch: what it was asked for in all its life, and what it holds.

    ``asked`` has requests by kind (put, get, list, delete), and the bytes they moved, as put_bytes and get_bytes.
    ``store`` is its uuid: another one is another store.
    """

    at: float
    store: str
    asked: Mapping[str, int]
    stored: int


@dataclass(frozen=True, slots=True)
class StoreUsage:
    """Requests of a time by kind, bytes put and had, and bytes stored times the seconds that they were."""

    put: int = 0
    get: int = 0
    list: int = 0
    delete: int = 0
    put_bytes: int = 0
    get_bytes: int = 0
    byte_seconds: float = 0.0

    def __add__(self, other: StoreUsage) -> StoreUsage:
        """Both together."""
        return StoreUsage(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


COUNTED_FIELDS = tuple(one.name for one in fields(StoreUsage) if one.name != "byte_seconds")


@dataclass(frozen=True, slots=True)
class Ledger:
    """The record of a store's requests: its newest reading, the figures of each day, and since when there are any."""

    reading: StoreReading
    since: float
    days: Mapping[date, StoreUsage] = field(default_factory=dict)

    def also(self, asked: Mapping[str, int], at: float, zone: tzinfo) -> Ledger:
        """The same with requests at a time that the store itself does not count: not by one of its writers."""
        day = find_day(at, zone)
        more = StoreUsage(**{kind: asked.get(kind, 0) for kind in COUNTED_FIELDS})
        return replace(self, days={**self.days, day: self.days.get(day, StoreUsage()) + more})

    def read(self, now: StoreReading, zone: tzinfo) -> Ledger:
        """The same with a newer reading. What another store, or one that went back, was asked for is not known."""
        if now.store != self.reading.store:
            return replace(self, reading=now)
        days = dict(self.days)
        grown = {kind: now.asked.get(kind, 0) - self.reading.asked.get(kind, 0) for kind in COUNTED_FIELDS}
        today = find_day(now.at, zone)
        if min(grown.values()) >= 0:
            days[today] = days.get(today, StoreUsage()) + StoreUsage(**grown)
        oldest = today - timedelta(days=KEPT_DAYS)
        for day, seconds in _split(max(self.reading.at, _begin(oldest, zone)), now.at, zone):
            days[day] = days.get(day, StoreUsage()) + StoreUsage(byte_seconds=self.reading.stored * seconds)
        kept = {day: asked for day, asked in sorted(days.items()) if day >= oldest}
        return Ledger(now, self.since, kept)

    def still(self, now: float, zone: tzinfo) -> Ledger:
        """The same at a time at which nobody served it, as far as this host knows: it holds what it held."""
        return self.read(replace(self.reading, at=max(now, self.reading.at)), zone)

    def month(self, now: float, zone: tzinfo) -> StoreUsage:
        """All of this month so far."""
        today = find_day(now, zone)
        return sum((it for day, it in self.days.items() if _month(day) == _month(today)), StoreUsage())

    def cost(self, now: float, zone: tzinfo, prices: StorePrices) -> float:
        """Return the cost of this month so far."""
        today = find_day(now, zone)
        return sum(_cost(day, it, prices) for day, it in self.days.items() if _month(day) == _month(today))

    def forecast(self, now: float, zone: tzinfo, prices: StorePrices) -> float | None:
        """Return the cost of the whole month, at the pace of the last days; None where too little is known for that."""
        today = find_day(now, zone)
        first = today - timedelta(days=RECENT_DAYS - 1)
        known = now - max(self.since, _begin(first, zone))
        if known < FORECAST_SPAN:
            return None
        recent = sum(_cost(day, it, prices) for day, it in self.days.items() if first <= day <= today)
        after = (today.replace(day=1) + timedelta(days=31)).replace(day=1)
        left = max(0.0, _begin(after, zone) - now)
        return self.cost(now, zone, prices) + recent / known * left


def start_ledger(reading: StoreReading) -> Ledger:
    """Return the ledger of a store that is seen for the first time: what it was asked for before is nobody's month."""
    return Ledger(reading, reading.at)


def find_day(at: float, zone: tzinfo) -> date:
    """The day that a time is on."""
    return datetime.fromtimestamp(at, UTC).astimezone(zone).date()


def find_month_start(at: float, zone: tzinfo) -> float:
    """Return the beginning of the month that a time lies in, in seconds since the epoch."""
    return _begin(find_day(at, zone).replace(day=1), zone)


def _begin(day: date, zone: tzinfo) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=zone).timestamp()


def _split(begin: float, end: float, zone: tzinfo) -> Iterator[tuple[date, float]]:
    """The seconds of a time on each of its days."""
    while begin < end:
        day = find_day(begin, zone)
        until = min(end, max(_begin(day + timedelta(days=1), zone), begin + 1))
        yield day, until - begin
        begin = until


def _month(day: date) -> tuple[int, int]:
    return day.year, day.month


def _cost(day: date, asked: StoreUsage, prices: StorePrices) -> float:
    month = monthrange(day.year, day.month)[1] * 86400
    return (
        prices.of_requests(asked.put + asked.list, asked.get)
        + asked.byte_seconds / BILLED_GIGABYTE / month * prices.stored
        + asked.get_bytes / BILLED_GIGABYTE * prices.download
    )
