"""zvaultctl diff: what changed between two snapshots."""

from __future__ import annotations

from typing import Annotated

import typer

from zvault.api import routes
from zvault.api.browse import DiffBody, DiffDocument
from zvault.cli import completion
from zvault.cli.browser.frame import FILE_KIND_WORDS, format_content_lines
from zvault.cli.choose_vault import OfVault, ask_of_best, name_of_vault
from zvault.cli.event_text import format_plural
from zvault.cli.options import AsJson, BackupName, Chosen, Exact, TableForm, Tabs
from zvault.cli.output import (
    OK_STATUS,
    TROUBLE_STATUS,
    USAGE_STATUS,
    YELLOW,
    clean_line,
    print_document,
    print_line,
    print_lines,
    print_trouble,
)
from zvault.cli.tables import TableColumn, choose_columns, format_table
from zvault.cli.wait_for_answer import wait_for_answer

DIFF_COLUMNS = [
    TableColumn("change"),
    TableColumn("kind", get=lambda row: FILE_KIND_WORDS.get(row["kind"], row["kind"])),
    TableColumn("path"),
    TableColumn("to", header="NEW PATH"),
    TableColumn("what", get=lambda row: ", ".join(row["what"])),
]

Snapshot = Annotated[
    str, typer.Argument(hidden=True, autocompletion=completion.complete_datasets_and_snapshots)
]


def diff(  # noqa: PLR0913, PLR0917 - each is an option of the command
    backup: BackupName,
    old: Snapshot,
    new: Snapshot,
    path: Annotated[str | None, typer.Argument(hidden=True)] = None,
    vault: OfVault = None,
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

    def ask(name: str) -> DiffDocument:
        return wait_for_answer(routes.DIFF, {**request, "backup": name})

    found = ask_of_best(name_of_vault(backup, vault), ask)
    content = found["content"]
    if json:
        print_document("diff", found)
    elif content is not None:
        print_lines(format_content_lines(found))
    elif found["changes"] or tabs:
        shown = choose_columns(DIFF_COLUMNS, columns, ["change", "kind", "path", "to", "what"])
        print_lines(format_table(shown, found["changes"], TableForm(tabs=tabs, exact=exact)))
    else:
        print_line(
            f"nothing differs from {clean_line(found['old']['snapshot'])} to {clean_line(found['new']['snapshot'])}"
        )
    if found["more"]:
        print_trouble(f"and {format_plural(found['more'], 'change')} more: name a PATH to see less", YELLOW)
    if content is not None:
        raise typer.Exit({"same": OK_STATUS, "unknown": USAGE_STATUS}.get(content["state"], TROUBLE_STATUS))
    raise typer.Exit(TROUBLE_STATUS if found["changes"] else OK_STATUS)
