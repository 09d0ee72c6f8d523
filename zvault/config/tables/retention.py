"""Retention as the configuration writes it; core/policy/retention.py decides by it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from zvault.config.fields import ConfigTable, DurationField, Several, SnapnamePattern, parse_default
from zvault.core.policy.retention import KeepRules


class KeepTable(ConfigTable):
    """Which snapshots one side keeps; a snapshot that any rule keeps stays. Without a rule, all stay."""

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
    matching: Several[SnapnamePattern] = Field(
        default_factory=list,
        description="Those whose name after `@` matches one of these patterns, for ever; names hold the time "
        "in UTC. By itself it prunes nothing: it keeps what the other rules would prune.",
        examples=[["*-12-31T*"]],
    )

    def rules(self) -> KeepRules:
        """The same as core's own type."""
        return KeepRules(**{**self.model_dump(), "matching": tuple(self.matching)})


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
