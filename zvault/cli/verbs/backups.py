"""zvaultctl list and history: what is backed up, and how the runs went."""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable, Sequence
from enum import StrEnum
from typing import Annotated

import typer

from zvault.api import routes
from zvault.cli import completion
from zvault.cli.choose_vault import OfVault, name_of_vault
from zvault.cli.daemon_client import read_document
from zvault.cli.options import AsJson, Chosen, Exact, TableForm, Tabs
from zvault.cli.output import clean_line, find_width, print_document, print_lines, print_trouble, wrap_text
from zvault.cli.run_plot import plot_runs
from zvault.cli.tables import TableColumn, TableRow, choose_columns, format_table, select_columns

OneBackup = Annotated[
    str | None,
    typer.Argument(help="Only this backup.", show_default=False, autocompletion=completion.complete_backups),
]


class ListKind(StrEnum):
    """A kind of thing that ``list`` lists."""

    dataset = "dataset"
    snapshot = "snapshot"
    gone = "gone"


LIST_COLUMNS = [
    TableColumn("name", key="dataset"),
    TableColumn("backup"),
    TableColumn("type"),
    TableColumn("used", "size"),
    TableColumn("snaps", "count", "snapshots_source"),
    TableColumn("vaulted", "count", "snapshots_vault"),
    TableColumn("pending", "count"),
    TableColumn("lag", "duration", "lag_seconds"),
    TableColumn("base"),
    TableColumn("into", key="vault_dataset"),
    TableColumn("resumable", "bool"),
]
LIST_DEFAULT = ("name", "backup", "used", "snaps", "vaulted", "pending", "lag")

SNAPSHOT_COLUMNS = [
    TableColumn("name", get=lambda row: f"{row['dataset']}@{row['snapname']}"),
    TableColumn("backup"),
    TableColumn("dataset"),
    TableColumn("snapname"),
    TableColumn("source", "bool", "on_source"),
    TableColumn("vault", "bool", "on_vault"),
    TableColumn("base", "bool"),
    TableColumn("creation", "time"),
    TableColumn("guid"),
]
SNAPSHOTS_DEFAULT = ("name", "source", "vault", "base", "creation")

GONE_COLUMNS = [
    TableColumn("name", key="vault_dataset"),
    TableColumn("backup"),
    TableColumn("state"),
    TableColumn("used", "size"),
    TableColumn("vaulted", "count", "snapshots_vault"),
    TableColumn("newest", "time"),
]
LIST_KINDS = {
    "dataset": ("datasets", LIST_COLUMNS, LIST_DEFAULT),
    "snapshot": ("snapshots", SNAPSHOT_COLUMNS, SNAPSHOTS_DEFAULT),
    "gone": ("gone", GONE_COLUMNS, tuple(column.name for column in GONE_COLUMNS)),
}

HISTORY_COLUMNS = [
    TableColumn("run", key="id"),
    TableColumn("backup"),
    TableColumn("trigger", spare=1),
    TableColumn("started", "time"),
    TableColumn("ended", "time"),
    TableColumn("took", "duration", "seconds"),
    TableColumn("result", "state", get=lambda run: run["result"] or "running"),
    TableColumn("datasets", "count"),
    TableColumn("sent", "count", spare=2),
    TableColumn("bytes", "size"),
    TableColumn("pruned", "count", spare=3),
    TableColumn("error", get=lambda run: (run["error"] or {}).get("what")),
    TableColumn("warning"),
]
RUNS_DEFAULT = ("run", "backup", "trigger", "started", "took", "result", "sent", "bytes", "pruned")


def list_(
    backup: OneBackup = None,
    kind: Annotated[
        ListKind, typer.Option("-t", "--type", help="What to list, instead of datasets.", show_default=False)
    ] = ListKind.dataset,
    vault: OfVault = None,
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
    if vault is not None and backup is None:
        raise typer.BadParameter("name the backup", param_hint="BACKUP")
    backup = name_of_vault(backup, vault) if backup is not None else None
    found = read_document(routes.LIST, backup=backup, snapshots=int(snapshots))
    rows: dict[str, Sequence[TableRow]] = {
        "datasets": found["datasets"],
        "snapshots": found.get("snapshots", []),
        "gone": found["gone"],
    }
    noun, known, default = LIST_KINDS[kind]
    picked, form = choose_columns(known, columns, default), TableForm(tabs, exact)
    unlisted = found.get("unlisted", [])
    if kind is ListKind.gone and (unknown := found.get("gone_unknown")):
        partial = {one["backup"] for one in unlisted}
        _print_gone(rows[noun], unknown, partial, picked, form, json, columns)
    elif json and unlisted:
        chosen = select_columns(picked, rows[noun]) if columns else rows[noun]
        print_document("list", {noun: chosen, "unlisted": unlisted})
    else:
        _print("list", noun, rows[noun], picked, form, json, columns)
    for one in unlisted if not json else ():
        print_trouble(f"not all of backup {one['backup']} is known: {clean_line(one['why'])}")


def _print_gone(
    rows: Sequence[TableRow],
    unknown: Sequence[str],
    partial: Container[str],
    columns: list[TableColumn],
    form: TableForm,
    json: bool,
    wanted: str | None,
) -> None:
    """What vaults have besides, where that is not known of some backups, which is not none: their vault is down, or
    something of them cannot be listed (``partial``).
    """
    if json:
        print_document(
            "list", {"gone": select_columns(columns, rows) if wanted else rows, "gone_unknown": unknown}
        )
        return
    if rows or form.tabs:
        print_lines(format_table(columns, rows, form))
    down = [name for name in unknown if name not in partial]
    if down:
        print_trouble(
            f"what the vault of {', '.join(down)} has besides is not known: it is down ('zvaultctl plan {down[0]}'"
            " brings it up)"
        )
    if hurt := [name for name in unknown if name in partial]:
        print_trouble(f"what the vault of {', '.join(hurt)} has besides is not known: not all can be listed")


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
    picked = choose_columns(HISTORY_COLUMNS, columns, (*RUNS_DEFAULT, "error") if tabs else RUNS_DEFAULT)
    runs = read_document(routes.HISTORY, backup=backup, limit=limit)["runs"]
    if plot and runs and not (json or tabs):
        print_lines(plot_runs(runs[::-1], find_width(sys.stdout) or 80))
        return
    _print("history", "runs", runs, picked, TableForm(tabs, exact), json, columns)


def _error_note(row: TableRow) -> Iterable[str]:
    if error := row.get("error"):
        text = f"{error['what']}: {error['why']}" if error["why"] else error["what"]
        yield from wrap_text(clean_line(text), "    ", find_width(sys.stdout))
    if warning := row.get("warning"):
        yield from wrap_text(clean_line(warning), "    ", find_width(sys.stdout))


def _print(
    verb: str,
    noun: str,
    rows: Sequence[TableRow],
    columns: list[TableColumn],
    form: TableForm,
    json: bool,
    wanted: str | None,
) -> None:
    if json:
        print_document(verb, {noun: select_columns(columns, rows) if wanted else rows})
    elif rows or form.tabs:
        # Whoever chose the columns wants no more than those.
        print_lines(format_table(columns, rows, form, notes=_error_note if wanted is None else None))
    else:
        print_trouble(f"no {noun}")
