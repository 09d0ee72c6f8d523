"""zvaultctl browse: the versions of a path over time, on both sides."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import typer

from zvault.api import routes
from zvault.api.browse import LookBody, PathPastDocument
from zvault.cli import completion
from zvault.cli.browser.feed import BrowseFeed
from zvault.cli.browser.frame import FILE_KIND_WORDS
from zvault.cli.browser.screen import run_browse_screen
from zvault.cli.browser.state import BrowseWalk, WantedRestore, parse_walk_path
from zvault.cli.choose_vault import OfVault, ask_of_best, list_best_first, name_of_vault
from zvault.cli.daemon_client import HttpClient, find_socket_path
from zvault.cli.options import AsJson, BackupName, Chosen, Exact, TableForm, Tabs
from zvault.cli.output import (
    OK_STATUS,
    TROUBLE_STATUS,
    YELLOW,
    clean_line,
    print_document,
    print_error,
    print_lines,
    print_trouble,
)
from zvault.cli.tables import TableColumn, choose_columns, format_table
from zvault.cli.terminal import is_usable_terminal
from zvault.cli.verbs.restore import restore
from zvault.cli.wait_for_answer import wait_for_answer
from zvault.core.errors import ZvaultError

SIDE_WORDS: Mapping[str, Literal["source", "vault"]] = {"source": "source", "vault": "vault"}

VERSION_COLUMNS = [
    TableColumn("state"),
    TableColumn("kind", get=lambda row: FILE_KIND_WORDS.get(row["kind"], row["kind"])),
    TableColumn("size", "size"),
    TableColumn("mtime", "time", header="MODIFIED"),
    TableColumn("from", "time"),
    TableColumn("until", "time"),
    TableColumn("source", "count"),
    TableColumn("vault", "count"),
    TableColumn("first", header="FIRST SNAPSHOT"),
    TableColumn("last", header="LAST SNAPSHOT"),
    TableColumn("link"),
    TableColumn("restore"),
]
VERSIONS_SHOWN = ["state", "size", "mtime", "from", "until", "source", "vault", "last"]

NAME_COLUMNS = [
    TableColumn("name"),
    TableColumn("state"),
    *[column for column in VERSION_COLUMNS if column.name not in {"state", "first"}],
    TableColumn("versions", "count"),
]
NAMES_SHOWN = ["name", "state", "kind", "size", "mtime", "versions", "from", "until"]


def browse(  # noqa: PLR0913, PLR0917 - each is an option of the command
    backup: BackupName,
    path: Annotated[str, typer.Argument(hidden=True)] = ".",
    dataset: Annotated[
        str | None,
        typer.Option(
            "-d",
            "--dataset",
            metavar="DATASET",
            help="PATH is below the root of DATASET.",
            autocompletion=completion.complete_datasets_and_snapshots,
            show_default=False,
        ),
    ] = None,
    vault: OfVault = None,
    side: Annotated[
        str | None,
        typer.Option("--side", metavar="source|vault", help="Look on one side only.", show_default=False),
    ] = None,
    itself: Annotated[
        bool, typer.Option("--itself", help="Of a folder its own versions, not what is in it.")
    ] = False,
    as_table: Annotated[bool, typer.Option("-t", "--table", help="A table, on a terminal too.")] = False,
    tabs: Tabs = False,
    exact: Exact = False,
    columns: Chosen = None,
    json: AsJson = False,
) -> None:
    """Show the versions of PATH over time, in the snapshots of the source and of the vault.

    PATH is a file or folder as on the source, by default the current one; with -d it is below the dataset's root, also
    of one that the source has no more. Snapshots between which nothing changed (type, inode, size, time) are one line;
    SOURCE and VAULT count them. STATE is there (in the oldest snapshot: when it came is not known), appeared, changed
    or vanished. Of a folder all names that were ever in it are shown, with -o all the command that restores each.

    On a terminal it is a screen to walk through: Enter opens a folder or the versions of a file, and on a version shows
    how it differs from the one before, or from one that was marked with m; r restores a version into a folder, by the
    command that is shown; n looks into the next vault of a backup with several; Left goes back, q quits. Without a
    terminal, and with -t, -H, -p, -o, -j or --itself, it is a table.

    The vault is brought up and kept up, and the snapshots are held, until it is over; Ctrl-C ends that at once. No
    symbolic link is followed. What cannot be looked into is told: the vault's side of an encrypted dataset while its
    key is not loaded there.

    Exit status: 0 shown; 1 something could not be looked into; 2 PATH is in no snapshot, or none can be read.
    """
    if side is not None and side not in SIDE_WORDS:
        raise typer.BadParameter("write source or vault", param_hint="--side")
    backup = name_of_vault(backup, vault)
    request = make_look_body(backup, path, dataset, side)
    if not (as_table or tabs or exact or columns or json or itself) and is_usable_terminal():
        run_browse_screen(
            [
                BrowseFeed(HttpClient(find_socket_path()), {**request, "backup": name})
                for name in list_best_first(backup)
            ],
            BrowseWalk(),
            _restore,
        )
        raise typer.Exit(OK_STATUS)

    def ask(name: str) -> PathPastDocument:
        return wait_for_answer(routes.BROWSE, {**request, "backup": name})

    found = ask_of_best(backup, ask)
    if json:
        print_document("browse", found)
    elif found["names"] and not itself:
        shown = choose_columns(NAME_COLUMNS, columns, NAMES_SHOWN)
        print_lines(
            format_table(shown, [_row(one) for one in found["names"]], TableForm(tabs=tabs, exact=exact))
        )
    else:
        shown = choose_columns(VERSION_COLUMNS, columns, VERSIONS_SHOWN)
        print_lines(format_table(shown, found["versions"], TableForm(tabs=tabs, exact=exact)))
    raise typer.Exit(_left_out(found, quiet=json or tabs))


def make_look_body(backup: str, path: str, dataset: str | None, side: str | None) -> LookBody:
    """Make the request; without a dataset a path begins where the command is run."""
    where = path if dataset is not None else os.path.abspath(path)  # noqa: PTH100 - links are not followed
    request: LookBody = {"backup": backup, "dataset": dataset, "path": "" if where == "." else where}
    if side is not None:
        request["side"] = SIDE_WORDS[side]
    return request


def _row(name: Mapping[str, Any]) -> dict[str, Any]:
    """A name in a folder as a row: its newest version, and whether it is still there."""
    return {
        **name["newest"],
        "name": name["name"],
        "versions": name["versions"],
        "state": "there" if name["there"] else "vanished",
    }


def _left_out(found: PathPastDocument, *, quiet: bool) -> int:
    """Tell what was not looked into, and how to restore; the exit status."""
    sys.stdout.flush()  # this is about what was shown
    for what, why in found["unread"].items():
        print_trouble(f"{clean_line(what)} was not looked into: {clean_line(why)}", YELLOW)
    if found["more"]:
        print_trouble("there are more names than are shown: browse a folder below", YELLOW)
    command = next((one["restore"] for one in found["versions"] if one["restore"]), None)
    if not quiet and command is not None:
        print_trouble(f"the newest in the vault: {clean_line(command)}")
    return TROUBLE_STATUS if found["unread"] or found["more"] else OK_STATUS


def _restore(wanted: WantedRestore) -> None:
    """Restore what was chosen on the screen, as the command that was shown does; then somebody has read how it went."""
    files = [parse_walk_path(wanted.path)] if wanted.path else None
    with contextlib.suppress(typer.Exit, KeyboardInterrupt):
        try:
            restore(wanted.backup, wanted.snapshot, wanted.to, file=files)
        except ZvaultError as error:
            print_error(error)
    print_trouble("Enter goes back")
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        input()
