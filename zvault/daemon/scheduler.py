"""When backups run, or make snapshots: APScheduler's triggers, plus what it lacks for a host that sleeps and wakes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from typing import Any

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.interval import IntervalTrigger

from zvault.config.schema import Backup
from zvault.core.errors import ZvaultError
from zvault.core.policy.cron_schedule import CronSchedule, ScheduleInterval, find_next_time
from zvault.core.policy.overdue import has_missed_time
from zvault.core.units import format_duration
from zvault.ops.context import Context

TICK = 15.0
"""Seconds between looks at the wall clock: APScheduler sleeps on the monotonic clock, which stands still in suspend."""

SET_BACK = 15.0
"""Seconds the clock must have gone back for schedules to be counted anew; for less it is not worth a listing."""

BEHIND_FOR = 86400.0
"""Seconds for which it is told that the clock was set back: one that was wrong by years may be right now."""

PROMPT = 10.0
"""Seconds that all schedules wait together for what has to be listed first."""

log = logging.getLogger(__name__)


class CalendarTrigger(BaseTrigger):  # type: ignore[misc]
    """Fires at a calendar schedule's times, also across clock changes.

    APScheduler's own CronTrigger skips a time after spring's clock change: a day of ``daily``, a month of
    ``monthly`` (its issues 529 and 606).
    """

    def __init__(self, cron: CronSchedule, zone: tzinfo) -> None:
        self.cron = cron
        self.zone = zone

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime:
        """The first time after ``previous``, but none of those that passed before ``now``: they count as one."""
        after = max(previous, now) if previous else now - timedelta(microseconds=1)
        return find_next_time(self.cron, after, self.zone)


@dataclass(eq=False)
class LastRunQuery:
    """The question when a backup last ran, of the source and vault (``way``) that it had as it was asked."""

    backup: Backup
    way: str
    task: asyncio.Task[datetime | None]


Timetable = CronSchedule | ScheduleInterval


def get_run_times(backup: Backup) -> Timetable | None:
    """Return when a backup runs; None by hand only."""
    return backup.every or backup.schedule


def get_snapshot_times(backup: Backup) -> Timetable | None:
    """Return when a backup makes snapshots apart from its runs; None where it does not, or another vault's does."""
    return backup.snapshot.timetable if backup.speaks_for_source else None


class BackupScheduler:
    """Calls ``due(backup, trigger)`` when a backup's time has come, and once for any number of missed times.

    ``last_run`` tells when a backup last did what is due; None where it never did, or nobody knows. ``times`` gives the
    timetable of a backup: that of its runs, or that of its snapshots. The scheduler of each knows nothing of the other.
    """

    def __init__(
        self,
        context: Context,
        due: Callable[[str, str], object],
        last_run: Callable[[Backup], Coroutine[Any, Any, datetime | None]],
        times: Callable[[Backup], Timetable | None] = get_run_times,
    ) -> None:
        self.context = context
        self.due = due
        self.last_run = last_run
        self.times = times
        self._scheduler = AsyncIOScheduler(timezone=UTC)
        self._tick: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._stopped = False
        self._asked: dict[str, LastRunQuery] = {}
        """Of those backups of which it is not known yet when they last ran."""
        self._before: tuple[float, float] | None = None
        """When the clock was set back (monotonic), and what it showed before (seconds since the epoch)."""

    async def start(self) -> None:
        """Schedule every backup; one whose time passed while the daemon was down is due at once."""
        self._scheduler.start()
        self._tick = asyncio.create_task(self._watch_the_clock())
        await self.reschedule()

    async def reschedule(self) -> None:
        """Take over the configured schedules. The old ones hold until it is known when each backup ran last.

        Of whom that is not known after PROMPT seconds follows by itself once it is: a source that does not answer, or
        is listed for minutes, keeps no other backup waiting, nor the daemon from being ready.
        """
        async with self._turn:
            await self._reschedule()

    async def catch_up(self, backups: Collection[str]) -> None:
        """Have those of some backups run now of which a time has passed since they ran last."""
        async with self._turn:
            await self._reschedule(backups)

    async def _reschedule(self, only: Collection[str] | None = None) -> None:
        if self._stopped:
            return
        timed = {name: b for name, b in self.context.env.config.backup.items() if self.times(b) is not None}
        self._forget_but(timed)
        # All at once: each may be on a host that does not answer for a while.
        for name, backup in timed.items():
            if name not in self._asked and (only is None or name in only):
                task = asyncio.create_task(self.last_run(backup))
                self._asked[name] = asked = LastRunQuery(backup, self.context.env.way(backup), task)
                task.add_done_callback(partial(self._now_known, asked))
        if self._asked:
            await asyncio.wait([one.task for one in self._asked.values()], timeout=PROMPT)
        if self._asked:
            log.warning(
                "scheduled once it is known when they last ran, which takes long: %s", ", ".join(self._asked)
            )

    def _now_known(self, asked: LastRunQuery, _: object) -> None:
        """Schedule a backup of which it is known now when it last ran, unless it is another by now."""
        name = asked.backup.name
        if self._asked.get(name) is not asked:
            return
        del self._asked[name]
        if asked.task.cancelled() or not self._in_force(asked):
            return
        if error := asked.task.exception():
            log.error("cannot tell when %s last ran", name, exc_info=error, extra={"BACKUP": name})
        self._schedule(asked.backup, asked.task.result() if error is None else None)

    def _in_force(self, asked: LastRunQuery) -> bool:
        now = self.context.env.config.backup.get(asked.backup.name)
        return now is not None and now == asked.backup and self.context.env.way(now) == asked.way

    def asks(self, name: str) -> bool:
        """True if it is not known yet when a backup last ran, so it may be due at once."""
        return name in self._asked

    def _forget_but(self, timed: Mapping[str, Backup]) -> None:
        """Drop the schedules of other backups, and what is asked of one that was another."""
        for name, one in list(self._asked.items()):
            if name not in timed or not self._in_force(one):
                del self._asked[name]
                one.task.cancel()
        for job in self._scheduler.get_jobs():
            if job.id not in timed:
                job.remove()

    def _schedule(self, backup: Backup, last: datetime | None) -> None:
        """Have a backup run when its time comes, and now where it has passed since ``last``."""
        times = self.times(backup)
        if times is None or self._stopped:
            return
        env = self.context.env
        # An interval counts from the run that catches up.
        late = has_missed_time(times, last, env.clock.now(), env.zone)
        trigger = self._trigger(times, None if late else last)
        self._scheduler.add_job(
            self._on_time,
            trigger,
            args=[backup.name],
            id=backup.name,
            misfire_grace_time=None,
            coalesce=True,
            max_instances=1,
            replace_existing=True,
        )
        if late:
            self._fire(backup.name, "catch-up")

    def _trigger(self, times: Timetable, last: datetime | None) -> BaseTrigger:
        if isinstance(times, ScheduleInterval):
            start = (last or self.context.env.clock.now()) + timedelta(seconds=times.seconds)
            return IntervalTrigger(seconds=times.seconds, start_date=start, timezone=UTC)
        return CalendarTrigger(times, self.context.env.zone)

    async def _on_time(self, name: str) -> None:
        # A coroutine, because APScheduler runs plain functions in threads.
        self._fire(name, "schedule")

    def _fire(self, name: str, trigger: str) -> None:
        try:
            self.due(name, trigger)
        except ZvaultError as error:
            log.warning("%s", error, extra={"BACKUP": name})

    async def _watch_the_clock(self) -> None:
        while True:
            before = self._ahead()
            await asyncio.sleep(TICK)
            back = before - self._ahead()
            if back > SET_BACK:
                self._before = self.context.env.clock.monotonic(), self.context.env.clock.time() + back
                if (
                    self.times is get_run_times
                ):  # the scheduler of snapshots sees the same, and need not say so too
                    log.warning(
                        "the clock was set back by %s: schedules go by it from now on", format_duration(back)
                    )
                await self.reschedule()
            self._scheduler.wakeup()

    def _ahead(self) -> float:
        """The wall clock less the monotonic one: it grows with each suspend, and shrinks only when it is set back."""
        return self.context.env.clock.time() - self.context.env.clock.monotonic()

    def behind(self) -> float:
        """Seconds by which the clock, which was set back, is behind of where it was; 0 after a day in any case."""
        if self._before is None or self.context.env.clock.monotonic() - self._before[0] > BEHIND_FOR:
            return 0.0
        return max(0.0, self._before[1] - self.context.env.clock.time())

    def next_run(self, name: str) -> float | None:
        """Return when a backup is due next, in seconds since the epoch; None when it runs only by hand, or it is not
        known yet when it last ran.
        """
        job = self._scheduler.get_job(name)
        return job.next_run_time.timestamp() if job is not None and job.next_run_time else None

    def stop(self) -> None:
        """Stop: no run starts on schedule any more."""
        self._stopped = True
        self._forget_but({})
        if self._tick is not None:
            self._tick.cancel()
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
