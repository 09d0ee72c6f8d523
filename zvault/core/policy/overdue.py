"""How many of its times a schedule has missed, and from when on a backup is overdue by that. Pure.

A missed run (a time that passed while zvaultd did not run, or the host slept) is made up for by daemon/scheduler.py.
"""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo

from zvault.core.policy.cron_schedule import CronSchedule, ScheduleInterval, find_next_time


def count_missed_times(
    schedule: CronSchedule | ScheduleInterval, since: datetime, now: datetime, zone: tzinfo, *, most: int = 3
) -> int:
    """Count the times of a schedule that have come after ``since`` and until ``now``, counted up to ``most``.

    A snapshot is named for the second in which it was made, so a time within the second of ``since`` is not after it.
    """
    if isinstance(schedule, ScheduleInterval):
        return max(0, min(most, int((now - since).total_seconds() // schedule.seconds)))
    count, last = 0, since + timedelta(seconds=1, microseconds=-1)
    while count < most and (last := find_next_time(schedule, last, zone)) <= now:
        count += 1
    return count


def has_missed_time(
    schedule: CronSchedule | ScheduleInterval, last: datetime | None, now: datetime, zone: tzinfo
) -> bool:
    """True if a time of the schedule has passed since ``last``; a backup that never ran is due."""
    return last is None or count_missed_times(schedule, last, now, zone, most=1) > 0


def is_overdue(missed: int, *, at_work: bool, began: bool) -> bool:
    """True if a backup is unwell that has missed so many of its times since what it last put on its vault.

    A run under way may still make up for the last of them; the first run of all may take as long as it does. ``began``:
    whether any run ever put anything there.
    """
    if at_work:
        return began and missed > 2
    return missed >= 2
