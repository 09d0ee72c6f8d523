"""When a schedule comes next on the wall clock of a time zone.

APScheduler's own CronTrigger is not used for this: where the clock is put forward it leaves out the next midnight
(3.11.3; issues 529 and 606 there), and with it a whole day, week or month of backups.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from zvault.core.schedule import Cron, Times

_DAY = timedelta(days=1)
_FARTHEST = 8 * 366 + 2  # days from one 29 February to the next, across a year such as 2100


def next_time(cron: Cron, after: datetime, zone: tzinfo) -> datetime:
    """The first time later than ``after`` (aware) at which ``cron`` is due, in ``zone``.

    No time is lost to a clock that is put forward: 02:30 comes an hour later then, at 03:30. Where the clock is
    put back, a schedule for every hour runs in both hours, and any other at the first 02:30 only.
    """
    times = cron.times()
    since = after.astimezone(UTC)
    best: datetime | None = None
    # A time that was left out yesterday may come today.
    day = after.astimezone(zone).date() - _DAY
    for _ in range(_FARTHEST):
        found = min((instant for instant in _instants(times, day, zone) if instant > since), default=None)
        if best is not None:  # the day after counts too: a clock put back at midnight makes them overlap
            return min(best, found or best).astimezone(zone)
        best = found
        day += _DAY
    raise ValueError(f"the schedule {cron.text or cron} never comes")


def _instants(times: Times, day: date, zone: tzinfo) -> Iterator[datetime]:
    """The instants (UTC) at which one day's times come."""
    if day.month not in times.months or day.day not in times.days or day.weekday() not in times.weekdays:
        return
    every_hour = len(times.hours) == 24
    for hour in times.hours:
        for minute in times.minutes:
            wall = datetime.combine(day, time(hour, minute), zone)
            first = wall.astimezone(UTC)
            yield first
            # In a gap fold=1 is the earlier instant, in an overlap the later one (PEP 495).
            if every_hour and (second := wall.replace(fold=1).astimezone(UTC)) > first:
                yield second
