"""Whether a document is of its TypedDict: exactly its keys, each with a value of its kind.

pydantic does the same from Python 3.12 on only.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from zvault.api.routes import ApiRoute


def wrong(value: object, kind: Any, at: str = "document") -> Iterator[str]:
    """What is wrong with a value, in words; JSON's arrays pass for tuples."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        found = [list(wrong(value, one, at)) for one in inner]
        yield from [] if not all(found) else min(found, key=len)
    elif origin is Literal:
        if value not in inner:
            yield f"{at} is {value!r}, not one of {inner}"
    elif origin is not None:
        yield from _wrong_collection(value, origin, inner, at)
    elif is_typeddict(kind):
        yield from _wrong_document(value, kind, at)
    elif kind not in (Any, object) and not _is(value, kind):
        yield f"{at} is {value!r}, not {kind.__name__}"


def _wrong_collection(value: object, origin: Any, inner: tuple[Any, ...], at: str) -> Iterator[str]:
    wanted = dict | Mapping if origin in (dict, Mapping) else list | tuple
    if not isinstance(value, wanted):
        yield f"{at} is {value!r}, not a {origin.__name__}"
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from wrong(one, inner[1], f"{at}[{key!r}]")
    else:
        fixed = origin is tuple and Ellipsis not in inner
        if fixed and len(value) != len(inner):
            yield f"{at} is {value!r}, not {len(inner)} values"
            return
        for index, one in enumerate(value):
            yield from wrong(one, inner[index if fixed else 0], f"{at}[{index}]")


def _is(value: object, kind: type) -> bool:
    """A float may be written without a fraction; True is no number."""
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)


def _wrong_document(value: object, kind: Any, at: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{at} is {value!r}, not a {kind.__name__}"
        return
    hints = get_type_hints(kind, include_extras=True)
    for key in value.keys() - hints.keys():
        yield f"{at} has {key!r}, which {kind.__name__} has not"
    for key, hint in hints.items():
        optional = get_origin(hint) is NotRequired
        if key in value:
            yield from wrong(value[key], get_args(hint)[0] if optional else hint, f"{at}[{key!r}]")
        elif not optional and key in kind.__required_keys__:
            yield f"{at} lacks {key!r} of {kind.__name__}"


def wrong_answer(value: object, route: ApiRoute[Any]) -> list[str]:
    """What is wrong with a route's answer."""
    found = [list(wrong(value, one)) for one in (route.answer, route.other) if one is not None]
    return min(found, key=len)
