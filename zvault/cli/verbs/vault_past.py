"""zvaultctl vault open and close: a vault as it was at a moment that its block store keeps, beside the vault itself."""

from __future__ import annotations

from typing import Annotated

import typer

from zvault.api import routes
from zvault.cli.daemon_client import connect_daemon
from zvault.cli.options import AsJson, Quiet, VaultName
from zvault.cli.output import clean_line, print_document, print_line, print_trouble
from zvault.cli.parse_times import parse_last_moment
from zvault.cli.tables import format_cell
from zvault.cli.verbs.measure import follow_messages


def open_past(
    vault: VaultName,
    at: Annotated[
        str,
        typer.Option(
            "--at", metavar="TIME", help="The last moment up to TIME that is kept.", show_default=False
        ),
    ],
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Open VAULT as it was at a moment of its past, read-only, beside the vault itself.

    Only for a vault whose one device is a block store with 'history=': 'blockstore history' lists the moments that it
    keeps. The vault may be up or down, and goes on. The pool of then is imported under a name of its own, which is
    shown, with nothing of it mounted. It is open until 'vault close', or the end of zvaultd. TIME is for example
    '2026-11-21 09:30' or '2d ago'.
    """
    telling = connect_daemon().followed(
        routes.OPEN_PAST, {"at": parse_last_moment(at)}, vault=vault, follow=1
    )
    past = follow_messages(telling, quiet=quiet or json)["past"]
    if json:
        print_document("vault open", {"vault": vault, "past": past})
    elif not quiet:
        print_line(
            f"vault {vault} as it was {format_cell(past['taken'], 'time', False)} is open: pool "
            f"{clean_line(past['pool'])}"
        )
        print_trouble(
            f"'zfs list -r -t all {clean_line(past['pool'])}' shows what is in it; 'zvaultctl vault close "
            f"{vault}' ends it"
        )


def close_past(
    vault: VaultName,
    at: Annotated[
        str | None,
        typer.Option(
            "--at", metavar="TIME", help="Only the last one up to TIME that is open.", show_default=False
        ),
    ] = None,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Close VAULT as it was: all that 'vault open' opened of it.

    The vault itself stays as it is. Refused while a restore or a mount uses it.
    """
    body = {} if at is None else {"at": parse_last_moment(at)}
    telling = connect_daemon().followed(routes.CLOSE_PAST, body, vault=vault, follow=1)
    closed = follow_messages(telling, quiet=quiet or json)["closed"]
    if json:
        print_document("vault close", {"vault": vault, "closed": closed})
    elif not quiet:
        for past in closed:
            print_line(f"vault {vault} as it was {format_cell(past['taken'], 'time', False)} is closed")
