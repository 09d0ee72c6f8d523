"""The runbooks that are installed, and which of them is about a condition."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from zvault.core.health.conditions import CONDITIONS

INSTALLED_RUNBOOKS = (Path("/usr/share/doc/zvault/runbooks"), Path("/usr/local/share/doc/zvault/runbooks"))
"""Where a package and ``make install`` put them."""

CHECKOUT_RUNBOOKS = Path(__file__).resolve().parents[3] / "docs" / "runbooks"
"""Where a checkout has them."""

GENERAL_ALERTS = {"warning": "ZvaultWarning", "critical": "ZvaultCritical"}
"""Alerts for conditions without one of their own."""

LARGEST_RUNBOOK = 64 << 10
"""Bytes of a runbook."""


class TextBlock(NamedTuple):
    """A piece of a text: heading, paragraph, items, code as it is, or a table, whose ``rows`` begin with its head."""

    kind: str
    lines: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Runbooks:
    """Their texts by name, and by kind and key of a condition the name of its runbook."""

    texts: Mapping[str, str] = field(default_factory=dict)
    of: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @classmethod
    def read(cls, places: tuple[Path, ...] = (CHECKOUT_RUNBOOKS, *INSTALLED_RUNBOOKS)) -> Runbooks:
        """Those of the first place that has any."""
        for place in places:
            files = sorted(place.glob("*.md"))
            texts = {
                file.stem: file.read_bytes()[:LARGEST_RUNBOOK].decode(errors="replace") for file in files
            }
            if texts:
                return cls(texts, dict(_of_conditions(texts)))
        return cls()

    def blocks(self, name: str) -> list[TextBlock]:
        """A runbook taken apart."""
        return list(_blocks(self.texts[name]))


def _of_conditions(texts: Mapping[str, str]) -> Iterator[tuple[tuple[str, str], str]]:
    for kind, table in CONDITIONS.items():
        for condition in table:
            name = condition.alert or GENERAL_ALERTS.get(condition.level, "")
            if name in texts:
                yield (kind, condition.key), name


def _blocks(text: str) -> Iterator[TextBlock]:
    """Headings, code, items, tables and paragraphs of Markdown, as the runbooks are written."""
    for number, part in enumerate(re.split(r"^```.*\n?", text, flags=re.MULTILINE)):
        if number % 2:
            yield TextBlock("code", tuple(part.splitlines()))
        else:
            yield from _prose(part)


def _prose(text: str) -> Iterator[TextBlock]:
    kind, lines = "", list[str]()
    for line in [*text.splitlines(), ""]:
        new, told = _line(line)
        if new == "more" and lines and kind != "table":
            lines[-1] = f"{lines[-1]} {told}"
            continue
        if new != kind or new not in ("items", "table"):
            yield from _ended(kind, lines)
            lines = []
        kind = "text" if new == "more" else new
        if told:
            lines.append(told)


def _line(line: str) -> tuple[str, str]:
    """What a line is, and its text; ``more``: it goes on with what it follows, or begins a paragraph."""
    if not line.strip():
        return "", ""
    if line.startswith("|"):
        return "table", line
    if line.startswith("#"):
        return f"h{min(len(line) - len(line.lstrip('#')), 4)}", _plain(line.lstrip("# "))
    if item := re.match(r"\s*(?:[-*]|[0-9]+\.)\s+(.*)", line):
        return "items", _plain(item[1])
    return "more", _plain(line.strip())


def _ended(kind: str, lines: list[str]) -> Iterator[TextBlock]:
    if kind == "table" and lines:
        cells = [tuple(_plain(cell.strip()) for cell in line.strip().strip("|").split("|")) for line in lines]
        yield TextBlock(kind, (), tuple(row for row in cells if any(cell.strip("-: ") for cell in row)))
    elif lines:
        yield TextBlock(kind, tuple(lines))


def _plain(text: str) -> str:
    """A line without links' addresses and signs of emphasis."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("**", "").replace("`", "")
