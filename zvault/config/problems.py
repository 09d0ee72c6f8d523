"""Describes what is wrong with a configuration (an unknown key, a wrong or missing value) and how to put it right."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from zvault.config.fields import describe_value, quote_text, suggest_nearest
from zvault.config.foreign_words import (
    explain_foreign_address,
    explain_foreign_grid,
    explain_foreign_key,
    explain_foreign_table,
)
from zvault.config.introspection import find_field_at, find_shape_at, find_table_at
from zvault.config.toml_lines import KeyPath, format_literal, show_key

_RESOLVED_TABLES = ("defaults", "template")
"""Tables that are resolved before the rest is checked, and so are no fields of it (templates.py)."""

_WANTED = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "an array",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
}


@dataclass(frozen=True, slots=True)
class ConfigFinding:
    """A problem at a key, before it is known which file and line the key stands on."""

    path: KeyPath
    message: str


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One thing wrong in a file. ``line`` counts from 1; None where there is none, as for a missing file."""

    file: Path
    line: int | None
    path: KeyPath
    message: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else str(self.file)
        return ": ".join(part for part in (where, show_key(self.path), self.message) if part)


def list_findings(error: ValidationError, root: type[BaseModel]) -> list[ConfigFinding]:
    """Every problem pydantic found with data for the model ``root``, in words of ours."""
    return [_finding(details, root) for details in error.errors(include_url=False)]


def _finding(details: ErrorDetails, root: type[BaseModel]) -> ConfigFinding:
    path: KeyPath = tuple(details["loc"])
    if path and path[-1] == "[key]":
        # The name of a table rather than what stands in it.
        path = path[:-1]
    return ConfigFinding(path, " ".join(_message(details, path, root).split()))


def _message(details: ErrorDetails, path: KeyPath, root: type[BaseModel]) -> str:
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    match kind:
        case "extra_forbidden":
            text = _unknown(path, root)
        case "missing":
            text = _missing(path, root)
        case "value_error":
            foreign = explain_foreign_address(value)
            text = str(context["error"]) + (f"; {foreign}" if foreign else "")
        case "literal_error":
            known = re.findall(r"'([^']*)'", str(context["expected"]))
            hint = suggest_nearest(value, known) if isinstance(value, str) else ""
            text = f"must be one of {', '.join(map(quote_text, known))}, not {describe_value(value)}{hint}"
        case _ if kind in _WANTED:
            text = f"must be {_wanted(kind, path, root)}, not {describe_value(value)}"
            foreign = explain_foreign_grid(value)
            text += f"; {foreign}" if foreign else _table_hint(path, root)
        case _:
            bound = _bound(context)
            text = f"must be {bound}, not {describe_value(value)}" if bound else details["msg"]
    return text


def _wanted(kind: str, path: KeyPath, root: type[BaseModel]) -> str:
    found = find_shape_at(root, path)
    return "an array of tables" if found is not None and found.form == "list" else _WANTED[kind]


def _table_hint(path: KeyPath, root: type[BaseModel]) -> str:
    """How to write the table that should stand at ``path``."""
    found, outer = find_shape_at(root, path), find_shape_at(root, path[:-1])
    if found is None:
        return ""
    if found.form == "list":
        return f": write [[{show_key(path)}]]"
    if found.form == "named":
        return f": write [{show_key(path)}.NAME]"
    if found.form == "table" and outer is not None and outer.form == "named":
        return f"; if {show_key(path[-1:])} is no name but a key, put it in a [{show_key(path[:-1])}.NAME]"
    if found.form == "table" and found.table is not None and path and isinstance(path[-1], str):
        shown = next(
            ((key, info.examples[0]) for key, info in found.table.model_fields.items() if info.examples), None
        )
        return f": write {path[-1]} = {{ {shown[0]} = {format_literal(shown[1])} }}" if shown else ""
    return ""


def _bound(context: dict[str, Any]) -> str:
    words = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
    return next((f"{word} {context[key]}" for key, word in words.items() if key in context), "")


def _missing(path: KeyPath, root: type[BaseModel]) -> str:
    info = find_field_at(root, path)
    if info is None or not info.examples:
        return "is missing"
    return f"is missing; for example {path[-1]} = {format_literal(info.examples[0])}"


_TABLES = (
    ("backup", "NAME"),
    ("vault", "NAME"),
    ("vault", "NAME", "device", 0),
    ("host", "NAME"),
    ("daemon",),
)


def _list_tables_with(key: str, outer: Sequence[str | int], root: type[BaseModel]) -> list[str]:
    """The headers of the tables that have this key, where it stands in another (``outer``)."""
    found = []
    for table in _TABLES:
        shape = find_table_at(root, table)
        if shape is None or key not in shape.model_fields:
            continue
        # The user's own name where it is the same vault or backup.
        name = str(outer[1]) if len(outer) > 1 and outer[0] == table[0] else "NAME"
        words = [name if word == "NAME" else str(word) for word in table if not isinstance(word, int)]
        found.append(f"[[{'.'.join(words)}]]" if 0 in table else f"[{'.'.join(words)}]")
    return found


def _unknown(path: KeyPath, root: type[BaseModel]) -> str:
    *outer, key = path
    table = find_table_at(root, tuple(outer))
    known = list(table.model_fields) if table is not None else []
    # A profile has keys at its top, a configuration tables.
    is_table = not outer and "backup" in known
    if is_table:
        known += _RESOLVED_TABLES
    # A key that follows a sub-table's header in the text belongs to that sub-table: TOML's best known trap.
    for end in range(len(outer) - 1, 0, -1):
        above = find_table_at(root, tuple(outer[:end]))
        if above is not None and key in above.model_fields:
            inner = show_key(tuple(outer))
            return (
                f"unknown key here; it belongs to [{show_key(tuple(outer[:end]))}]: move it above [{inner}]"
            )
    if foreign := (is_table and explain_foreign_table(str(key))) or explain_foreign_key(path):
        return f"unknown key: {foreign}"
    hint = suggest_nearest(str(key), known)
    places = _list_tables_with(str(key), outer, root)
    # At the top "vaults" is a slip of "vault", and no key of a backup.
    if places and (outer or not hint):
        return f"unknown key here; it belongs to {' or '.join(places)}"
    return f"unknown key{hint or '; known here: ' + ', '.join(known)}"
