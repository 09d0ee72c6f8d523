"""The user's own programs, run before and after what zvault does; ops/hooks.py runs them."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, field_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from zvault.config.fields import ConfigTable, DurationField, parse_default, quote_text

OWN_VARIABLE_PREFIX = "ZVAULT_"
"""What the names of the variables begin with that zvault itself sets."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Hook(ConfigTable):
    """One program to run, as root. With no key but `run`, the array of `run` may stand for the table."""

    run: list[str] = Field(
        description="The program and its arguments, each a string of its own. No shell reads them: "
        'for a line of shell write `["sh", "-c", "…"]`.',
        examples=[["runuser", "-u", "postgres", "--", "psql", "-qc", "CHECKPOINT"]],
    )
    timeout: DurationField = Field(
        default=parse_default("30s"),
        description="How long it may take. Then it is killed, with what it started, and has failed.",
        examples=["5m"],
    )
    environment: dict[str, str] = Field(
        default_factory=dict,
        description="Variables it gets besides zvault's own environment and the `ZVAULT_…` ones.",
        examples=[{"PGPORT": "5433"}],
    )
    hold: bool = Field(
        default=False,
        description="Keep it running over the snapshot, as a session that holds a database's lock. Once it has printed "
        "a line `ready` the snapshot is made, and then it is ended by SIGTERM. `timeout` is for all of that. Only "
        "before a snapshot: see [hooks](../how-to/hooks.md#a-lock-held-across-the-snapshot).",
        examples=[True],
    )
    on_failure: Literal["stop", "go-on"] = Field(
        default="stop",
        description='What its failure means. "stop": when it stands before something, that is not done and the '
        "run fails; when it stands after something, what is done is done, the run goes on and ends as "
        'partial. "go-on": it is told, and nothing else.',
        examples=["go-on"],
    )

    @field_validator("run")
    @classmethod
    def _a_program(cls, run: list[str]) -> list[str]:
        if not run or not run[0].strip():
            raise ValueError('names no program, as in ["psql", "-c", "CHECKPOINT"]')
        if " " in run[0] and "/" not in run[0]:
            raise ValueError(
                f"{quote_text(run[0])} is no program: write every argument as a string of its own, "
                'or give the line to a shell, as ["sh", "-c", "…"]'
            )
        if any("\0" in word for word in run):
            raise ValueError("has a NUL character, which no argument can hold")
        return run

    @field_validator("timeout")
    @classmethod
    def _some_time(cls, timeout: float) -> float:
        if timeout <= 0:
            raise ValueError("must be more than 0s: a hook that never ends would stop the backup for ever")
        return timeout

    @field_validator("environment")
    @classmethod
    def _variables(cls, environment: dict[str, str]) -> dict[str, str]:
        for name, value in environment.items():
            if not _VARIABLE.fullmatch(name):
                raise ValueError(f"{quote_text(name)} is no name for a variable: letters, digits and _")
            if name.startswith(OWN_VARIABLE_PREFIX):
                raise ValueError(
                    f"{quote_text(name)} begins with {OWN_VARIABLE_PREFIX}, as only zvault's own variables do"
                )
            if "\0" in value:
                raise ValueError(f"{quote_text(name)} has a NUL character, which no variable can hold")
        return environment


def refuse_hold(hooks: Hooks, where: str) -> Hooks:
    """Raise ValueError where a hook is to be held over something else than a snapshot."""
    if any(hook.hold for hook in hooks.after):
        raise ValueError(
            "after: hold stands for a hook before the snapshot only: this one has nothing to hold"
        )
    if where == "run" and any(hook.hold for hook in hooks.before):
        raise ValueError(
            "before: hold stands in [backup.NAME.snapshot.hooks] only: a lock is not held while a run sends"
        )
    return hooks


class FromArgv:
    """Marks a Hook that may be written as the bare array of its ``run``."""

    table = Hook

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        def widen(value: object) -> object:
            return {"run": value} if isinstance(value, list) else value

        return core_schema.no_info_before_validator_function(widen, handler(source))

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [{"type": "array", "items": {"type": "string"}}, handler(schema)]}


def _many(value: object) -> object:
    """Refuse what is easily meant as one hook: its words would be taken for programs, or its letters for words."""
    if isinstance(value, str):
        raise ValueError(
            "must be an array of hooks, each an array of words; no shell reads them, "
            'so a line of shell is [["sh", "-c", "…"]]'
        )
    if isinstance(value, list) and any(isinstance(entry, str) for entry in value):
        raise ValueError(
            'each hook is an array of its own: write [["program", "argument"]], with two brackets'
        )
    return value


HookList = Annotated[list[Annotated[Hook, FromArgv]], BeforeValidator(_many)]


class Hooks(ConfigTable):
    """Programs to run around something, each list in its order: see [hooks](../how-to/hooks.md)."""

    before: HookList = Field(
        default_factory=list, description="Run before it, one after the other, until one fails."
    )
    after: HookList = Field(
        default_factory=list,
        description="Run after it, all of them, however it went: also when a hook before it failed, when the run "
        "is stopped, and, after a crash, when the daemon starts again.",
    )
