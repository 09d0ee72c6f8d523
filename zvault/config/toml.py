"""Values as TOML writes them, for messages and the reference."""

from __future__ import annotations

import json
import re

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def literal(value: object) -> str:
    """A value as TOML: strings, numbers, booleans, lists and (inline) tables. Raises TypeError for others."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case str():
            # JSON's escapes are TOML's, except that JSON may leave DEL as it is.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case list() | tuple():
            return f"[{', '.join(literal(item) for item in value)}]"
        case dict():
            pairs = (f"{name(str(key))} = {literal(item)}" for key, item in value.items())
            return f"{{ {', '.join(pairs)} }}" if value else "{}"
    raise TypeError(f"{type(value).__name__} has no form in TOML here")


def name(key: str) -> str:
    """A key, in quotes where TOML needs them."""
    return key if _BARE.fullmatch(key) else literal(key)
