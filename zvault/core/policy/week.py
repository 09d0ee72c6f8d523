"""What is due in the days to come, by a schedule. Pure."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import NamedTuple

from zvault.core.policy.cron_schedule import CronSchedule, ScheduleInterval, describe_schedule, find_next_time

WEEK_DAYS = 7

MOST_NAMED_TIMES = 3
"""Times of a day that are named one by one; for more of them words say when."""


class DueDay(NamedTuple):
    """A day, and its times (seconds since the epoch) where they are few; else ``words`` say when."""

    date: date
    times: tuple[float, ...]
    words: str = ""


def list_week(
    schedule: CronSchedule | ScheduleInterval, first: float, now: float, zone: tzinfo
) -> tuple[DueDay, ...]:
    """The days on which a schedule is due, from today on, where ``first`` is when it is due next."""
    today = datetime.fromtimestamp(now, UTC).astimezone(zone).date()
    dates = [today + timedelta(days=one) for one in range(WEEK_DAYS)]
    if _many(schedule):
        begins = _local(first, zone).date()
        return tuple(
            DueDay(one, (), describe_schedule(schedule))
            for one in dates
            if one >= begins and _on(schedule, one)
        )
    found: dict[date, list[float]] = {}
    at = max(first, now)
    while (local := _local(at, zone)).date() <= dates[-1]:
        found.setdefault(local.date(), []).append(at)
        at = (
            at + schedule.seconds
            if isinstance(schedule, ScheduleInterval)
            else find_next_time(schedule, local, zone).timestamp()
        )
    return tuple(DueDay(day, tuple(times)) for day, times in found.items())


def _many(schedule: CronSchedule | ScheduleInterval) -> bool:
    if isinstance(schedule, ScheduleInterval):
        return schedule.seconds * MOST_NAMED_TIMES < 86400
    times = schedule.times()
    return len(times.minutes) * len(times.hours) > MOST_NAMED_TIMES


def _on(schedule: CronSchedule | ScheduleInterval, day: date) -> bool:
    if isinstance(schedule, ScheduleInterval):
        return True
    times = schedule.times()
    return day.month in times.months and day.day in times.days and day.weekday() in times.weekdays


def _local(when: float, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(when, UTC).astimezone(zone)
