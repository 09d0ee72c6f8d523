"""Runs as bars of bytes, and a line of how long they took."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from zvault.api.runs import RunDocument
from zvault.cli.output import choose_colour, paint_text
from zvault.cli.plot import LEAST_PLOT_WIDTH, PlotInk, break_text, choose_ink, draw_bar, draw_line
from zvault.cli.tables import format_cell, format_local_time
from zvault.core.units import format_duration

RUN_BAR_WIDTH = 12
"""Columns of a bar beside its run; where there are fewer, it stands under it."""


def plot_runs(runs: Sequence[RunDocument], columns: int) -> Iterator[str]:
    """The lines for runs in this order, at most ``columns`` wide, from 20 on."""
    columns, drawn = max(LEAST_PLOT_WIDTH, columns), choose_ink(sys.stdout.encoding)
    most = float(max(run["bytes"] for run in runs))
    several = len({run["backup"] for run in runs}) > 1
    heads = [_head(run, several) for run in runs]
    tails = [_tail(run) for run in runs]
    left, right = (max(map(len, some)) for some in (heads, tails))
    beside = columns - left - right - 4
    for run, head, tail in zip(runs, heads, tails, strict=True):
        colour = choose_colour(_result(run))
        if beside >= RUN_BAR_WIDTH:
            shown = draw_bar(float(run["bytes"]), most, beside, drawn)
            yield f"{head:<{left}}  {shown}  {paint_text(tail, colour, sys.stdout)}"
            continue
        yield from break_text(head, columns)
        yield from (paint_text(piece, colour, sys.stdout) for piece in break_text(tail, columns))
        yield draw_bar(float(run["bytes"]), most, columns, drawn)
    yield ""
    yield from _took(runs, columns, drawn)


def _result(run: RunDocument) -> str:
    return run["result"] or "running"


def _head(run: RunDocument, several: bool) -> str:
    return format_local_time(run["started"]) + (f" {run['backup']}" if several else "")


def _tail(run: RunDocument) -> str:
    size, took = format_cell(run["bytes"], "size", False), format_cell(run["seconds"], "duration", False)
    return f"{size} {took} {_result(run)}"


def _took(runs: Sequence[RunDocument], columns: int, drawn: PlotInk) -> Iterator[str]:
    """How long they took, run by run: of the newest, as many as there is room for."""
    seconds = [run["seconds"] for run in runs[-columns:]]
    longest = max((one for one in seconds if one is not None), default=0.0)
    yield draw_line(seconds, longest, drawn)
    yield from break_text(f"how long they took: {format_duration(longest)} at most", columns)
