import pytest
from apscheduler.triggers.cron import CronTrigger
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.policy.cron_schedule import (
    CronSchedule,
    ScheduleInterval,
    describe_schedule,
    parse_every,
    parse_schedule,
)

WORDS = {
    "minutely": "* * * * *",
    "hourly": "0 * * * *",
    "daily": "0 0 * * *",
    "weekly": "0 0 * * 1",
    "monthly": "0 0 1 * *",
    "quarterly": "0 0 1 1,4,7,10 *",
    "semiannually": "0 0 1 1,7 *",
    "yearly": "0 0 1 1 *",
}


@pytest.mark.parametrize(("word", "cron"), WORDS.items())
def test_a_word_is_the_cron_that_systemd_says(word: str, cron: str) -> None:
    assert parse_schedule(word) == parse_schedule(cron)
    assert describe_schedule(parse_schedule(cron)) == word


@pytest.mark.parametrize("text", ["Hourly", " daily ", "annually", "semi-annually"])
def test_words_are_read_as_people_write_them_and_kept(text: str) -> None:
    assert parse_schedule(text).text == text


def test_the_original_text_does_not_make_schedules_differ() -> None:
    assert parse_schedule("yearly") == parse_schedule("annually")
    assert hash(parse_schedule("yearly")) == hash(parse_schedule("0 0 1 1 *"))
    assert parse_every("60m") == parse_every("1h") == ScheduleInterval(3600.0)
    assert parse_every("60m").text == "60m"


@pytest.mark.parametrize(
    ("text", "cron", "words"),
    [
        ("*/15 * * * *", CronSchedule("*/15", "*", "*", "*", "*"), "every 15 minutes"),
        ("0,15,30,45 * * * *", CronSchedule("*/15", "*", "*", "*", "*"), "every 15 minutes"),
        ("*/25 * * * *", CronSchedule("*/25", "*", "*", "*", "*"), "at minutes 0, 25, 50"),
        ("*/90 * * * *", CronSchedule("0", "*", "*", "*", "*"), "hourly"),
        ("10-50/20 * * * *", CronSchedule("10-50/20", "*", "*", "*", "*"), "at minutes 10-50/20"),
        ("7 * * * *", CronSchedule("7", "*", "*", "*", "*"), "every hour at minute 7"),
        ("0 */2 * * *", CronSchedule("0", "*/2", "*", "*", "*"), "every 2 hours"),
        ("0 */12 * * *", CronSchedule("0", "*/12", "*", "*", "*"), "every day at 00:00 and 12:00"),
        (
            "0 */7 * * *",
            CronSchedule("0", "*/7", "*", "*", "*"),
            "every day at 00:00, 07:00, 14:00 and 21:00",
        ),
        ("*/5 9-17 * * *", CronSchedule("*/5", "9-17", "*", "*", "*"), "every 5 minutes in hours 9-17"),
        ("5 9-17 * * *", CronSchedule("5", "9-17", "*", "*", "*"), "at minute 5 in hours 9-17"),
        ("30 2 * * *", CronSchedule("30", "2", "*", "*", "*"), "every day at 02:30"),
        ("30 2 * * mon-fri", CronSchedule("30", "2", "*", "*", "mon-fri"), "at 02:30 on Mon-Fri"),
        ("30 2 * * 1-5", CronSchedule("30", "2", "*", "*", "mon-fri"), "at 02:30 on Mon-Fri"),
        ("0 3 * * 0", CronSchedule("0", "3", "*", "*", "sun"), "at 03:00 on Sun"),
        ("0 3 * * 7", CronSchedule("0", "3", "*", "*", "sun"), "at 03:00 on Sun"),
        ("0 3 * * SUN", CronSchedule("0", "3", "*", "*", "sun"), "at 03:00 on Sun"),
        ("0 3 * * fri-sun", CronSchedule("0", "3", "*", "*", "fri-sun"), "at 03:00 on Fri-Sun"),
        ("0 3 * * 5-7", CronSchedule("0", "3", "*", "*", "fri-sun"), "at 03:00 on Fri-Sun"),
        ("0 3 * * sun-sun", CronSchedule("0", "3", "*", "*", "sun"), "at 03:00 on Sun"),
        ("0 3 * * 0,6", CronSchedule("0", "3", "*", "*", "sat,sun"), "at 03:00 on Sat, Sun"),
        ("0 3 * * 1,3,5", CronSchedule("0", "3", "*", "*", "mon,wed,fri"), "at 03:00 on Mon, Wed, Fri"),
        ("0 3 * * 0-7", CronSchedule("0", "3", "*", "*", "*"), "every day at 03:00"),
        ("0 3 1,15 * *", CronSchedule("0", "3", "1,15", "*", "*"), "at 03:00 on day 1, 15 of the month"),
        ("0 3 29 2 *", CronSchedule("0", "3", "29", "2", "*"), "at 03:00 on day 29 of Feb"),
        ("0 3 * nov,JAN *", CronSchedule("0", "3", "*", "1,11", "*"), "every day at 03:00 in Jan, Nov"),
        ("0 3 * 6-8 sat", CronSchedule("0", "3", "*", "6-8", "sat"), "at 03:00 on Sat in Jun, Jul, Aug"),
    ],
)
def test_cron(text: str, cron: CronSchedule, words: str) -> None:
    assert parse_schedule(text) == cron
    assert parse_schedule(text).text == text
    assert describe_schedule(cron) == words


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "has 0 fields"),
        ("* * * *", "has 4 fields"),
        ("0 0 0 * * *", "has 6 fields"),
        ("fortnightly", "write one of minutely, hourly"),
        ("15m", 'every = "15m"'),
        ("@daily", "write 'daily'"),
        ("Mon *-*-* 02:00", "as systemd.time(7) has it: write the five fields of cron"),
        ("60 * * * *", "the minute '60' is not 0 to 59"),
        ("* 24 * * *", "the hour '24' is not 0 to 23"),
        ("* * 0 * *", "the day of the month '0' is not 1 to 31"),
        ("* * * 13 *", "the month '13' is not 1 to 12 or jan to dec"),
        ("* * * * 8", "the day of the week '8' is not 0 to 7 or sun to sat"),
        ("* * * * monday", "the day of the week 'monday'"),
        ("mon * * * *", "the minute 'mon'"),
        ("-5 * * * *", "the minute '-5' is not of the form"),
        ("1,,2 * * * *", "the minute '' is not of the form"),
        ("*-5 * * * *", r"the minute '*-5' is not of the form"),
        ("\u0663 * * * *", "is not of the form"),
        ("*/0 * * * *", "a step of 0"),
        ("5/15 * * * *", "write 5-59/15"),
        ("0 22-2 * * *", "write 22-23,0-2"),
        ("0 0 * * fri-mon", "write 5-7,0-1"),
        ("0 0 13 * fri", "either matches"),
        ("0 0 */2 * 1", "either matches"),
        ("0 0 31 2,4,jun *", "never comes"),
        ("0 0 30 2 *", "never comes"),
    ],
)
def test_a_bad_schedule_is_refused_with_what_to_write(text: str, hint: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is looked at below
        parse_schedule(text)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("15m", "every 15 minutes"),
        ("1h", "every hour"),
        ("90m", "every 90 minutes"),
        ("1d", "every day"),
        ("2w", "every 2 weeks"),
        ("1m", "every minute"),
        ("1s", "every second"),
        ("90s", "every 90 seconds"),
        ("2500ms", "every 2.5 seconds"),
    ],
)
def test_every(text: str, words: str) -> None:
    assert describe_schedule(parse_every(text)) == words


@pytest.mark.parametrize("text", ["0s", "500ms", "600w", "hourly", "15"])
def test_a_bad_interval_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"out of range|is not a duration|no unit"):
        parse_every(text)


# Cron fields with the values they stand for, made without a parser.


@st.composite
def items(draw: st.DrawFn, first: int, last: int) -> tuple[str, set[int]]:
    low = draw(st.integers(first, last))
    high = draw(st.integers(low, last))
    step = draw(st.integers(1, last + 3))
    return draw(
        st.sampled_from(
            [
                (str(low), {low}),
                (f"{low}-{high}", set(range(low, high + 1))),
                (f"{low}-{high}/{step}", set(range(low, high + 1, step))),
                (f"*/{step}", set(range(first, last + 1, step))),
                ("*", set(range(first, last + 1))),
            ]
        )
    )


def cron_fields(first: int, last: int) -> st.SearchStrategy[tuple[str, set[int]]]:
    return st.lists(items(first, last), min_size=1, max_size=3).map(
        lambda drawn: (",".join(text for text, _ in drawn), set().union(*(values for _, values in drawn)))
    )


@given(
    cron_fields(0, 59),
    cron_fields(0, 23),
    cron_fields(1, 31),
    cron_fields(1, 12),
    cron_fields(0, 7),
    st.booleans(),
)
def test_a_schedule_matches_what_cron_would(
    minute: tuple[str, set[int]],
    hour: tuple[str, set[int]],
    day: tuple[str, set[int]],
    month: tuple[str, set[int]],
    weekday: tuple[str, set[int]],
    by_weekday: bool,
) -> None:
    if by_weekday:
        day = ("*", set(range(1, 32)))
    else:
        weekday = ("*", set(range(8)))
    if not any(
        value <= {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}.get(of, 31) for value in day[1] for of in month[1]
    ):
        return
    cron = parse_schedule(" ".join(drawn[0] for drawn in (minute, hour, day, month, weekday)))
    times = cron.times()
    assert times.minutes == minute[1]
    assert times.hours == hour[1]
    assert times.days == day[1]
    assert times.months == month[1]
    assert {(monday + 1) % 7 for monday in times.weekdays} == {sunday % 7 for sunday in weekday[1]}
    # What is written is APScheduler's own syntax, and stands for the same.
    trigger = {field.name: field for field in CronTrigger(**cron.fields(), timezone="UTC").fields}
    assert values_of(trigger["minute"], range(60)) == minute[1]
    assert values_of(trigger["hour"], range(24)) == hour[1]
    assert values_of(trigger["month"], range(1, 13)) == month[1]
    assert values_of(trigger["day_of_week"], range(7)) == set(times.weekdays)
    assert describe_schedule(cron)


def values_of(field: object, span: range) -> set[int]:
    """The values at which an APScheduler field says that its next value is the present one."""

    class At:
        def __init__(self, value: int) -> None:
            self.value = value

    def matches(value: int) -> bool:
        expressions = field.expressions  # type: ignore[attr-defined]
        return any(expression.get_next_value(At(value), Stub(span)) == value for expression in expressions)

    return {value for value in span if matches(value)}


class Stub:
    """Stands for a field, so that an expression can be asked about a value rather than a date."""

    def __init__(self, span: range) -> None:
        self.span = span

    def get_value(self, at: object) -> int:
        return at.value  # type: ignore[attr-defined, no-any-return]

    def get_min(self, _: object) -> int:
        return self.span[0]

    def get_max(self, _: object) -> int:
        return self.span[-1]
