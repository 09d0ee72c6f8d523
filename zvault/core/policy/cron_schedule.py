"""Schedules of a backup: ``schedule`` (a calendar word or cron), ``every`` (a fixed interval), and the next run time.

The words are those of systemd.time(7), where a week begins on Monday. Cron means the five fields of crontab(5). Both
become fields of APScheduler's CronTrigger. It counts weekdays from Monday and cron counts from Sunday, so weekdays are
written as names. Parsers raise ValueError with a hint what to write instead.

zvault computes the next time itself. When the clock is put forward, APScheduler's CronTrigger skips the next midnight
(3.11.3; its issues 529 and 606), and with it a whole day, week or month of backups.

cronsim (2.6) also differs when the clock changes. In Europe/Berlin, on the day the clock is put forward,
"*/30 2 * * *" does not run at all and "30 2 * * *" runs at 03:00 instead of 03:30. On the day the clock is put back,
the next time after the second 02:10 is a 02:30 that has passed. cronsim also accepts syntax that crontab(5) does not
have ("L", "MON#2") and restrictions on both days at once, so this parser would still be needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from itertools import pairwise

from zvault.core.units import parse_duration

_MINUTES, _HOURS, _DAYS, _MONTHS = range(60), range(24), range(1, 32), range(1, 13)
_WEEKDAYS = range(7)  # Monday is 0, as in APScheduler
_LONGEST_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_LONGEST_EVERY = 3660 * 86400.0

WEEKDAY_NAMES = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


@dataclass(frozen=True, slots=True)
class ScheduleInterval:
    """A fixed interval of ``seconds``. ``text`` is the text in the configuration."""

    seconds: float
    text: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class CalendarFields:
    """The sets of numbers that a calendar schedule matches; Monday is weekday 0."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]


@dataclass(frozen=True, slots=True)
class CronSchedule:
    """Wall clock times that match every field; fields are in APScheduler's syntax.

    ``text`` is the text in the configuration.
    """

    minute: str
    hour: str
    day: str
    month: str
    day_of_week: str
    text: str = field(default="", compare=False)

    def times(self) -> CalendarFields:
        """The numbers that the fields match."""
        return CalendarFields(
            frozenset(_parse_field("minute", self.minute, _MINUTES)),
            frozenset(_parse_field("hour", self.hour, _HOURS)),
            frozenset(_parse_field("day of the month", self.day, _DAYS)),
            frozenset(_parse_field("month", self.month, _MONTHS, MONTH_NAMES)),
            frozenset(_parse_field("day of the week", self.day_of_week, _WEEKDAYS, WEEKDAY_NAMES)),
        )

    def fields(self) -> dict[str, str]:
        """The keyword arguments of APScheduler's CronTrigger."""
        return {
            "minute": self.minute,
            "hour": self.hour,
            "day": self.day,
            "month": self.month,
            "day_of_week": self.day_of_week,
        }


_WORDS = {
    "minutely": CronSchedule("*", "*", "*", "*", "*"),
    "hourly": CronSchedule("0", "*", "*", "*", "*"),
    "daily": CronSchedule("0", "0", "*", "*", "*"),
    "weekly": CronSchedule("0", "0", "*", "*", "mon"),
    "monthly": CronSchedule("0", "0", "1", "*", "*"),
    "quarterly": CronSchedule("0", "0", "1", "*/3", "*"),
    "semiannually": CronSchedule("0", "0", "1", "*/6", "*"),
    "yearly": CronSchedule("0", "0", "1", "1", "*"),
}
_WORD_OF = {cron: word for word, cron in _WORDS.items()}
_SYNONYMS = {"annually": "yearly", "semi-annually": "semiannually"}


def parse_every(text: str) -> ScheduleInterval:
    """An interval such as ``15m``: at least a second, because snapshot names have a resolution of a second."""
    if text in _WORDS or len(text.split()) == 5:
        raise ValueError(
            f'{text!r} is not a duration: by the clock, write schedule = "{text}" in place of every'
        )
    seconds = parse_duration(text)
    if not 1 <= seconds <= _LONGEST_EVERY:
        raise ValueError(f"every = {text!r} is out of range: at least 1s and at most ten years")
    return ScheduleInterval(seconds, text)


def parse_schedule(text: str) -> CronSchedule:
    """A calendar word (``hourly``) or five cron fields (``30 2 * * mon-fri``).

    If both days are restricted, cron runs when the day of the month *or* the day of the week matches, and
    CronTrigger only when both match. Hardly anybody wants cron's rule, so zvault refuses restrictions on both.
    """
    words = text.split()
    if len(words) == 1:
        return _parse_word(words[0], text)
    if len(words) != 5:
        if re.search(r"\d\d?:\d\d", text):
            raise ValueError(
                f"schedule = {text!r} is a time as systemd.time(7) has it: write the five fields of cron (minute hour"
                ' day-of-month month day-of-week), as in "30 2 * * *" for 02:30 each day'
            )
        raise ValueError(
            f"schedule = {text!r} has {len(words)} fields: write one of {', '.join(_WORDS)},"
            " or the five fields of cron (minute hour day-of-month month day-of-week)"
        )
    minutes = _parse_field("minute", words[0], _MINUTES)
    hours = _parse_field("hour", words[1], _HOURS)
    days = _parse_field("day of the month", words[2], _DAYS)
    months = _parse_field("month", words[3], _MONTHS, MONTH_NAMES)
    weekdays = _parse_weekdays(words[4])
    if words[2] != "*" and words[4] != "*":
        raise ValueError(
            f"schedule = {text!r} restricts both the day of the month and the day of the week; cron would run"
            " when either matches. Leave one of them '*', or make two backups"
        )
    if not any(_LONGEST_MONTH[month - 1] >= min(days) for month in months):
        raise ValueError(f"schedule = {text!r} never comes: no such month has a day {min(days)}")
    return CronSchedule(
        _write(minutes, _MINUTES),
        _write(hours, _HOURS),
        _write(days, _DAYS),
        _write(months, _MONTHS),
        _write_weekdays(weekdays),
        text,
    )


def _parse_word(word: str, text: str) -> CronSchedule:
    name = _SYNONYMS.get(word.lower(), word.lower())
    if name in _WORDS:
        return CronSchedule(**_WORDS[name].fields(), text=text)
    bare = name.removeprefix("@")
    hint = f"write {bare!r}" if bare in _WORDS else f"write one of {', '.join(_WORDS)}, or five cron fields"
    raise ValueError(f'schedule = {text!r} is not known: {hint}; an interval is written as every = "15m"')


_ITEM = re.compile(r"(?:(\*)|([0-9A-Za-z]+)(?:-([0-9A-Za-z]+))?)(?:/([0-9]+))?")


def _parse_field(what: str, text: str, span: range, names: tuple[str, ...] = ()) -> set[int]:
    """The values that a cron field matches: ``*``, ``a``, ``a-b``, ``*/n``, ``a-b/n`` and lists of them."""
    values: set[int] = set()
    for item in text.split(","):
        match = _ITEM.fullmatch(item)
        if match is None:
            raise ValueError(
                f"the {what} {item!r} is not of the form *, 5, 1-5, */15 or 10-50/20, with commas between"
            )
        star, first_text, last_text, step_text = match.groups()
        if star:
            first, last = span[0], span[-1]
        else:
            first = _parse_value(what, first_text, span, names)
            last = _parse_value(what, last_text, span, names) if last_text else first
            if step_text and not last_text:
                raise ValueError(
                    f"the {what} {item!r} steps from one value: write {first}-{span[-1]}/{step_text}"
                )
        if last < first:
            raise ValueError(f"the {what} {item!r} runs backwards: write {first}-{span[-1]},{span[0]}-{last}")
        step = int(step_text) if step_text else 1
        if step == 0:
            raise ValueError(f"the {what} {item!r} has a step of 0")
        values.update(range(first, last + 1, step))
    return values


def _parse_value(what: str, text: str, span: range, names: tuple[str, ...]) -> int:
    if text.lower() in names:
        return names.index(text.lower()) + span[0]
    if not text.isdigit() or int(text) not in span:
        known = f"{span[0]} to {span[-1]}" + (f" or {names[0]} to {names[-1]}" if names else "")
        raise ValueError(f"the {what} {text!r} is not {known}")
    return int(text)


def _parse_weekdays(text: str) -> set[int]:
    """Cron's weekdays, in which Sunday is 0 and 7, converted to weekdays counted from Monday."""
    # "fri-sun" is common: a range that ends on Sunday ends at cron's 7.
    cron = re.sub(r"(?<!sun)-sun\b", "-7", text.lower())
    from_sunday = _parse_field("day of the week", cron, range(8), _CRON_WEEKDAYS)
    return {(day - 1) % 7 for day in from_sunday}


_CRON_WEEKDAYS = ("sun", *WEEKDAY_NAMES[:6])


def _write(values: set[int], span: range) -> str:
    """The shortest APScheduler syntax for a set: ``*``, ``*/n``, ``a-b``, ``a-b/n`` or a list."""
    ordered = sorted(values)
    if len(ordered) == len(span):
        return "*"
    steps = {after - before for before, after in pairwise(ordered)}
    if len(steps) == 1:
        step = steps.pop()
        to_the_end = ordered[0] == span[0] and ordered[-1] + step > span[-1]
        if to_the_end and (len(ordered) > 2 or len(span) % step == 0):
            return f"*/{step}"
        if len(ordered) > 2:
            return f"{ordered[0]}-{ordered[-1]}" + (f"/{step}" if step > 1 else "")
    return ",".join(map(str, ordered))


def _write_weekdays(values: set[int]) -> str:
    text = _write(values, _WEEKDAYS)
    if text == "*" or "/" in text:  # APScheduler allows no step after weekday names
        return "*" if text == "*" else ",".join(WEEKDAY_NAMES[day] for day in sorted(values))
    return re.sub("[0-9]", lambda day: WEEKDAY_NAMES[int(day.group())], text)


def describe_schedule(schedule: CronSchedule | ScheduleInterval) -> str:
    """A schedule in words: ``every 15 minutes``, ``hourly``, ``at 02:30 on Mon-Fri``."""
    if isinstance(schedule, ScheduleInterval):
        return _describe_every(schedule.seconds)
    if schedule in _WORD_OF:
        return _WORD_OF[schedule]
    return " ".join(filter(None, (_describe_time(schedule), _describe_days(schedule))))


def _describe_every(seconds: float) -> str:
    for size, unit in ((604800, "week"), (86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds % size == 0:
            count = int(seconds // size)
            return f"every {unit}" if count == 1 else f"every {count} {unit}s"
    return "every second" if seconds == 1 else f"every {seconds:g} seconds"


def _describe_time(cron: CronSchedule) -> str:
    minute, hour = cron.minute, cron.hour
    if minute.isdigit() and "-" not in hour:
        hour_step = _even_step(hour, _HOURS)
        if 0 < hour_step < 6:
            text = "every hour" if hour_step == 1 else f"every {hour_step} hours"
            return text if minute == "0" else f"{text} at minute {minute}"
        times = [f"{value:02}:{int(minute):02}" for value in sorted(_parse_field("hour", hour, _HOURS))]
        text = times[0] if len(times) == 1 else f"{', '.join(times[:-1])} and {times[-1]}"
        return f"every day at {text}" if cron.day == cron.day_of_week == "*" else f"at {text}"
    step = _even_step(minute, _MINUTES)
    if step:
        text = "every minute" if step == 1 else f"every {step} minutes"
    else:
        text = f"at minute{'' if minute.isdigit() else 's'} {_spelled(minute, _MINUTES)}"
    return text if hour == "*" else f"{text} in hours {_spelled(hour, _HOURS)}"


def _even_step(text: str, span: range) -> int:
    """The step of ``*/n`` if it divides the span evenly, 1 for ``*``, else 0."""
    step = 1 if text == "*" else int(text[2:]) if text.startswith("*/") else 0
    return step if step and len(span) % step == 0 else 0


def _describe_days(cron: CronSchedule) -> str:
    months = ", ".join(
        MONTH_NAMES[month - 1].capitalize() for month in sorted(_parse_field("", cron.month, _MONTHS))
    )
    if cron.day != "*":
        return f"on day {_spelled(cron.day, _DAYS)} of {'the month' if cron.month == '*' else months}"
    weekdays = re.sub("[a-z]+", lambda name: name.group().capitalize(), cron.day_of_week).replace(",", ", ")
    return " ".join(
        (["on " + weekdays] if weekdays != "*" else []) + (["in " + months] if cron.month != "*" else [])
    )


def _spelled(text: str, span: range) -> str:
    if text.startswith("*/"):
        return ", ".join(map(str, span[:: int(text[2:])]))
    return text.replace(",", ", ")


_DAY = timedelta(days=1)
_FARTHEST = 8 * 366 + 2  # days from one 29 February to the next, across a year such as 2100


def find_next_time(cron: CronSchedule, after: datetime, zone: tzinfo) -> datetime:
    """The first time after ``after`` (aware) at which ``cron`` is due, in ``zone``.

    When the clock is put forward, no run is lost: 02:30 runs an hour later, at 03:30. When the clock is put back,
    a schedule for every hour runs in both hours, any other only at the first 02:30.
    """
    return _next_time(cron, after.astimezone(UTC), zone)


@lru_cache(maxsize=512)
def _next_time(cron: CronSchedule, since: datetime, zone: tzinfo) -> datetime:
    """As next_time. Each scrape asks it again of what each backup last did: for 200 of them that took 0.1 s."""
    times = cron.times()
    best: datetime | None = None
    # A time that the clock change skipped yesterday may fall on today.
    day = since.astimezone(zone).date() - _DAY
    for _ in range(_FARTHEST):
        found = min((instant for instant in _instants(times, day, zone) if instant > since), default=None)
        if (
            best is not None
        ):  # check the following day too: a clock put back at midnight makes the days overlap
            return min(best, found or best).astimezone(zone)
        best = found
        day += _DAY
    raise ValueError(f"the schedule {cron.text or cron} never comes")


def _instants(times: CalendarFields, day: date, zone: tzinfo) -> Iterator[datetime]:
    """The instants (UTC) of one day's times."""
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
