"""zvaultctl list and history: what is backed up, and how the runs went."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated

import typer

from zvault.api import routes
from zvault.cli import completion
from zvault.cli.client import read
from zvault.cli.options import AsJson, Chosen, Exact, TableForm, Tabs
from zvault.cli.output import clean, document, say_all, tell, width, wrapped
from zvault.cli.run_plot import plotted
from zvault.cli.tables import Column, Row, chosen, restricted, table

OneBackup = Annotated[
    str | None,
    typer.Argument(help="Only this backup.", show_default=False, autocompletion=completion.backups),
]


class ListKind(StrEnum):
    """A kind of thing that ``list`` lists."""

    dataset = "dataset"
    snapshot = "snapshot"
    gone = "gone"


DATASETS = [
    Column("name", key="dataset"),
    Column("backup"),
    Column("type"),
    Column("used", "size"),
    Column("snaps", "count", "snapshots_source"),
    Column("vaulted", "count", "snapshots_vault"),
    Column("pending", "count"),
    Column("lag", "duration", "lag_seconds"),
    Column("base"),
    Column("into", key="vault_dataset"),
    Column("resumable", "bool"),
]
DATASETS_DEFAULT = ("name", "backup", "used", "snaps", "vaulted", "pending", "lag")

SNAPSHOTS = [
    Column("name", get=lambda row: f"{row['dataset']}@{row['snapname']}"),
    Column("backup"),
    Column("dataset"),
    Column("snapname"),
    Column("source", "bool", "on_source"),
    Column("vault", "bool", "on_vault"),
    Column("base", "bool"),
    Column("creation", "time"),
    Column("guid"),
]
SNAPSHOTS_DEFAULT = ("name", "source", "vault", "base", "creation")

GONE = [
    Column("name", key="vault_dataset"),
    Column("backup"),
    Column("state"),
    Column("used", "size"),
    Column("vaulted", "count", "snapshots_vault"),
    Column("newest", "time"),
]
KNOWN = {
    "dataset": ("datasets", DATASETS, DATASETS_DEFAULT),
    "snapshot": ("snapshots", SNAPSHOTS, SNAPSHOTS_DEFAULT),
    "gone": ("gone", GONE, tuple(column.name for column in GONE)),
}

RUNS = [
    Column("run", key="id"),
    Column("backup"),
    Column("trigger"),
    Column("started", "time"),
    Column("ended", "time"),
    Column("took", "duration", "seconds"),
    Column("result", "state", get=lambda run: run["result"] or "running"),
    Column("datasets", "count"),
    Column("sent", "count"),
    Column("bytes", "size"),
    Column("pruned", "count"),
    Column("error", get=lambda run: (run["error"] or {}).get("what")),
    Column("warning"),
]
RUNS_DEFAULT = ("run", "backup", "trigger", "started", "took", "result", "sent", "bytes", "pruned")


def list_(
    backup: OneBackup = None,
    kind: Annotated[
        ListKind, typer.Option("-t", "--type", help="What to list, instead of datasets.", show_default=False)
    ] = ListKind.dataset,
    columns: Chosen = None,
    tabs: Tabs = False,
    exact: Exact = False,
    json: AsJson = False,
) -> None:
    """List datasets; with '-t snapshot' their snapshots, with '-t gone' what a vault has besides.

    That is what the source no longer has, and what was set aside.

    SNAPS are the snapshots on the source, VAULTED those on the vault, PENDING those still to be sent;
    LAG is the age of the newest state that is on the vault.
    """
    snapshots = kind is ListKind.snapshot
    found = read(routes.LIST, backup=backup, snapshots=int(snapshots))
    rows: dict[str, Sequence[Row]] = {
        "datasets": found["datasets"],
        "snapshots": found.get("snapshots", []),
        "gone": found["gone"],
    }
    noun, known, default = KNOWN[kind]
    picked, form = chosen(known, columns, default), TableForm(tabs, exact)
    if kind is ListKind.gone and (down := found.get("gone_unknown")):
        _print_gone(rows[noun], down, picked, form, json, columns)
    else:
        _print("list", noun, rows[noun], picked, form, json, columns)


def _print_gone(
    rows: Sequence[Row],
    down: Sequence[str],
    columns: list[Column],
    form: TableForm,
    json: bool,
    wanted: str | None,
) -> None:
    """What vaults have besides, where some of them are ``down``: of those it is not known, which is not none."""
    if json:
        document("list", {"gone": restricted(columns, rows) if wanted else rows, "gone_unknown": down})
        return
    if rows or form.tabs:
        say_all(table(columns, rows, form))
    names = ", ".join(down)
    tell(
        f"what the vault of {names} has besides is not known: it is down ('zvaultctl plan {down[0]}' brings it up)"
    )


def history(
    backup: OneBackup = None,
    limit: Annotated[int, typer.Option("-l", "--limit", min=1, help="How many runs, the newest first.")] = 20,
    plot: Annotated[bool, typer.Option("--plot", help="Draw them: a bar of bytes for each run.")] = False,
    columns: Chosen = None,
    tabs: Tabs = False,
    exact: Exact = False,
    json: AsJson = False,
) -> None:
    """Show past runs, and why some failed.

    With --plot the oldest comes first: a bar shows the bytes of each run against the most of them, and a line how long
    they took.
    """
    picked = chosen(RUNS, columns, (*RUNS_DEFAULT, "error") if tabs else RUNS_DEFAULT)
    runs = read(routes.HISTORY, backup=backup, limit=limit)["runs"]
    if plot and runs and not (json or tabs):
        say_all(plotted(runs[::-1], width(sys.stdout) or 80))
        return
    _print("history", "runs", runs, picked, TableForm(tabs, exact), json, columns)


def _error_note(row: Row) -> Iterable[str]:
    if error := row.get("error"):
        text = f"{error['what']}: {error['why']}" if error["why"] else error["what"]
        yield from wrapped(clean(text), "    ", width(sys.stdout))
    if warning := row.get("warning"):
        yield from wrapped(clean(warning), "    ", width(sys.stdout))


def _print(
    verb: str,
    noun: str,
    rows: Sequence[Row],
    columns: list[Column],
    form: TableForm,
    json: bool,
    wanted: str | None,
) -> None:
    if json:
        document(verb, {noun: restricted(columns, rows) if wanted else rows})
    elif rows or form.tabs:
        # Whoever chose the columns wants no more than those.
        say_all(table(columns, rows, form, notes=_error_note if wanted is None else None))
    else:
        tell(f"no {noun}")
