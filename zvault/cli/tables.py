"""Tables as ``zpool list`` prints them: padded columns, no drawn lines, ``-`` for unknown values."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

import typer

from zvault.cli.options import TableForm
from zvault.cli.output import choose_colour, clean_line, find_width, paint_text
from zvault.core.units import format_duration, format_size

TableRow = Mapping[str, Any]
"""A row of a table: a document, or values that a verb derives from one."""

ColumnKind = Literal["text", "state", "count", "figure", "size", "duration", "time", "ago", "bool"]
_RIGHT: frozenset[ColumnKind] = frozenset({"count", "figure", "size", "duration"})
COLUMN_GAP = "  "


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column. ``name`` is its name for ``-o`` and, in capitals, the header.

    ``key``: the field of the document (default: ``name``). ``get``: computes the value from the row if no single
    field has it. ``kind``: format and alignment. ``missing``: text for an unknown value (scripts always get ``-``).
    ``spare``: where a terminal has too few columns for all, those with the highest are left out first; 0 never.
    """

    name: str
    kind: ColumnKind = "text"
    key: str | None = None
    get: Callable[[Any], Any] | None = None
    header: str | None = None
    missing: str | Callable[[Any], str] = "-"
    spare: int = 0

    def value(self, row: TableRow) -> Any:
        """The row's value in this column; None if unknown."""
        return self.get(row) if self.get else row[self.key or self.name]


def format_cell(value: Any, kind: ColumnKind, exact: bool) -> str:  # noqa: PLR0911 - one line a kind
    """A value as a table shows it; with ``exact`` numbers are whole bytes, seconds or epoch seconds."""
    if value is None or value == "":
        return "-"
    match kind:
        case "bool":
            return "yes" if value else "no"
        case "text" | "state":
            return clean_line(str(value))
        case "figure":
            return repr(float(value)) if exact else f"{value:.0f}" if value >= 100 else f"{value:.3g}"
        case _ if exact:
            return str(int(value))
        case "size":
            return format_size(int(value))
        case "duration":
            return format_duration(value)
        case "time":
            return format_local_time(value)
        case "ago":
            return format_ago(value)
        case _:
            return str(value)


def format_local_time(when: float) -> str:
    """``2026-11-21 09:00`` in the local zone."""
    return datetime.fromtimestamp(when).strftime("%Y-%m-%d %H:%M")


def format_ago(when: float) -> str:
    """``3h 4m ago`` or ``in 47m``."""
    seconds = time.time() - when
    if abs(seconds) < 1:
        return "now"
    return f"{format_duration(seconds)} ago" if seconds > 0 else f"in {format_duration(-seconds)}"


def choose_columns(
    columns: Sequence[TableColumn], wanted: str | None, default: Sequence[str]
) -> list[TableColumn]:
    """The columns that ``-o`` names, else the default ones.

    Raises typer.BadParameter for a column that does not exist, naming the nearest that does.
    """
    by_name = {column.name: column for column in columns}
    if wanted == "all":
        return list(columns)
    names = default if wanted is None else [name.strip().lower() for name in wanted.split(",")]
    for name in names:
        if name not in by_name:
            import difflib

            near = difflib.get_close_matches(name, by_name, n=1, cutoff=0.5)
            hint = f"; did you mean '{near[0]}'?" if near else "."
            raise typer.BadParameter(
                f"there is no column '{clean_line(name)}'{hint} Columns: {', '.join(by_name)}.",
                param_hint="'-o'",
            )
    chosen = [by_name[name] for name in names]
    return chosen if wanted is None else [replace(column, spare=0) for column in chosen]


def format_table(
    columns: Sequence[TableColumn],
    rows: Iterable[TableRow],
    form: TableForm,
    notes: Callable[[Any], Iterable[str]] | None = None,
) -> Iterator[str]:
    """The lines of a table.

    ``notes`` adds lines below a row, for people only: sentences are too long for a column.
    """
    rows = list(rows)
    cells = [[_cell(c, row, form) for c in columns] for row in rows]
    if form.tabs:
        yield from ("\t".join(line) for line in cells)
        return
    headers = [c.header or c.name.upper() for c in columns]
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    fit = _list_fitting(columns, widths, find_width(sys.stdout))
    columns, widths = [columns[at] for at in fit], [widths[at] for at in fit]
    yield _padded(columns, [headers[at] for at in fit], widths)
    for row, line in zip(rows, cells, strict=True):
        yield _padded(columns, [line[at] for at in fit], widths, colour=True)
        if notes is not None:
            yield from notes(row)


def _list_fitting(columns: Sequence[TableColumn], widths: Sequence[int], room: int | None) -> list[int]:
    """The places of the columns that are shown: of those that can be spared only as many as there is ``room`` for."""
    fit = list(range(len(columns)))
    for at in sorted((at for at in fit if columns[at].spare), key=lambda at: -columns[at].spare):
        if room is not None and sum(widths[one] + len(COLUMN_GAP) for one in fit) - len(COLUMN_GAP) > room:
            fit.remove(at)
    return fit


def _cell(column: TableColumn, row: TableRow, form: TableForm) -> str:
    value = column.value(row)
    if value is None and not form.tabs:
        return column.missing if isinstance(column.missing, str) else column.missing(row)
    return format_cell(value, column.kind, form.exact)


def _padded(
    columns: Sequence[TableColumn], cells: Sequence[str], widths: Sequence[int], colour: bool = False
) -> str:
    line = []
    for column, cell, room in zip(columns, cells, widths, strict=True):
        # Padded by the length of the plain text: colour codes take no room on the screen.
        pad = " " * (room - len(cell))
        shown = (
            paint_text(cell, choose_colour(cell), sys.stdout) if colour and column.kind == "state" else cell
        )
        line.append(pad + shown if column.kind in _RIGHT else shown + pad)
    return COLUMN_GAP.join(line).rstrip()


def select_columns(columns: Sequence[TableColumn], rows: Iterable[TableRow]) -> list[dict[str, Any]]:
    """Rows for ``-j -o``: only the chosen columns, values untouched."""
    return [{column.key or column.name: column.value(row) for column in columns} for row in rows]
