"""What a month should bring, worked out from the documentation alone: when a schedule is due, and what is kept.

Nothing here is zvault's code, nor what it is made from (zoneinfo, APScheduler). Times are seconds since the epoch.
"""

from __future__ import annotations

import calendar
import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

HOUR, DAY = 3600, 86400

SPRING = calendar.timegm((2027, 3, 28, 1, 0, 0))
"""Europe/Berlin puts the clock forward: 02:00 becomes 03:00."""

AUTUMN = calendar.timegm((2027, 10, 31, 1, 0, 0))
"""Europe/Berlin puts the clock back: 03:00 becomes 02:00."""


def offset(moment: float) -> int:
    """Seconds that Berlin's clock is ahead of UTC in the year 2027."""
    return 2 * HOUR if SPRING <= moment < AUTUMN else HOUR


def berlin(month: int, day: int, hour: int, minute: int, second: int = 0, *, again: bool = False) -> int:
    """A moment of 2027 by Berlin's clock; ``again``: the second time, in the hour that comes twice."""
    wall = calendar.timegm((2027, month, day, hour, minute, second))
    found = [wall - ahead for ahead in (2 * HOUR, HOUR) if offset(wall - ahead) == ahead]
    return found[-1 if again else 0]


def told(moment: float) -> str:
    """A moment by Berlin's clock, for messages."""
    wall = time.strftime("%a %m-%d %H:%M:%S", time.gmtime(moment + offset(moment)))
    return f"{wall} (UTC+{offset(moment) // HOUR})"


@dataclass(frozen=True)
class Calendar:
    """A schedule: at these minutes, of these hours, on these weekdays (Monday is 0)."""

    text: str
    minutes: Collection[int]
    hours: Collection[int] = range(24)
    weekdays: Collection[int] = range(7)

    def _matches(self, wall: float) -> bool:
        at = time.gmtime(wall)
        return at.tm_min in self.minutes and at.tm_hour in self.hours and at.tm_wday in self.weekdays

    def _is_due(self, minute: int) -> bool:
        """When the clock is put forward, what was skipped runs an hour later by the clock; when it is put back, only
        what runs in every hour runs in the same hour again.
        """
        skipped = SPRING <= minute < SPRING + HOUR and self._matches(minute + HOUR)
        again = AUTUMN <= minute < AUTUMN + HOUR and len(self.hours) < 24
        return skipped or (self._matches(minute + offset(minute)) and not again)

    def first_after(self, moment: float) -> int:
        """The first minute after a moment at which it is due."""
        minute = (int(moment) // 60 + 1) * 60
        while not self._is_due(minute):
            minute += 60
        return minute

    def missed(self, since: float, until: float, *, most: int = 2) -> list[int]:
        """The first of its times after ``since`` and up to ``until``."""
        found: list[int] = []
        while len(found) < most and (since := self.first_after(since)) <= until:
            found.append(int(since))
        return found


def _period(rule: str, moment: int) -> tuple[int, ...]:
    """What two moments have in common that are in the same hour, day, week or month by Berlin's clock."""
    wall = moment + offset(moment)
    at = time.gmtime(wall)
    match rule:
        case "hourly":
            return (moment // HOUR,)
        case "daily":
            return (wall // DAY,)
        case "weekly":
            return (wall // DAY - at.tm_wday,)
    assert rule == "monthly", rule
    return at.tm_year, at.tm_mon


def wanted(moments: Collection[int], rules: Mapping[str, int], now: float) -> set[int]:
    """The snapshots that some rule keeps; ``within`` is in seconds. Without a rule that is all."""
    if not rules:
        return set(moments)
    return {one for one in moments if any(_keeps(rule, n, one, moments, now) for rule, n in rules.items())}


def _keeps(rule: str, number: int, one: int, moments: Collection[int], now: float) -> bool:
    later = [other for other in moments if other > one]
    if rule == "last":
        return len(later) < number
    if rule == "within":
        return one >= now - number
    mine = _period(rule, one)
    periods = {_period(rule, other) for other in later}
    return mine not in periods and len(periods) < number


@dataclass(frozen=True)
class Pruned:
    """What a side has after it was pruned, and how many more no rule keeps that prune_limit held back."""

    left: list[int]
    held_back: int


def pruned(
    before: Collection[int],
    arrived: Collection[int],
    rules: Mapping[str, int],
    now: float,
    *,
    needed: Collection[int] = (),
    share: float = 0.5,
) -> Pruned:
    """A side with ``before`` and what ``arrived`` in the run, pruned. ``needed`` stays whatever the rules say.

    Of what was there before, a share may go in one run, and three in any case, the oldest first.
    """
    there: Sequence[int] = sorted({*before, *arrived})
    stays = wanted(there, rules, now) | set(needed) | {there[-1]}
    unwanted = [one for one in there if one not in stays]
    limited = [one for one in unwanted if one not in arrived]
    allowed = max(3, math.floor(share * len(set(before))))
    gone = {*limited[:allowed], *(one for one in unwanted if one in arrived)}
    return Pruned([one for one in there if one not in gone], len(limited[allowed:]))
