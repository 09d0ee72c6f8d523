"""zvaultctl holds: zvault's holds and bookmarks on sources and vaults, what they are for, and which are orphaned."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from zvault.api import routes
from zvault.api.backups import HoldDocument
from zvault.cli.daemon_client import read_document, request_action
from zvault.cli.event_text import format_tally
from zvault.cli.options import AsJson, Chosen, Exact, TableForm, Tabs, Yes
from zvault.cli.output import (
    OK_STATUS,
    TROUBLE_STATUS,
    USAGE_STATUS,
    print_document,
    print_line,
    print_lines,
    print_trouble,
)
from zvault.cli.tables import TableColumn, choose_columns, format_table, select_columns

HOLD_COLUMNS = [
    TableColumn("name"),
    TableColumn("kind"),
    TableColumn("vault", get=lambda row: row["vault"] or row["vault_guid"]),
    # The age of the snapshot that it keeps.
    TableColumn("age", "duration", get=lambda row: time.time() - row["creation"]),
    TableColumn("state", "state"),
    TableColumn("reason"),
    TableColumn("host"),
    TableColumn("dataset"),
    TableColumn("creation", "time"),
    TableColumn("guid"),
    TableColumn("vault_guid"),
]
HOLD_DEFAULT = ("name", "kind", "vault", "age", "state", "reason")


def holds(
    reap: Annotated[bool, typer.Option("--reap", help="Release orphaned holds and bookmarks.")] = False,
    vault_guid: Annotated[
        str | None,
        typer.Option(
            "--vault-guid",
            metavar="GUID",
            help="Only those made for this pool; with --reap also those whose vault is unknown. "
            "Make sure that the pool is gone for good, or that no host uses it as a vault.",
            show_default=False,
        ),
    ] = None,
    yes: Yes = False,
    columns: Chosen = None,
    tabs: Tabs = False,
    exact: Exact = False,
    json: AsJson = False,
) -> None:
    """List zvault's holds and bookmarks on the sources; they protect the base of each vault. And those on the vaults
    that are up: of the newest snapshot of each dataset, and of those that weekly, monthly and yearly rules keep.

    STATE is "in use", also by a vault that is down; "orphaned" if no configured vault needs it; or "unknown" if a vault
    is down and zvault does not know which pool it had, or it had several. --reap releases orphaned ones, and with
    --vault-guid also unknown ones, but never those in use.

    Exit status: 0 fine; 1 something could not be looked at; 2 --yes is missing.
    """
    picked, form = choose_columns(HOLD_COLUMNS, columns, HOLD_DEFAULT), TableForm(tabs, exact)
    guid = vault_guid.lower().removeprefix("0x") if vault_guid is not None else None
    answer = read_document(routes.HOLDS)
    unknown = answer.get("unknown", [])
    found = [one for one in answer["holds"] if guid is None or one["vault_guid"] == guid]
    if reap:
        found = [one for one in found if one["state"] == "orphaned" or (guid and one["state"] != "in use")]
        if yes and found:
            found = request_action(routes.REAP, {"vault_guid": guid})["holds"]
    if json:
        rows = select_columns(picked, found) if columns else found
        print_document("holds", {"holds": rows, "unknown": unknown})
    elif found or tabs:
        print_lines(format_table(picked, found, form))
    if not json and not tabs:
        _conclude(found, reap, reap and yes)
    if reap and found and not yes:
        print_trouble("nothing was released: add --yes to do it")
        raise typer.Exit(USAGE_STATUS)
    for line in unknown:
        print_trouble(f"not looked at: {line}")
    raise typer.Exit(TROUBLE_STATUS if unknown else OK_STATUS)


def _conclude(found: list[HoldDocument], reap: bool, reaped: bool) -> None:
    if not found:
        print_trouble("nothing to reap" if reap else "no holds")
    elif reaped:
        print_line(f"released: {format_tally((one['kind'] for one in found), ('hold', 'bookmark'))}")
    else:
        states = format_tally((one["state"] for one in found), ("in use", "orphaned", "unknown"))
        print_line(states)
