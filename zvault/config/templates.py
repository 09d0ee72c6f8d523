"""Keys that several backups have in common: ``[defaults]`` is for all, ``[template.NAME]`` for those that name it.

They are put into the backups' own tables before these are checked, so a backup is the same wherever its keys stand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError, create_model

from zvault.config.fields import ConfigTable, quote_text, suggest_nearest
from zvault.config.introspection import find_field_shape
from zvault.config.problems import ConfigFinding, list_findings
from zvault.config.tables.backup import NEEDS_VAULT, Backup
from zvault.config.toml_lines import KeyPath, format_literal, quote_key

DEFAULTS_TABLE = "defaults"
TEMPLATE_TABLE = "template"

OWN_KEYS = ("source", "include", "exclude", "snapshots_only", "template")
"""Keys that each backup has for itself."""

_TABLES = {name for name, info in Backup.model_fields.items() if find_field_shape(info).form == "table"}
"""Keys with a table: of these each key counts by itself, and the nearest table that has it."""

_INSTEAD = {"schedule": "every", "every": "schedule"}
"""A key and the one that it replaces, in a backup and in its ``snapshot``."""

_FOR_VAULT = (("keep", "vault"), ("keep", "gone"))
_FOR_SENDING = (*_FOR_VAULT, ("snapshot", "skip_unchanged"), ("snapshot", "schedule"), ("snapshot", "every"))


def _make_model() -> type[BaseModel]:
    """A backup's table in which nothing is required."""
    fields: dict[str, Any] = {}
    for name, info in Backup.model_fields.items():
        if name not in OWN_KEYS:
            optional = copy(info)
            optional.default, optional.default_factory, optional.validate_default = None, None, False
            fields[name] = (info.annotation, optional)
    made: type[BaseModel] = create_model("BackupTemplate", __base__=ConfigTable, **fields)
    return made


BACKUP_TEMPLATE = _make_model()


@dataclass(frozen=True)
class ResolvedBackups:
    """The configuration's ``data`` with each backup as it is with what it inherits, and what is wrong with that.

    ``origins`` tells by backup of each inherited key, which may be one of a table within, the header it stands below.
    """

    data: dict[str, Any]
    findings: list[ConfigFinding] = field(default_factory=list)
    origins: dict[str, dict[KeyPath, str]] = field(default_factory=dict)

    def format_lines(self) -> Iterator[str]:
        """The backups' tables as TOML, each inherited key with where it stands."""
        for name, table in self.data.get("backup", {}).items():
            yield f"[backup.{quote_key(name)}]"
            for path, value in _flatten(table):
                origin = self.origins.get(name, {}).get(path, "")
                key = ".".join(map(quote_key, map(str, path)))
                yield f"{key} = {format_literal(value)}" + (f"  # {origin}" if origin else "")
            yield ""


def resolve_templates(data: Mapping[str, Any]) -> ResolvedBackups:
    """Put what ``defaults`` and templates say into the backups' tables, and take them out."""
    rest = {key: value for key, value in data.items() if key not in {DEFAULTS_TABLE, TEMPLATE_TABLE}}
    resolved = ResolvedBackups(rest)
    defaults = _check_layer(data.get(DEFAULTS_TABLE, {}), (DEFAULTS_TABLE,), resolved.findings)
    templates = data.get(TEMPLATE_TABLE, {})
    if not isinstance(templates, dict):
        resolved.findings.append(ConfigFinding((TEMPLATE_TABLE,), "must be tables: write [template.NAME]"))
        templates = {}
    layers = {
        name: _check_layer(table, (TEMPLATE_TABLE, name), resolved.findings)
        for name, table in templates.items()
    }
    backups = data.get("backup")
    if isinstance(backups, dict):
        rest["backup"] = {
            name: _resolve(name, table, defaults, layers, resolved) if isinstance(table, dict) else table
            for name, table in backups.items()
        }
    return resolved


def _check_layer(table: object, path: KeyPath, findings: list[ConfigFinding]) -> dict[str, Any]:
    """The keys of a table of defaults that are right. What is wrong is told of that table, not of each backup."""
    if not isinstance(table, dict):
        findings.append(ConfigFinding(path, "must be a table of keys as a backup has them"))
        return {}
    own = [key for key in table if key in OWN_KEYS]
    findings += [
        ConfigFinding((*path, key), "is each backup's own: write it in its [backup.NAME]") for key in own
    ]
    shared = {key: value for key, value in table.items() if key not in own}
    try:
        BACKUP_TEMPLATE.model_validate(shared)
    except ValidationError as error:
        found = list_findings(error, BACKUP_TEMPLATE)
        findings += [ConfigFinding((*path, *one.path), one.message) for one in found]
        wrong = {one.path[0] for one in found if one.path}
        return {key: value for key, value in shared.items() if key not in wrong}
    return shared


def _resolve(
    name: str,
    own: dict[str, Any],
    defaults: dict[str, Any],
    templates: Mapping[str, dict[str, Any]],
    resolved: ResolvedBackups,
) -> dict[str, Any]:
    """One backup's table with what it inherits."""
    named = own.get("template", [])
    asked = [named] if isinstance(named, str) else named if isinstance(named, list) else []
    for one in asked:
        if isinstance(one, str) and one not in templates:
            hint = suggest_nearest(one, list(templates)) or (
                f"; there are: {', '.join(templates)}" if templates else "; write a [template.NAME]"
            )
            resolved.findings.append(
                ConfigFinding(("backup", name, "template"), f"no template is called {quote_text(one)}{hint}")
            )
    layers = [(f"[{DEFAULTS_TABLE}]", defaults)]
    layers += [(f"[template.{quote_key(one)}]", templates[one]) for one in asked if one in templates]
    made: dict[str, Any] = {}
    origins = resolved.origins.setdefault(name, {})
    for header, table in (*layers, ("", own)):
        for path, value in _flatten(table):
            other = (*path[:-1], _INSTEAD.get(str(path[-1]), ""))
            # Both in one table are a mistake of that one, which is told.
            if origins.get(other, header) != header:
                _drop(made, other)
            _put(made, path, value)
            origins[path] = header
    for path in _list_meaningless(own):
        if origins.get(path):
            _drop(made, path)
    return made


def _flatten(table: Mapping[str, Any]) -> Iterator[tuple[KeyPath, Any]]:
    """The keys of a backup's table, those of the tables in it by themselves."""
    for key, value in table.items():
        if key in _TABLES and isinstance(value, dict) and value:
            yield from (((key, inner), of_it) for inner, of_it in value.items())
        else:
            yield (key,), value


def _put(made: dict[str, Any], path: KeyPath, value: Any) -> None:
    *outer, key = map(str, path)
    table = made
    for one in outer:
        if not isinstance(table.get(one), dict):
            table[one] = {}
        table = table[one]
    table[key] = value


def _drop(made: dict[str, Any], path: KeyPath) -> None:
    *outer, key = map(str, path)
    table = made
    for one in outer:
        table = table.get(one, {})
    table.pop(key, None)
    if outer and not table:
        made.pop(outer[0], None)


def _list_meaningless(own: Mapping[str, Any]) -> Iterator[KeyPath]:
    """The keys that mean nothing in a backup by what it says itself: it does not inherit them."""
    if own.get("snapshots_only") is True:
        yield from ((key,) for key in (*NEEDS_VAULT, "vault") if key not in _TABLES)
        yield from ((key, inner) for key in NEEDS_VAULT if key in _TABLES for inner in _inner_keys(key))
        yield from _FOR_SENDING
    prune = own.get("prune")
    if isinstance(prune, dict) and prune.get("vault") == "elsewhere":
        yield from (*_FOR_VAULT, ("on_conflict",))


def _inner_keys(key: str) -> list[str]:
    table = find_field_shape(Backup.model_fields[key]).table
    return list(table.model_fields) if table is not None else []
