"""zvaultctl lag: how far each backup lags behind, against what is tolerated."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from zvault.api import routes
from zvault.api.runs import RunDocument
from zvault.api.status import BackupDocument
from zvault.cli import completion
from zvault.cli.choose_vault import expand_name
from zvault.cli.daemon_client import read_document
from zvault.cli.health_text import LEVEL_COLOURS, LEVEL_EXITS, find_state_word
from zvault.cli.options import AsJson, Chosen, Exact, TableForm, Tabs
from zvault.cli.output import find_width, paint_text, print_document, print_lines, print_trouble
from zvault.cli.plot import LEAST_PLOT_WIDTH, PlotInk, break_text, choose_ink, draw_bar, draw_line
from zvault.cli.tables import TableColumn, choose_columns, format_table, select_columns
from zvault.core.errors import NotFound
from zvault.core.health.verdict import select_worst_level
from zvault.core.replication.lag_over_time import measure_lag_over_time
from zvault.core.units import format_duration

PLOT_DAYS = 7
"""The days that a line of ``--plot`` shows."""

MOST_RUNS = 2000
"""Runs asked for to draw a line."""

PLOT_SPAN_TEXT = f"{PLOT_DAYS} days, as runs tell"

LAG_BAR_WIDTH = 12
"""Columns of a bar beside its name; where there are fewer, it stands under it."""

LAG_COLUMNS = [
    TableColumn("backup", key="name"),
    TableColumn("vault"),
    TableColumn("health", "state", get=find_state_word),
    TableColumn("lag", "duration", "lag_seconds", missing="unknown"),
    TableColumn("max_lag", "duration", "max_lag_seconds", header="MAX LAG"),
    TableColumn("pending", "count"),
    TableColumn("last_success", "ago", header="LAST SUCCESS"),
    TableColumn("next_run", "ago", header="NEXT RUN"),
]
LAG_DEFAULT = ("backup", "health", "lag", "max_lag", "pending", "last_success", "next_run")

Plot = Annotated[bool, typer.Option("--plot", help="Draw it: as bars, and over time as a line.")]


def lag(
    name: Annotated[
        list[str] | None,
        typer.Argument(
            help="Only these backups.", show_default=False, autocompletion=completion.complete_backups
        ),
    ] = None,
    plot: Plot = False,
    columns: Chosen = None,
    tabs: Tabs = False,
    exact: Exact = False,
    json: AsJson = False,
) -> None:
    """Show how far each backup lags behind, and how far it may.

    LAG is the age of the newest state that the vault has of the dataset that is furthest behind; PENDING are the
    snapshots that the vault lacks. With --plot a bar shows the lag against max_lag (without one against the longest
    lag of all), and a line below it the highest lags of the last 7 days, as far as runs without fault tell.
    A backup that makes snapshots only has no lag, and is left out.
    'zvaultctl explain DATASET' says what a dataset's lag rests on.

    Exit status: 0 all is well; 1 a backup is late or not well; 2 the daemon cannot be asked; 3 nothing is known to be
    wrong, and something is not known to be well.
    """
    picked = choose_columns(LAG_COLUMNS, columns, LAG_DEFAULT)
    found = _only(read_document(routes.STATUS)["backups"], name or [])
    if json:
        print_document("lag", {"backups": select_columns(picked, found) if columns else found})
    elif plot and not tabs:
        print_lines(_plotted(found, find_width(sys.stdout) or 80))
    elif found or tabs:
        print_lines(format_table(picked, found, TableForm(tabs, exact)))
    else:
        print_trouble("no backups")
    raise typer.Exit(LEVEL_EXITS[select_worst_level(one["verdict"]["level"] for one in found)])


def _only(found: list[BackupDocument], names: Sequence[str]) -> list[BackupDocument]:
    known = [one["name"] for one in found]
    meant = {name: expand_name(name, known) for name in names}
    if unknown := [name for name in names if not meant[name]]:
        raise NotFound(
            f"there is no backup '{unknown[0]}'",
            f"zvaultd knows {', '.join(sorted(known)) or 'none'}",
            "if it was added to the configuration just now, 'systemctl reload zvaultd'",
        )
    names = [one for named in meant.values() for one in named]
    for one in found:
        if one["vault"] is None and one["name"] in names:
            raise NotFound(
                f"backup '{one['name']}' has no lag",
                "it has no vault, and sends nothing anywhere",
                f"'zvaultctl status {one['name']}' tells of its snapshots",
            )
    return [one for one in found if one["vault"] is not None and (not names or one["name"] in names)]


def _plotted(found: Sequence[BackupDocument], columns: int) -> Iterator[str]:
    columns, drawn = max(LEAST_PLOT_WIDTH, columns), choose_ink(sys.stdout.encoding)
    longest = max((one["lag_seconds"] or 0.0 for one in found), default=0.0)
    room = max((len(one["name"]) for one in found), default=0)
    beside = (
        columns
        - room
        - 4
        - max((len(text) for one in found for text in (_told(one), PLOT_SPAN_TEXT)), default=0)
    )
    wide = beside if beside >= LAG_BAR_WIDTH else columns
    for number, one in enumerate(found):
        limit = one["max_lag_seconds"] or longest
        colour = LEVEL_COLOURS[one["verdict"]["level"]]
        shown = draw_bar(one["lag_seconds"], limit, wide, drawn)
        over = _over_time(one, limit, wide, drawn)
        if wide == beside:
            yield f"{one['name']:<{room}}  {shown}  {paint_text(_told(one), colour, sys.stdout)}"
            yield f"{'':<{room}}  {over}  {PLOT_SPAN_TEXT}"
            continue
        yield from [""][: 1 if number else 0]
        yield from break_text(one["name"], columns)
        yield shown
        yield from (paint_text(piece, colour, sys.stdout) for piece in break_text(_told(one), columns))
        yield over
    yield ""
    for text in (f"{drawn.over * 3} beyond the limit", f"{drawn.unknown * 3} not known"):
        yield from break_text(text, columns)


def _told(one: BackupDocument) -> str:
    """The lag and the state in words: ``1h 2m of 3h ok``."""
    lag_now = "unknown" if one["lag_seconds"] is None else format_duration(one["lag_seconds"])
    limit = f" of {format_duration(one['max_lag_seconds'])}" if one["max_lag_seconds"] is not None else ""
    late = " and late" if one["late"] and find_state_word(one) != "late" else ""
    return f"{lag_now}{limit} {find_state_word(one)}{late}"


def _over_time(one: BackupDocument, limit: float, columns: int, drawn: PlotInk) -> str:
    runs: Sequence[RunDocument] = []
    if one["last_success"] is not None:
        runs = read_document(routes.HISTORY, backup=one["name"], limit=MOST_RUNS)["runs"]
    good = [
        (run["started"], run["ended"])
        for run in runs
        if run["result"] == "ok" and run["ended"] is not None and run["trigger"] not in _OTHER
    ]
    now = time.time()
    values = measure_lag_over_time(good, now - PLOT_DAYS * 86400, now, columns)
    return draw_line(values, limit or max((value or 0.0 for value in values), default=0.0), drawn)


_OTHER = ("restore", "prune", "scrub", "heal", "verify")
"""Triggers of runs that back nothing up."""
