"""zvaultctl find: the versions of files in a vault."""

from __future__ import annotations

from typing import Annotated

import typer

from zvault.api import routes
from zvault.api.restore import FindBody
from zvault.cli.client import act
from zvault.cli.options import AsJson, BackupName, Chosen, Exact, TableForm, Tabs
from zvault.cli.output import OK, TROUBLE, YELLOW, clean, document, say_all, tell
from zvault.cli.tables import Column, chosen, table
from zvault.cli.times import until

COLUMNS = [
    Column("dataset"),
    Column("path"),
    Column("size", "size"),
    Column("mtime", "time", header="MODIFIED"),
    Column("snapshots", "count"),
    Column("first", header="FIRST SNAPSHOT"),
    Column("last", header="LAST SNAPSHOT"),
    Column("kind"),
]
SHOWN = ["dataset", "path", "size", "mtime", "snapshots", "last"]


def find(  # noqa: PLR0913, PLR0917 - each is an option of the command
    backup: BackupName,
    pattern: Annotated[str, typer.Argument(hidden=True)],
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
        "backup": backup,
        "pattern": pattern,
        "dataset": dataset,
        "at": None if at is None else until(at),
    }
    found = act(routes.FIND, request)
    if json:
        document("find", found)
    else:
        shown = chosen(COLUMNS, columns, SHOWN)
        if found["versions"] or tabs:
            say_all(table(shown, found["versions"], TableForm(tabs=tabs, exact=exact)))
        else:
            tell(f"nothing in the vault of {backup} matches {clean(pattern)}")
    for name, why in found["unread"].items():
        tell(f"{name} was not searched: {clean(why)}", YELLOW)
    raise typer.Exit(OK if found["versions"] and not found["unread"] else TROUBLE)
