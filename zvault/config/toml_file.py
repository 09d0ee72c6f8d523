"""Reading TOML files: each way that can fail ends as a problem with a file and, where it has one, a line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zvault.config.problems import Problem
from zvault.config.toml_lines import Positions

_MAX_BYTES = 4 << 20
_AT = re.compile(r" \(at line (\d+), column (\d+)\)$")


@dataclass(frozen=True, slots=True)
class Document:
    """One TOML file: its values, and the lines its keys stand on."""

    file: Path
    data: Mapping[str, Any] = field(default_factory=dict)
    positions: Positions = field(default_factory=lambda: Positions(""))


def read_document(file: Path) -> Document | Problem:
    """A TOML file, or why it cannot be used."""
    try:
        with file.open("rb") as stream:
            raw = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        return Problem(file, None, (), _why_unreadable(error))
    if len(raw) > _MAX_BYTES:
        return Problem(file, None, (), f"is larger than {_MAX_BYTES >> 20} MiB, which no configuration is")
    try:
        # With or without a byte order mark: editors on other systems leave one.
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        return Problem(file, line, (), f"is not UTF-8, as TOML must be: byte 0x{raw[error.start]:02x}")
    return _parse(file, text)


def _parse(file: Path, text: str) -> Document | Problem:
    positions = Positions(text)
    try:
        return Document(file, tomllib.loads(text), positions)
    except tomllib.TOMLDecodeError as error:
        return _syntax_problem(file, text, str(error), positions)
    except RecursionError:
        return Problem(file, None, (), "is not valid TOML: nested too deeply")
    except ValueError as error:
        # Well formed and still impossible: an integer of five thousand digits.
        return Problem(file, None, (), f"is not valid TOML: {_lower(str(error))}")


def _why_unreadable(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "does not exist"
    if isinstance(error, PermissionError):
        return "cannot be read: permission denied; zvault's configuration is read as root"
    return f"cannot be read: {(error.strerror or str(error)).lower()}"


def _syntax_problem(file: Path, text: str, error: str, positions: Positions) -> Problem:
    match = _AT.search(error)
    if match:
        line, message = int(match[1]), f"{error[: match.start()]} (column {match[2]})"
    else:
        # tomllib says "at end of document": the last line that holds anything is where to look.
        line, message = text.rstrip().count("\n") + 1, error
    first = positions.first_of(line)
    message = f"is not valid TOML: {_lower(message)}" + (
        f"; it stands on line {first} already" if first else ""
    )
    return Problem(file, line, (), message)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
