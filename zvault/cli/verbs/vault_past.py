"""zvaultctl vault open and close: a vault as it was at a moment that its block store keeps, beside the vault itself."""

from __future__ import annotations

from typing import Annotated

import typer

from zvault.api import routes
from zvault.cli.client import connect
from zvault.cli.options import AsJson, Quiet, VaultName
from zvault.cli.output import clean, document, say, tell
from zvault.cli.tables import written
from zvault.cli.times import until
from zvault.cli.verbs.measure import follow


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
    telling = connect().followed(routes.OPEN_PAST, {"at": until(at)}, vault=vault, follow=1)
    past = follow(telling, quiet=quiet or json)["past"]
    if json:
        document("vault open", {"vault": vault, "past": past})
    elif not quiet:
        say(
            f"vault {vault} as it was {written(past['taken'], 'time', False)} is open: pool {clean(past['pool'])}"
        )
        tell(
            f"'zfs list -r -t all {clean(past['pool'])}' shows what is in it; 'zvaultctl vault close {vault}' ends it"
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
    body = {} if at is None else {"at": until(at)}
    telling = connect().followed(routes.CLOSE_PAST, body, vault=vault, follow=1)
    closed = follow(telling, quiet=quiet or json)["closed"]
    if json:
        document("vault close", {"vault": vault, "closed": closed})
    elif not quiet:
        for past in closed:
            say(f"vault {vault} as it was {written(past['taken'], 'time', False)} is closed")
