"""docs/reference/configuration.md, from the models in zvault/config."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from zvault.config.fields import OneOrMore, TextForm
from zvault.config.introspection import FieldShape, find_field_shape
from zvault.config.profile import VaultProfile
from zvault.config.schema import Config
from zvault.config.toml_lines import format_literal

INTRO = """\
<!-- Made by docs/generate.py from zvault/config. Do not edit. -->

# Configuration

zvault reads `/etc/zvault/zvault.toml` and `/etc/zvault/conf.d/*.toml`, in [TOML](https://toml.io). A table such as
`[vault.cold]` must be completely in one file. Unknown keys are errors. `zvaultctl check-config` reports all errors at
once, with file, line and key. zvaultd makes the same check when it starts, and does not start with an error; a reload
with an error keeps the old configuration.

"""

TEMPLATES = """\
## `[defaults]`, `[template.NAME]`

Keys that several backups have in common. `[defaults]` is for all of them, `[template.NAME]` for those with
`template = "NAME"`. Both have the keys of a backup, except `source`, `include`, `exclude`, `snapshots_only` and
`template`.

A key counts where it stands nearest: in the backup itself, then in its templates, of which a later one counts more,
then in `[defaults]`. In the tables of a backup (`snapshot`, `keep`, `send` and so on) each key counts by itself, so one
can set `keep.source` and inherit `keep.vault`; but what is below that, as the rules of `keep.vault`, is replaced whole.
`every` replaces an inherited `schedule`, and the other way round. A backup with `snapshots_only` inherits nothing about
sending. `zvaultctl check-config -v` shows each backup with all that it has, and where that stands.

```toml
[defaults]
vault = "cold"
keep = { source = { hourly = 24 }, vault = { daily = 30, monthly = 12 } }

[template.servers]
schedule = "hourly"
max_lag = "3h"

[backup.web]
source = "ssh://root@web/tank"
template = "servers"
```

"""

PROFILES = """\
# Profiles

A profile has the settings for a kind of storage. A vault names one with `profile`; it is the file `NAME.toml` in
`/etc/zvault/profiles` or, if that does not exist, in `/usr/share/zvault/profiles`. To change one, copy it from the
second folder to the first.

"""

VALUES = """\
# How values are written

| value | written as | example |
|---|---|---|
"""

PLAIN = {str: "string", int: "integer", bool: "boolean", float: "number"}


def configuration() -> str:
    """docs/reference/configuration.md."""
    kinds: dict[str, TextForm] = {}
    tables = render(list(sections(Config, "")), kinds)
    profiles = render(list(sections(VaultProfile, "")), kinds)
    how = "".join(
        f"| {text.kind} | {text.hint} | `{format_literal(text.example)}` |\n"
        for _, text in sorted(kinds.items())
    )
    return INTRO + tables + TEMPLATES + PROFILES + profiles + VALUES + how


Section = tuple[str, type[BaseModel] | FieldInfo]
"""A table's TOML header, with its model; or with its field, for a table of ZFS's properties."""


def sections(model: type[BaseModel], prefix: str) -> Iterator[Section]:
    """The tables below the one with header ``prefix``, in the order of the model."""
    for key, info in model.model_fields.items():
        shape = find_field_shape(info)
        if shape.table is not None:
            name = header(prefix, key, shape)
            yield name, shape.table
            yield from sections(shape.table, name)
        elif not prefix:
            yield f"[{key}]", info


def render(found: list[Section], kinds: dict[str, TextForm]) -> str:
    """The sections as text; tables of the same model share one."""
    text, done = "", set()
    for _, what in found:
        if id(what) in done:
            continue
        done.add(id(what))
        text += "## " + ", ".join(f"`{name}`" for name, same in found if same is what) + "\n\n"
        if isinstance(what, FieldInfo):
            text += f"{what.description}\n\n{examples('', what)}"
            continue
        entries = (entry(key, info, kinds) for key, info in what.model_fields.items())
        text += f"{what.__doc__}\n\n{''.join(entries)}"
    return text


def header(prefix: str, key: str, shape: FieldShape) -> str:
    """The TOML header of a table within another: ``[[vault.NAME.device]]``."""
    path = f"{prefix.strip('[]')}.{key}".lstrip(".") + (".NAME" if shape.form == "named" else "")
    return f"[[{path}]]" if shape.form == "list" else f"[{path}]"


def entry(key: str, info: FieldInfo, kinds: dict[str, TextForm]) -> str:
    """One key: what it is, what it is when left out, what it does, how it is written."""
    forms = {"table": "table", "list": "array of tables", "named": "tables"}
    what = forms.get(find_field_shape(info).form) or type_name(info.annotation, tuple(info.metadata), kinds)
    return f"### `{key}`\n\n*{what}*, {default(info)}\n\n{info.description}\n\n{examples(key, info)}"


def examples(key: str, info: FieldInfo) -> str:
    """The examples of a field, or nothing. Without a key each is a table, and its pairs are shown."""
    if not info.examples:
        return ""
    lines = [f"{key} = {format_literal(example)}" for example in info.examples if key]
    lines += [
        f"{k} = {format_literal(v)}" for example in info.examples if not key for k, v in example.items()
    ]
    return "```toml\n" + "\n".join(lines) + "\n```\n\n"


def default(info: FieldInfo) -> str:
    """What holds when a key is left out."""
    if info.is_required():
        return "**required**"
    if info.default_factory is not None:
        return "empty by default"
    return "not set by default" if info.default is None else f"default `{format_literal(info.default)}`"


def type_name(  # noqa: PLR0911 - a table of kinds
    annotation: Any, metadata: tuple[Any, ...], kinds: dict[str, TextForm]
) -> str:
    """What a value is called. Adds to ``kinds`` what has to be explained."""
    for mark in metadata:
        if isinstance(mark, TextForm):
            kinds[mark.kind] = mark
            return mark.kind
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_name(args[0], args[1:], kinds)
    if origin is Literal:
        return "one of " + ", ".join(f"`{format_literal(choice)}`" for choice in args)
    if origin is list:
        alone = ", or one alone" if any(isinstance(mark, OneOrMore) for mark in metadata) else ""
        return f"array, each a {type_name(args[0], (), kinds)}{alone}"
    if origin is dict:
        return f"table, each value a {type_name(args[1], (), kinds)}"
    if type(None) in args:
        return type_name(next(arg for arg in args if arg is not type(None)), metadata, kinds)
    return PLAIN[annotation] + bounds(metadata)


def bounds(metadata: tuple[Any, ...]) -> str:
    """The limits of a number, in words."""
    words = {"ge": "at least", "le": "at most"}
    parts = [
        f", {word} {getattr(mark, key)}"
        for mark in metadata
        for key, word in words.items()
        if hasattr(mark, key)
    ]
    return "".join(parts)
