"""Reading TOML files: each way that can fail ends as a problem with a file and, where it has one, a line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from zvault.config.foreign_words import recognize_other_file
from zvault.config.problems import ConfigProblem
from zvault.config.toml_lines import KeyPositions

_MAX_BYTES = 4 << 20
_AT = re.compile(r" \(at line (\d+), column (\d+)\)$")


@dataclass(frozen=True)
class TomlDocument:
    """One TOML file: its text and its values."""

    file: Path
    text: str
    data: Mapping[str, Any]

    @cached_property
    def positions(self) -> KeyPositions:
        """The lines its keys stand on. Only problems need them, and finding them takes as long as parsing."""
        return KeyPositions(self.text)


def read_document(file: Path) -> TomlDocument | ConfigProblem:
    """Reads and parses a TOML file; returns why it cannot be used where that fails."""
    raw = read_bytes(file)
    return raw if isinstance(raw, ConfigProblem) else parse_document(file, raw)


def read_bytes(file: Path) -> bytes | ConfigProblem:
    """Reads the bytes of a configuration's file; returns why they cannot be had where that fails."""
    try:
        with file.open("rb") as stream:
            raw = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        return ConfigProblem(file, None, (), _why_unreadable(error))
    if len(raw) > _MAX_BYTES:
        return ConfigProblem(
            file, None, (), f"is larger than {_MAX_BYTES >> 20} MiB, which no configuration is"
        )
    return raw


def parse_document(file: Path, raw: bytes) -> TomlDocument | ConfigProblem:
    """Parses the bytes of a TOML file; returns why they cannot be used where that fails."""
    try:
        # With or without a byte order mark: editors on other systems leave one.
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        return ConfigProblem(file, line, (), f"is not UTF-8, as TOML must be: byte 0x{raw[error.start]:02x}")
    return _parse(file, text)


def _parse(file: Path, text: str) -> TomlDocument | ConfigProblem:
    try:
        return TomlDocument(file, text, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        return _syntax_problem(file, text, str(error))
    except RecursionError:
        return ConfigProblem(file, None, (), "is not valid TOML: nested too deeply")
    except ValueError as error:
        # Well formed and still impossible: an integer of five thousand digits.
        return ConfigProblem(file, None, (), f"is not valid TOML: {_lower(str(error))}")


_BARE = re.compile(r"\s*([\w.-]+)\s*=\s*([A-Za-z/*][^\"'#\[\]{}]*?)\s*(?:#.*)?$")
"""A line whose value is a text without quotes."""


def _why_unreadable(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "does not exist"
    if isinstance(error, PermissionError):
        return "cannot be read: permission denied; zvault's configuration is read as root"
    return f"cannot be read: {(error.strerror or str(error)).lower()}"


def _syntax_problem(file: Path, text: str, error: str) -> ConfigProblem:
    if other := recognize_other_file(text):
        return ConfigProblem(file, None, (), other)
    match = _AT.search(error)
    if match:
        line, message = int(match[1]), f"{error[: match.start()]} (column {match[2]})"
    else:
        # tomllib says "at end of document": the last line that holds anything is where to look.
        line, message = text.rstrip().count("\n") + 1, error
    first = KeyPositions(text).first_of(line)
    if message.startswith("Invalid value") and (bare := _BARE.match(text.splitlines()[line - 1])):
        message += f'; a text is written in quotes: {bare[1]} = "{bare[2]}"'
    message = f"is not valid TOML: {_lower(message)}" + (
        f"; it stands on line {first} already" if first else ""
    )
    return ConfigProblem(file, line, (), message)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
