"""zvaultctl diff: what changed between two snapshots."""

from __future__ import annotations

from typing import Annotated

import typer

from zvault.api import routes
from zvault.api.browse import DiffBody
from zvault.cli import completion
from zvault.cli.browser.frame import KINDS, content_lines
from zvault.cli.event_text import plural
from zvault.cli.options import AsJson, BackupName, Chosen, Exact, TableForm, Tabs
from zvault.cli.output import OK, TROUBLE, USAGE, YELLOW, clean, document, say, say_all, tell
from zvault.cli.tables import Column, chosen, table
from zvault.cli.waiting import answered

COLUMNS = [
    Column("change"),
    Column("kind", get=lambda row: KINDS.get(row["kind"], row["kind"])),
    Column("path"),
    Column("to", header="NEW PATH"),
    Column("what", get=lambda row: ", ".join(row["what"])),
]

Snapshot = Annotated[str, typer.Argument(hidden=True, autocompletion=completion.datasets_and_snapshots)]


def diff(  # noqa: PLR0913, PLR0917 - each is an option of the command
    backup: BackupName,
    old: Snapshot,
    new: Snapshot,
    path: Annotated[str | None, typer.Argument(hidden=True)] = None,
    tabs: Tabs = False,
    exact: Exact = False,
    columns: Chosen = None,
    json: AsJson = False,
) -> None:
    """Show what changed from snapshot OLD to NEW of a dataset of BACKUP, below PATH only if that is given.

    OLD and NEW are DATASET@SNAPSHOT, by the dataset's name on the source or on the vault, on one side or on both: PATH
    is below its root, or begins with a slash and is as on the source. Where the source has both snapshots mounted it is
    'zfs diff' that tells; else both are mounted, and inodes are compared by type, size, times, mode, owner and link.
    A name that would control the terminal is shown escaped.

    If PATH is a file, the lines that differ are shown as 'diff -u' does. Of one that is no text only that it differs is
    told, of one larger than 1 MiB nothing.

    Exit status: 0 nothing differs; 1 something does; 2 it cannot be told.
    """
    request: DiffBody = {"backup": backup, "old": old, "new": new, "path": path}
    found = answered(routes.DIFF, request)
    content = found["content"]
    if json:
        document("diff", found)
    elif content is not None:
        say_all(content_lines(found))
    elif found["changes"] or tabs:
        shown = chosen(COLUMNS, columns, ["change", "kind", "path", "to", "what"])
        say_all(table(shown, found["changes"], TableForm(tabs=tabs, exact=exact)))
    else:
        say(f"nothing differs from {clean(found['old']['snapshot'])} to {clean(found['new']['snapshot'])}")
    if found["more"]:
        tell(f"and {plural(found['more'], 'change')} more: name a PATH to see less", YELLOW)
    if content is not None:
        raise typer.Exit({"same": OK, "unknown": USAGE}.get(content["state"], TROUBLE))
    raise typer.Exit(TROUBLE if found["changes"] else OK)
