"""A backup's bandwidth limit as the configuration writes it; core/replication/bandwidth.py decides by it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from zvault.config.fields import ConfigTable, TextForm, parse_default
from zvault.core.replication.bandwidth import RateLimit, RateWindow, parse_days, parse_time
from zvault.core.units import parse_size

TimeOfDay = Annotated[int, TextForm("time of day", "hours and minutes", "08:00", parse_time, ready=(int,))]
DaysText = Annotated[
    frozenset[int],
    TextForm("days", "weekdays, and ranges of them", "mon-fri", parse_days, ready=(frozenset,)),
]


def _parse_rate(text: str) -> int | None:
    if text == "off":
        return None
    rate = parse_size(text)
    if rate < 1024:
        raise ValueError(f"{text!r} a second is too little to ever end: at least 1K")
    return rate


RateText = Annotated[
    int | None,
    TextForm("rate", 'a size, for bytes a second, or "off"', "20M", _parse_rate),
]


class LimitWindow(ConfigTable):
    """A rate for a time of day."""

    rate: RateText = Field(description='Bytes a second; "off" for no limit.', examples=["20M", "off"])
    start: TimeOfDay = Field(
        default=parse_default("00:00"),
        description="When it begins, by the clock of `daemon.timezone`.",
        examples=["08:00"],
    )
    end: TimeOfDay = Field(
        default=parse_default("24:00"),
        description="When it ends; if not after `start`, on the next day.",
        examples=["18:00"],
    )
    days: DaysText = Field(
        default=parse_default("mon-sun"), description="The days on which it begins.", examples=["mon-fri"]
    )

    def window(self) -> RateWindow:
        """The same as core's own type."""
        return RateWindow(self.rate, self.start, self.end, self.days)


class FromWindows:
    """Marks a Limit that is written as a rate or as an array of windows."""

    table = LimitWindow
    form = "list"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        def limit(value: Any, inner: core_schema.ValidatorFunctionWrapHandler) -> RateLimit:
            if isinstance(value, RateLimit):
                return value
            if isinstance(value, str):
                return RateLimit((RateWindow(_parse_rate(value)),))
            if not isinstance(value, list):
                raise ValueError('must be a rate, as in "80M", or an array of windows, each with its rate')
            return RateLimit(tuple(window.window() for window in inner(value)))

        return core_schema.no_info_wrap_validator_function(limit, handler.generate_schema(list[LimitWindow]))

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string", "examples": ["80M"]}, handler(schema)]}


LimitField = Annotated[RateLimit, FromWindows]
