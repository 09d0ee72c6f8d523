"""Keys that several backups have in common: ``[defaults]`` is for all, ``[template.NAME]`` for those that name it.

They are put into the backups' own tables before these are checked, so a backup is the same wherever its keys stand. A
table with several ``vaults`` becomes one backup for each, ``NAME@VAULT``; all else sees backups with one vault only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError, create_model

from zvault.config.fields import ConfigTable, VaultsField, quote_text, suggest_nearest
from zvault.config.introspection import find_field_shape
from zvault.config.problems import ConfigFinding, list_findings
from zvault.config.tables.backup import NEEDS_VAULT, Backup
from zvault.config.toml_lines import KeyPath, format_literal, quote_key, show_key

DEFAULTS_TABLE = "defaults"
TEMPLATE_TABLE = "template"

OWN_KEYS = ("source", "include", "exclude", "snapshots_only", "template")
"""Keys that each backup has for itself."""

COMMON_KEYS = (*OWN_KEYS, "select", "vault", "vaults", "snapshot")
"""Keys that are the same for all vaults of one backup."""

_TABLES = {name for name, info in Backup.model_fields.items() if find_field_shape(info).form == "table"}
"""Keys with a table: of these each key counts by itself, and the nearest table that has it."""

_INSTEAD = {"schedule": "every", "every": "schedule", "vault": "vaults", "vaults": "vault"}
"""A key and the one that it replaces, in a backup and in its ``snapshot``."""

_FOR_VAULT = (("keep", "vault"), ("keep", "gone"))
_FOR_SENDING = (*_FOR_VAULT, ("snapshot", "skip_unchanged"), ("snapshot", "schedule"), ("snapshot", "every"))


def _make_model(called: str, without: Collection[str]) -> type[BaseModel]:
    """A backup's table in which nothing is required, ``without`` some keys."""
    fields: dict[str, Any] = {}
    for name, info in Backup.model_fields.items():
        if name not in without:
            optional = copy(info)
            optional.default, optional.default_factory, optional.validate_default = None, None, False
            fields[name] = (info.annotation, optional)
    made: type[BaseModel] = create_model(called, __base__=ConfigTable, **fields)
    return made


BACKUP_TEMPLATE = _make_model("BackupTemplate", OWN_KEYS)
VAULT_KEYS = _make_model("BackupOfVault", COMMON_KEYS)


@dataclass(frozen=True)
class ResolvedBackups:
    """The configuration's ``data`` with each backup as it is with what it inherits, and what is wrong with that.

    ``origins`` tells by backup of each key, which may be one of a table within, the table that it stands in; () is the
    backup's own. ``tables`` has the name of its table for each backup of one with several vaults.
    """

    data: dict[str, Any]
    findings: list[ConfigFinding] = field(default_factory=list)
    origins: dict[str, dict[KeyPath, KeyPath]] = field(default_factory=dict)
    tables: dict[str, str] = field(default_factory=dict)

    def locate_findings(self, findings: Iterable[ConfigFinding]) -> Iterator[ConfigFinding]:
        """The findings at the keys as they were written: a backup of several vaults has no table of its own."""
        for finding in findings:
            yield ConfigFinding(self._locate(finding.path), finding.message)

    def _locate(self, path: KeyPath) -> KeyPath:
        table = self.tables.get(str(path[1])) if len(path) > 1 and path[0] == "backup" else None
        if table is None:
            return path
        _, name, *key = path
        if key == ["vault"]:
            key = ["vaults"]
        origins = self.origins[str(name)]
        origin = next((origins[part] for n in (2, 1) if (part := tuple(key[:n])) in origins), ())
        return (*origin, *key) if origin[:1] == ("backup",) else ("backup", table, *key)

    def format_lines(self) -> Iterator[str]:
        """The backups' tables as TOML, each inherited key with where it stands."""
        for name, table in self.data.get("backup", {}).items():
            yield f"[backup.{quote_key(name)}]"
            for path, value in _flatten(table):
                origin = self.origins.get(name, {}).get(path, ())
                key = ".".join(map(quote_key, map(str, path)))
                yield f"{key} = {format_literal(value)}" + (f"  # [{show_key(origin)}]" if origin else "")
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
            resolved_name: resolved_table
            for name, table in backups.items()
            for resolved_name, resolved_table in _resolve_backup(name, table, defaults, layers, resolved)
        }
    return resolved


def _resolve_backup(
    name: str,
    table: object,
    defaults: dict[str, Any],
    templates: Mapping[str, dict[str, Any]],
    resolved: ResolvedBackups,
) -> Iterator[tuple[str, Any]]:
    """A backup's table by its name, with what it inherits; one for each vault where it has several."""
    if "@" in name:
        message = (
            "a name with '@' is that of one vault of a backup with several: write [backup.NAME], with vaults"
        )
        resolved.findings.append(ConfigFinding(("backup", name), message))
        return
    if not isinstance(table, dict):
        yield name, table
        return
    layers = _list_layers(name, table, defaults, templates, resolved.findings)
    made, resolved.origins[name] = _lay_over(layers)
    if "vaults" not in made or made.get("snapshots_only") is True:
        yield name, made
        return
    origin = (*(resolved.origins[name].pop(("vaults",)) or ("backup", name)), "vaults")
    for vault, keys in _list_vaults(made, origin, resolved.findings).items():
        own = _check_layer(keys, (*origin, vault), resolved.findings, VAULT_KEYS, COMMON_KEYS)
        part = f"{name}@{vault}"
        resolved.tables[part] = name
        of_vault: list[_Layer] = [(origin[:-1], {"vault": vault}), ((*origin, vault), own)]
        parted, resolved.origins[part] = _lay_over([*layers, *of_vault])
        parted.pop("vaults", None)
        yield part, parted


def _list_vaults(
    made: Mapping[str, Any], origin: KeyPath, findings: list[ConfigFinding]
) -> dict[str, dict[str, Any]]:
    """The vaults of a backup with several, with the keys of each that are its own."""
    if "vault" in made:
        findings.append(ConfigFinding(origin, "stands beside vault: use one of them"))
    try:
        return TypeAdapter(VaultsField).validate_python(made["vaults"])
    except ValidationError as error:
        findings.append(ConfigFinding(origin, str(error.errors()[0]["ctx"]["error"])))
        return {}


def _check_layer(
    table: object,
    path: KeyPath,
    findings: list[ConfigFinding],
    model: type[BaseModel] = BACKUP_TEMPLATE,
    left_out: Collection[str] = OWN_KEYS,
) -> dict[str, Any]:
    """The keys of a table of defaults that are right. What is wrong is told of that table, not of each backup."""
    if not isinstance(table, dict):
        findings.append(ConfigFinding(path, "must be a table of keys as a backup has them"))
        return {}
    own = [key for key in table if key in left_out]
    told = (
        "is each backup's own: write it in its [backup.NAME]"
        if model is BACKUP_TEMPLATE
        else "is the same for all vaults: write it in the backup's own table"
    )
    findings += [ConfigFinding((*path, key), told) for key in own]
    shared = {key: value for key, value in table.items() if key not in own}
    if model is VAULT_KEYS and isinstance(keep := shared.get("keep"), dict) and "source" in keep:
        findings.append(ConfigFinding((*path, "keep", "source"), told))
        shared["keep"] = {key: value for key, value in keep.items() if key != "source"}
    try:
        model.model_validate(shared)
    except ValidationError as error:
        found = list_findings(error, model)
        findings += [ConfigFinding((*path, *one.path), one.message) for one in found]
        wrong = {one.path[0] for one in found if one.path}
        return {key: value for key, value in shared.items() if key not in wrong}
    return shared


_Layer = tuple[KeyPath, Mapping[str, Any]]
"""A table that a backup has keys of, and where it stands; () is the backup's own."""


def _list_layers(
    name: str,
    own: dict[str, Any],
    defaults: dict[str, Any],
    templates: Mapping[str, dict[str, Any]],
    findings: list[ConfigFinding],
) -> list[_Layer]:
    """The tables that a backup has its keys of, of which a later one counts more."""
    named = own.get("template", [])
    asked = [named] if isinstance(named, str) else named if isinstance(named, list) else []
    for one in asked:
        if isinstance(one, str) and one not in templates:
            hint = suggest_nearest(one, list(templates)) or (
                f"; there are: {', '.join(templates)}" if templates else "; write a [template.NAME]"
            )
            findings.append(
                ConfigFinding(("backup", name, "template"), f"no template is called {quote_text(one)}{hint}")
            )
    layers: list[_Layer] = [((DEFAULTS_TABLE,), defaults)]
    layers += [((TEMPLATE_TABLE, one), templates[one]) for one in asked if one in templates]
    return [*layers, ((), own)]


def _lay_over(layers: Sequence[_Layer]) -> tuple[dict[str, Any], dict[KeyPath, KeyPath]]:
    """The keys of all layers as one table, and where each stands."""
    made: dict[str, Any] = {}
    origins: dict[KeyPath, KeyPath] = {}
    inherits = False
    for place, table in layers:
        for path, value in _flatten(table):
            other = (*path[:-1], _INSTEAD.get(str(path[-1]), ""))
            # Both in one table are a mistake of that one, which is told.
            if origins.get(other, place) != place:
                _drop(made, other)
            _put(made, path, value)
            origins[path] = place
        inherits = inherits or not place
        for path in _list_meaningless(table) if inherits else ():
            if origins.get(path, place) != place:
                _drop(made, path)
    return made, origins


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
        yield from ((key,) for key in (*NEEDS_VAULT, "vault", "vaults") if key not in _TABLES)
        yield from ((key, inner) for key in NEEDS_VAULT if key in _TABLES for inner in _inner_keys(key))
        yield from _FOR_SENDING
    prune = own.get("prune")
    if isinstance(prune, dict) and prune.get("vault") == "elsewhere":
        yield from (*_FOR_VAULT, ("on_conflict",))


def _inner_keys(key: str) -> list[str]:
    table = find_field_shape(Backup.model_fields[key]).table
    return list(table.model_fields) if table is not None else []
