"""Looking into the model: which keys a table has. For messages that name the right one, and the reference."""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from zvault.config.toml_lines import KeyPath

FieldForm = Literal["value", "table", "list", "named"]
"""A plain value, one table, an array of tables, or tables by name."""


@dataclass(frozen=True, slots=True)
class FieldShape:
    """The shape of a field: tables of one kind in some form, or a plain value (then ``table`` is None)."""

    form: FieldForm
    table: type[BaseModel] | None = None


def find_shape(annotation: Any, metadata: tuple[Any, ...] = ()) -> FieldShape:
    """The shape of a type annotation."""
    for mark in metadata:
        if isinstance(table := getattr(mark, "table", None), type):
            return FieldShape(getattr(mark, "form", "table"), table)
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return find_shape(args[0], args[1:])
    if origin in (Union, types.UnionType) and type(None) in args:
        return next((find_shape(arg) for arg in args if arg is not type(None)), FieldShape("value"))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return FieldShape("table", annotation)
    if origin in (list, dict):
        inner = find_shape(args[-1])
        if inner.table is not None:
            return FieldShape("list" if origin is list else "named", inner.table)
    return FieldShape("value")


def find_field_shape(info: FieldInfo) -> FieldShape:
    """The shape of a model's field."""
    return find_shape(info.annotation, tuple(info.metadata))


def find_shape_at(root: type[BaseModel], path: KeyPath) -> FieldShape | None:
    """The shape of what stands at ``path`` below a root model; None where the model has nothing there."""
    here = FieldShape("table", root)
    for part in path:
        table = here.table
        if table is None:
            return None
        if here.form in ("list", "named"):
            here = FieldShape("table", table)
        elif info := table.model_fields.get(str(part)):
            here = find_field_shape(info)
        else:
            return None
    return here


def find_table_at(root: type[BaseModel], path: KeyPath) -> type[BaseModel] | None:
    """The model of the one table at ``path``, or None."""
    found = find_shape_at(root, path)
    return found.table if found is not None and found.form == "table" else None


def find_field_at(root: type[BaseModel], path: KeyPath) -> FieldInfo | None:
    """The field that ``path`` names, or None."""
    table = find_table_at(root, path[:-1]) if path else None
    return table.model_fields.get(str(path[-1])) if table is not None else None
