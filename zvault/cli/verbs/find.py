"""zvaultctl find: the versions of files in a vault."""

from __future__ import annotations

from typing import Annotated

import typer

from zvault.api import routes
from zvault.api.restore import FindBody, FoundDocument
from zvault.cli.choose_vault import OfVault, ask_of_best, name_of_vault
from zvault.cli.daemon_client import request_action
from zvault.cli.options import AsJson, BackupName, Chosen, Exact, TableForm, Tabs
from zvault.cli.output import (
    OK_STATUS,
    TROUBLE_STATUS,
    YELLOW,
    clean_line,
    print_document,
    print_lines,
    print_trouble,
)
from zvault.cli.parse_times import parse_last_moment
from zvault.cli.tables import TableColumn, choose_columns, format_table

FIND_COLUMNS = [
    TableColumn("dataset"),
    TableColumn("path"),
    TableColumn("size", "size"),
    TableColumn("mtime", "time", header="MODIFIED"),
    TableColumn("snapshots", "count"),
    TableColumn("first", header="FIRST SNAPSHOT"),
    TableColumn("last", header="LAST SNAPSHOT"),
    TableColumn("kind"),
]
FIND_DEFAULT = ["dataset", "path", "size", "mtime", "snapshots", "last"]


def find(  # noqa: PLR0913, PLR0917 - each is an option of the command
    backup: BackupName,
    pattern: Annotated[str, typer.Argument(hidden=True)],
    vault: OfVault = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at", metavar="TIME", help="Search only the newest snapshot up to TIME.", show_default=False
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            "-d", "--dataset", metavar="DATASET", help="Search only DATASET and below.", show_default=False
        ),
    ] = None,
    tabs: Tabs = False,
    exact: Exact = False,
    columns: Chosen = None,
    json: AsJson = False,
) -> None:
    """Find files of BACKUP in its vault: every version that matches PATTERN, the newest first.

    PATTERN is a name such as '*.pdf' or, with a slash, a path below a dataset's root such as 'docs/**/thesis.*'.
    Snapshots between which a file did not change count as one version. 'zvaultctl restore BACKUP DATASET@LAST FOLDER
    --file PATH' restores it. TIME is for example '2026-11-21 09:30' or '2d ago'.

    Exit status: 0 found; 1 nothing was found, or something could not be searched.
    """
    request: FindBody = {
        "backup": name_of_vault(backup, vault),
        "pattern": pattern,
        "dataset": dataset,
        "at": None if at is None else parse_last_moment(at),
    }

    def ask(name: str) -> FoundDocument:
        return request_action(routes.FIND, {**request, "backup": name})

    found = ask_of_best(request["backup"], ask)
    if json:
        print_document("find", found)
    else:
        shown = choose_columns(FIND_COLUMNS, columns, FIND_DEFAULT)
        if found["versions"] or tabs:
            print_lines(format_table(shown, found["versions"], TableForm(tabs=tabs, exact=exact)))
        else:
            print_trouble(f"nothing in the vault of {backup} matches {clean_line(pattern)}")
    for name, why in found["unread"].items():
        print_trouble(f"{name} was not searched: {clean_line(why)}", YELLOW)
    raise typer.Exit(OK_STATUS if found["versions"] and not found["unread"] else TROUBLE_STATUS)
