"""Lines and tables of a full screen: as many columns as there is room for. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from zvault.cli.output import clean_line
from zvault.cli.progress import shorten_name

SCREEN_COLUMN_GAP = "  "
LEAST_NAME = 8
"""Columns that a name is cut to at most while anything else is shown."""


@dataclass(frozen=True, slots=True)
class ScreenLine:
    """A line of text; ``colour`` is an SGR number, or None. One that is ``chosen`` is shown in reverse."""

    text: str
    colour: str | None = None
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class ScreenColumn:
    """A column: its header, and a cell for each row. What has the highest ``rank`` is left out first."""

    header: str
    cells: Sequence[str]
    rank: int
    right: bool = True


def fit_columns(
    figures: Sequence[ScreenColumn], colours: Sequence[str | None], columns: int
) -> Iterator[ScreenLine]:
    """Padded columns, as many as there is room for; the first, a name, is cut if need be."""
    names = replace(figures[0], cells=[clean_line(cell) for cell in figures[0].cells])
    shown = [names, *figures[1:]]
    while len(shown) > 1 and _width(shown, LEAST_NAME) > columns:
        shown.remove(max(shown[1:], key=lambda figure: (figure.rank, shown.index(figure))))
    room = max(LEAST_NAME if len(shown) > 1 else columns, columns - _width(shown[1:], None))
    room = min(room, max(map(len, (names.header, *names.cells))), columns)
    widths = [room, *(_room(figure) for figure in shown[1:])]
    cells = [[shorten_name(name, room) for name in names.cells], *(figure.cells for figure in shown[1:])]
    yield ScreenLine(_row([figure.header for figure in shown], shown, widths))
    for row, colour in zip(zip(*cells, strict=True), colours, strict=True):
        yield ScreenLine(_row([clean_line(cell) for cell in row], shown, widths), colour)


def _room(figure: ScreenColumn) -> int:
    return max(map(len, (figure.header, *figure.cells)))


def _width(figures: Sequence[ScreenColumn], name: int | None) -> int:
    """The width of some columns, each with its gap; the first of them cut to ``name``, where that is given."""
    rooms = [_room(figure) for figure in figures]
    if name is not None:
        rooms[0] = min(rooms[0], name)
        return sum(rooms) + len(SCREEN_COLUMN_GAP) * (len(rooms) - 1)
    return sum(rooms) + len(SCREEN_COLUMN_GAP) * len(rooms)


def _row(cells: Sequence[str], figures: Sequence[ScreenColumn], widths: Sequence[int]) -> str:
    padded = (
        f"{cell:>{wide}}" if figure.right else f"{cell:<{wide}}"
        for cell, figure, wide in zip(cells, figures, widths, strict=True)
    )
    return SCREEN_COLUMN_GAP.join(padded).rstrip()
