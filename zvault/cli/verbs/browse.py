"""zvaultctl browse: the versions of a path over time, on both sides."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import typer

from zvault.api import routes
from zvault.api.browse import LookBody, PastDocument
from zvault.cli import completion
from zvault.cli.browser.feed import Feed
from zvault.cli.browser.frame import KINDS
from zvault.cli.browser.screen import run
from zvault.cli.browser.state import Restore, Walk, plain
from zvault.cli.client import Client, socket_path
from zvault.cli.options import AsJson, BackupName, Chosen, Exact, TableForm, Tabs
from zvault.cli.output import OK, TROUBLE, YELLOW, clean, complain, document, say_all, tell
from zvault.cli.tables import Column, chosen, table
from zvault.cli.terminal import can_show
from zvault.cli.verbs.restore import restore
from zvault.cli.waiting import answered
from zvault.core.errors import ZvaultError

SIDES: Mapping[str, Literal["source", "vault"]] = {"source": "source", "vault": "vault"}

VERSIONS = [
    Column("state"),
    Column("kind", get=lambda row: KINDS.get(row["kind"], row["kind"])),
    Column("size", "size"),
    Column("mtime", "time", header="MODIFIED"),
    Column("from", "time"),
    Column("until", "time"),
    Column("source", "count"),
    Column("vault", "count"),
    Column("first", header="FIRST SNAPSHOT"),
    Column("last", header="LAST SNAPSHOT"),
    Column("link"),
    Column("restore"),
]
VERSIONS_SHOWN = ["state", "size", "mtime", "from", "until", "source", "vault", "last"]

NAMES = [
    Column("name"),
    Column("state"),
    *[column for column in VERSIONS if column.name not in {"state", "first"}],
    Column("versions", "count"),
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
            autocompletion=completion.datasets_and_snapshots,
            show_default=False,
        ),
    ] = None,
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
    command that is shown; Left goes back, q quits. Without a terminal, and with -t, -H, -p, -o, -j or --itself, it is a
    table.

    The vault is brought up and kept up, and the snapshots are held, until it is over; Ctrl-C ends that at once. No
    symbolic link is followed. What cannot be looked into is told: the vault's side of an encrypted dataset while its
    key is not loaded there.

    Exit status: 0 shown; 1 something could not be looked into; 2 PATH is in no snapshot, or none can be read.
    """
    if side is not None and side not in SIDES:
        raise typer.BadParameter("write source or vault", param_hint="--side")
    request = look(backup, path, dataset, side)
    if not (as_table or tabs or exact or columns or json or itself) and can_show():
        run(Feed(Client(socket_path()), request), Walk(), lambda wanted: _restore(backup, wanted))
        raise typer.Exit(OK)
    found = answered(routes.BROWSE, request)
    if json:
        document("browse", found)
    elif found["names"] and not itself:
        shown = chosen(NAMES, columns, NAMES_SHOWN)
        say_all(table(shown, [_row(one) for one in found["names"]], TableForm(tabs=tabs, exact=exact)))
    else:
        shown = chosen(VERSIONS, columns, VERSIONS_SHOWN)
        say_all(table(shown, found["versions"], TableForm(tabs=tabs, exact=exact)))
    raise typer.Exit(_left_out(found, quiet=json or tabs))


def look(backup: str, path: str, dataset: str | None, side: str | None) -> LookBody:
    """Make the request; without a dataset a path begins where the command is run."""
    where = path if dataset is not None else os.path.abspath(path)  # noqa: PTH100 - links are not followed
    request: LookBody = {"backup": backup, "dataset": dataset, "path": "" if where == "." else where}
    if side is not None:
        request["side"] = SIDES[side]
    return request


def _row(name: Mapping[str, Any]) -> dict[str, Any]:
    """A name in a folder as a row: its newest version, and whether it is still there."""
    return {
        **name["newest"],
        "name": name["name"],
        "versions": name["versions"],
        "state": "there" if name["there"] else "vanished",
    }


def _left_out(found: PastDocument, *, quiet: bool) -> int:
    """Tell what was not looked into, and how to restore; the exit status."""
    sys.stdout.flush()  # this is about what was shown
    for what, why in found["unread"].items():
        tell(f"{clean(what)} was not looked into: {clean(why)}", YELLOW)
    if found["more"]:
        tell("there are more names than are shown: browse a folder below", YELLOW)
    command = next((one["restore"] for one in found["versions"] if one["restore"]), None)
    if not quiet and command is not None:
        tell(f"the newest in the vault: {clean(command)}")
    return TROUBLE if found["unread"] or found["more"] else OK


def _restore(backup: str, wanted: Restore) -> None:
    """Restore what was chosen on the screen, as the command that was shown does; then somebody has read how it went."""
    files = [plain(wanted.path)] if wanted.path else None
    with contextlib.suppress(typer.Exit, KeyboardInterrupt):
        try:
            restore(backup, wanted.snapshot, wanted.to, file=files)
        except ZvaultError as error:
            complain(error)
    tell("Enter goes back")
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        input()
