"""Where in a TOML text each key stands, and values as TOML writes them. tomllib tells values only; errors need lines.

The scanner is forgiving: tomllib alone judges what is valid. Where it does not understand the text it skips
to the next line and goes on, so the worst case is a key without a line of its own, which gets its table's.
"""

from __future__ import annotations

import bisect
import json
import re
import tomllib
from collections.abc import Mapping

KeyPath = tuple[str | int, ...]
"""A key from the root, by names and indices in arrays: ``("vault", "cold", "device", 0)``."""

DEEPEST_TABLE = 60
"""Arrays and inline tables nested deeper than this are not looked into."""

_BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"' + r"|'[^'\n]*'")
_LONG_STRING = re.compile(r'"""(?:[^"\\]|\\.|"(?!""))*"""(?:"{0,2})' + r"|'''.*?'''(?:'{0,2})", re.DOTALL)
_SCALAR = re.compile(r"[^,\]}#\n]+")


class _Lost(Exception):
    """The text is not what the scanner expects here."""


class KeyPositions:
    """The lines of a text's keys, counted from 1."""

    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n")
        self.lines: dict[KeyPath, int] = {}
        self.declared: list[tuple[KeyPath, int]] = []
        """Every table header and key in the order of the text, also those that came before."""
        self._pos = 0
        self._arrays: dict[KeyPath, int] = {}
        self._newlines = [i for i, char in enumerate(self.text) if char == "\n"]
        self._scan()

    def line(self, path: KeyPath) -> int | None:
        """The line of a key, or of the nearest table around it that has one."""
        return find_line(self.lines, path)

    def first_of(self, line: int) -> int | None:
        """Return the line on which what ``line`` declares was declared before, if it was."""
        for path, at in self.declared:
            if at == line and self.lines[path] < line:
                return self.lines[path]
        return None

    def _scan(self) -> None:
        table: KeyPath = ()
        while self._skip(_BLANK) < len(self.text):
            try:
                if self._take("[["):
                    table = self._header("]]")
                elif self._take("["):
                    table = self._header("]")
                else:
                    self._pair(table, 0)
            except _Lost:
                pass
            # Whatever is left of this line is no statement; each round thus ends further on than it began.
            end = self.text.find("\n", self._pos)
            self._pos = len(self.text) if end < 0 else end

    def _header(self, close: str) -> KeyPath:
        line, keys = self._line(), self._keys()
        path: KeyPath = ()
        for key in keys[:-1]:
            path = (*path, key)
            self.lines.setdefault(path, line)
            if path in self._arrays:
                path = (*path, self._arrays[path])
        path = (*path, keys[-1])
        if close == "]]":
            self.lines.setdefault(path, line)
            self._arrays[path] = self._arrays.get(path, -1) + 1
            path = (*path, self._arrays[path])
        self._declare(path, line)
        self._expect(close)
        return path

    def _pair(self, table: KeyPath, depth: int) -> None:
        line, path = self._line(), table
        keys = self._keys()
        self._expect("=")
        for key in keys[:-1]:
            path = (*path, key)
            self.lines.setdefault(path, line)
        path = (*path, keys[-1])
        self._declare(path, line)
        self._value(path, depth)

    def _value(self, path: KeyPath, depth: int) -> None:
        self._skip(_SPACE)
        if depth > DEEPEST_TABLE:
            raise _Lost
        if self._take("["):
            self._array(path, depth)
        elif self._take("{"):
            while self._skip(_BLANK) < len(self.text) and not self._take("}"):
                self._pair(path, depth + 1)
                self._comma("}")
        elif not any(self._match(pattern) for pattern in (_LONG_STRING, _STRING, _SCALAR)):
            raise _Lost

    def _array(self, path: KeyPath, depth: int) -> None:
        index = 0
        while self._skip(_BLANK) < len(self.text) and not self._take("]"):
            self.lines.setdefault((*path, index), self._line())
            self._value((*path, index), depth + 1)
            self._comma("]")
            index += 1

    def _comma(self, close: str) -> None:
        self._skip(_BLANK)
        if not self._take(",") and not self.text.startswith(close, self._pos):
            raise _Lost

    def _keys(self) -> list[str]:
        keys = []
        while True:
            self._skip(_SPACE)
            if bare := self._match(_BARE_KEY):
                keys.append(bare)
            elif quoted := self._match(_STRING):
                keys.append(_unquote(quoted))
            else:
                raise _Lost
            self._skip(_SPACE)
            if not self._take("."):
                return keys

    def _declare(self, path: KeyPath, line: int) -> None:
        self.lines.setdefault(path, line)
        self.declared.append((path, line))

    def _line(self) -> int:
        return bisect.bisect_left(self._newlines, self._pos) + 1

    def _match(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self._pos)
        if match is None:
            return ""
        self._pos = match.end()
        return match[0]

    def _skip(self, pattern: re.Pattern[str]) -> int:
        self._match(pattern)
        return self._pos

    def _take(self, token: str) -> bool:
        if not self.text.startswith(token, self._pos):
            return False
        self._pos += len(token)
        return True

    def _expect(self, token: str) -> None:
        self._skip(_SPACE)
        if not self._take(token):
            raise _Lost


def _unquote(quoted: str) -> str:
    try:
        value = tomllib.loads(f"key = {quoted}")["key"]
    except tomllib.TOMLDecodeError:
        raise _Lost from None
    return str(value)


def find_line(lines: Mapping[KeyPath, int], path: KeyPath) -> int | None:
    """The line of ``path``, or of the nearest table around it; None when not even that is known."""
    while path:
        if path in lines:
            return lines[path]
        path = path[:-1]
    return None


def show_key(path: KeyPath) -> str:
    """A key as a person would write it: ``vault.cold.device[0].timeout``, in quotes where TOML needs them."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if _BARE_KEY.fullmatch(part) else _quote(part)
            text += f".{name}" if text else name
    return text


def _quote(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in escaped) + '"'


def format_literal(value: object) -> str:
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
            return f"[{', '.join(format_literal(item) for item in value)}]"
        case dict():
            pairs = (f"{quote_key(str(key))} = {format_literal(item)}" for key, item in value.items())
            return f"{{ {', '.join(pairs)} }}" if value else "{}"
    raise TypeError(f"{type(value).__name__} has no form in TOML here")


def quote_key(key: str) -> str:
    """A key, in quotes where TOML needs them."""
    return key if _BARE_KEY.fullmatch(key) else format_literal(key)
