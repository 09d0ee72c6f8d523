"""Retention as the configuration writes it; core/policy/retention.py decides by it."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, GetCoreSchemaHandler, field_validator, model_validator
from pydantic_core import CoreSchema, core_schema

from zvault.config.fields import (
    ConfigTable,
    DurationField,
    Several,
    SnapnamePattern,
    parse_default,
    quote_text,
)
from zvault.core.policy.retention import SHORTEST_PERIOD, KeepRules
from zvault.core.units import parse_duration

PERIOD_KEY = re.compile(r"^[0-9]")
"""What begins so in a table of rules is the length of a period."""

QUARTER = 15 * 60
"""Seconds of what ``frequently`` counts."""

PeriodCount = Annotated[int, Field(ge=0)]


class KeepTable(ConfigTable):
    """Which snapshots one side keeps; a snapshot that any rule keeps stays. Without a rule, all stay."""

    model_config = ConfigDict(
        json_schema_extra={"patternProperties": {PERIOD_KEY.pattern: {"type": "integer", "minimum": 0}}}
    )

    last: int = Field(default=0, ge=0, description="The newest so many.", examples=[3])
    within: DurationField = Field(
        default=parse_default("0s"), description="All that are younger than this.", examples=["2d"]
    )
    hourly: int = Field(
        default=0,
        ge=0,
        description="The newest of each of the last so many hours that have any.",
        examples=[24],
    )
    daily: int = Field(default=0, ge=0, description="The same for days.", examples=[30])
    weekly: int = Field(
        default=0, ge=0, description="The same for weeks, which begin on Monday.", examples=[8]
    )
    monthly: int = Field(default=0, ge=0, description="The same for months.", examples=[12])
    yearly: int = Field(default=0, ge=0, description="The same for years.", examples=[3])
    frequently: int = Field(default=0, ge=0, description="The same for quarters of an hour.", examples=[4])
    periods: dict[str, PeriodCount] = Field(
        default_factory=dict,
        description="The same for periods of any length, in whole minutes: what divides a day begins at midnight, what "
        "divides a week on Monday. A length may also stand as a key of its own beside the others, as in "
        '`{ "6h" = 8, daily = 30 }`. What these keep is not held on the vault, as weekly and longer rules are.',
        examples=[{"6h": 8, "3d": 10}],
    )
    matching: Several[SnapnamePattern] = Field(
        default_factory=list,
        description="Those whose name after `@` matches one of these patterns, for ever; names hold the time "
        "in UTC. By itself it prunes nothing: it keeps what the other rules would prune.",
        examples=[["*-12-31T*"]],
    )

    @model_validator(mode="before")
    @classmethod
    def _gather_periods(cls, data: object) -> object:
        """Take what is written as ``"6h" = 8`` for one of the periods."""
        if not isinstance(data, dict) or not isinstance(data.get("periods", {}), dict):
            return data
        own = {key: value for key, value in data.items() if PERIOD_KEY.match(str(key))}
        rest = {key: value for key, value in data.items() if key not in own}
        return rest | ({"periods": {**data.get("periods", {}), **own}} if own else {})

    @field_validator("periods")
    @classmethod
    def _lengths(cls, periods: dict[str, int]) -> dict[str, int]:
        known: dict[int, str] = {}
        for text in periods:
            seconds = parse_duration(text)
            if seconds < SHORTEST_PERIOD or seconds % SHORTEST_PERIOD:
                raise ValueError(f"{quote_text(text)} is no period: it has whole minutes, at least one")
            if (other := known.setdefault(int(seconds), text)) != text:
                raise ValueError(f"{quote_text(other)} and {quote_text(text)} are one period: leave one out")
        return periods

    @model_validator(mode="after")
    def _quarters_once(self) -> Self:
        if self.frequently and any(parse_duration(text) == QUARTER for text in self.periods):
            raise ValueError("frequently is the period of 15m: leave one of them out")
        return self

    def rules(self) -> KeepRules:
        """The same as core's own type."""
        periods = {int(parse_duration(text)): count for text, count in self.periods.items()}
        periods |= {QUARTER: self.frequently} if self.frequently else {}
        plain = self.model_dump(exclude={"matching", "periods", "frequently"})
        return KeepRules(**plain, matching=tuple(self.matching), periods=tuple(sorted(periods.items())))


class FromKeepTable:
    """Marks a KeepRules that is written as a KeepTable."""

    table = KeepTable

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        def rules(value: object, inner: core_schema.ValidatorFunctionWrapHandler) -> KeepRules:
            if isinstance(value, KeepRules):
                return value
            table: KeepTable = inner(value)
            return table.rules()

        return core_schema.no_info_wrap_validator_function(rules, handler.generate_schema(KeepTable))


class Prune(ConfigTable):
    """Which host prunes the vault."""

    vault: Literal["here", "elsewhere"] = Field(
        default="here",
        description='"elsewhere" leaves the vault to the host that has it, with rules of its own. Then this host '
        "needs no right there to destroy, roll back, hold or release, and asks for none: whoever takes it over cannot "
        "remove what the vault has. See [against ransomware](../how-to/against-ransomware.md#push-without-destroy).",
        examples=["elsewhere"],
    )


class Keep(ConfigTable):
    """The rules of what is kept on either side. The newest snapshot and every base stay whatever the rules say."""

    source: Annotated[KeepRules, FromKeepTable] = Field(
        default_factory=KeepRules, description="What the source keeps.", examples=[{"last": 3, "hourly": 24}]
    )
    vault: Annotated[KeepRules, FromKeepTable] = Field(
        default_factory=KeepRules,
        description="What the vault keeps.",
        examples=[{"hourly": 48, "daily": 30, "weekly": 8, "monthly": 12, "yearly": 3}],
    )
    gone: Annotated[KeepRules, FromKeepTable] = Field(
        default_factory=KeepRules,
        description="What the vault keeps of datasets that are no longer on the source. Whatever it says, the newest "
        "snapshot of each stays.",
        examples=[{"monthly": 12}],
    )
