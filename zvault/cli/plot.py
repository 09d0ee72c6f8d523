"""Bars and lines in the terminal. Pure: numbers in, text out, never wider than asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LEAST_PLOT_WIDTH = 20
"""Columns from which on it is drawn; a narrower terminal gets lines as long as that."""


@dataclass(frozen=True, slots=True)
class PlotInk:
    """The characters to draw with: ``full`` and ``rest`` of a bar, ``over`` where it is beyond its limit, ``steps`` of
    a line from low to high, ``unknown`` where there is no figure.
    """

    full: str
    rest: str
    over: str
    steps: str
    unknown: str


BLOCK_INK = PlotInk("█", "░", "▓", "▁▂▃▄▅▆▇█", "·")
ASCII_INK = PlotInk("#", ".", "!", "_.-=+*%#", "?")


def choose_ink(encoding: str | None) -> PlotInk:
    """Return the characters that an output of that encoding can show."""
    try:
        "".join((BLOCK_INK.full, BLOCK_INK.rest, BLOCK_INK.over, BLOCK_INK.steps, BLOCK_INK.unknown)).encode(
            encoding or "ascii"
        )
    except (UnicodeEncodeError, LookupError):
        return ASCII_INK
    return BLOCK_INK


def break_text(text: str, columns: int) -> list[str]:
    """A text in lines that fit: a word that is too long is broken, for cut off it could be another."""
    import textwrap

    return textwrap.wrap(text, columns) or [""]


def draw_bar(value: float | None, limit: float, columns: int, with_ink: PlotInk) -> str:
    """A value against its limit, ``columns`` wide. What is beyond the limit fills it with another sign."""
    if value is None or limit <= 0:
        return with_ink.unknown * columns
    if value > limit:
        return with_ink.over * columns
    filled = round(columns * max(0.0, value) / limit)
    # What is more than nothing is seen.
    filled = max(filled, 1 if value > 0 else 0)
    return with_ink.full * filled + with_ink.rest * (columns - filled)


def draw_line(values: Sequence[float | None], top: float, with_ink: PlotInk) -> str:
    """A line of one sign a value: from nothing to ``top`` and beyond."""
    return "".join(_step(value, top, with_ink) for value in values)


def _step(value: float | None, top: float, with_ink: PlotInk) -> str:
    if value is None:
        return with_ink.unknown
    last = len(with_ink.steps) - 1
    share = value / top if top > 0 else 0.0
    return with_ink.steps[min(last, max(0, round(share * last)))]
