"""When a vault is scrubbed, as the configuration writes it; core/policy/scrub.py decides by it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from zvault.config.fields import CalendarField, ConfigTable, TextForm, parse_default
from zvault.config.tables.bandwidth import DaysText, TimeOfDay
from zvault.core.policy.scrub import ScrubPolicy
from zvault.core.replication.bandwidth import RateWindow
from zvault.core.units import parse_duration

SHORTEST_SCRUB_WINDOW = 3600.0


def _parse_age(text: str) -> float | None:
    if text == "off":
        return None
    seconds = parse_duration(text)
    if seconds < SHORTEST_SCRUB_WINDOW:
        raise ValueError(f"{text!r} is too often: at least 1h")
    return seconds


ScrubAgeField = Annotated[
    float | None, TextForm("age", 'a duration, or "off"', "35d", _parse_age, ready=(float,))
]


class ScrubWindow(ConfigTable):
    """A time of day at which a scrub may run."""

    start: TimeOfDay = Field(
        default=parse_default("00:00"),
        description="When it begins, by the clock of `daemon.timezone`.",
        examples=["22:00"],
    )
    end: TimeOfDay = Field(
        default=parse_default("24:00"),
        description="When it ends; if not after `start`, on the next day.",
        examples=["06:00"],
    )
    days: DaysText = Field(
        default=parse_default("mon-sun"), description="The days on which it begins.", examples=["sat,sun"]
    )


class Scrub(ConfigTable):
    """When everything in a vault's pool is read and checked."""

    every: ScrubAgeField = Field(
        default=parse_default("35d"),
        description='How old the last scrub may become before the next one is due; "off" for none by age. '
        "A new pool counts as scrubbed. Not used with a `schedule`, unless both are written.",
        examples=["35d", "off"],
    )
    schedule: CalendarField | None = Field(
        default=None, description="When a scrub is due, by the clock.", examples=["monthly", "0 3 1 * *"]
    )
    windows: list[ScrubWindow] = Field(
        default_factory=list,
        description="The times of day in which a scrub may run; outside them it is paused. With none, any time. It is "
        "paused in any case while something else uses the vault, and before a backup into it is due.",
        examples=[[{"start": "20:00", "end": "07:00"}, {"days": "sat,sun"}]],
    )

    def policy(self) -> ScrubPolicy:
        """The same as core's own type."""
        windows = tuple(RateWindow(None, one.start, one.end, one.days) for one in self.windows)
        by_the_clock_alone = self.schedule is not None and "every" not in self.model_fields_set
        return ScrubPolicy(None if by_the_clock_alone else self.every, self.schedule, windows)
