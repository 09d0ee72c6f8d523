"""zvaultctl vault begin-anew: a vault whose pool is lost for good may get a new one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from zvault.api import routes
from zvault.api.vaults import BeginAnewBody, PoolHistoryDocument
from zvault.cli.client import act, connect
from zvault.cli.options import AsJson, VaultName, Yes
from zvault.cli.output import USAGE, document, say, say_all, tell


def begin_anew(
    vault: VaultName,
    dry_run: Annotated[
        bool, typer.Option("-n", "--dry-run", help="Only show what would be forgotten.")
    ] = False,
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Let VAULT begin with a new, empty pool, if the one that it had is lost for good.

    Once a vault had a pool, zvault makes no other for it: its disk may only not be mounted. This shows what is known of
    the pools that it had, asks, and forgets them. Nothing is made, and holds and bookmarks on the sources stay
    ('zvaultctl holds' releases them). The next run, or 'zvaultctl vault create', then makes the pool, and everything is
    sent in full.

    Exit status: 0 forgotten, shown with -n, or there is nothing to forget; 1 the vault is up; 2 refused or failed, or
    --yes is missing.
    """
    history = connect().get(routes.POOL_HISTORY, {"vault": vault})["history"]
    if not json:
        say_all(_shown(history))
    if dry_run or not history["pools"]:
        if json:
            document("vault begin-anew", {"history": history, "forgotten": False})
        return
    if not yes and not (sys.stdin.isatty() and typer.confirm("Forget this?", err=True)):
        tell(f"nothing was forgotten: 'zvaultctl vault begin-anew {vault} --yes' does it")
        raise typer.Exit(USAGE)
    order: BeginAnewBody = {"pools": history["pools"]}
    history = act(routes.BEGIN_ANEW, order, vault=vault)["history"]
    if json:
        document("vault begin-anew", {"history": history, "forgotten": True})
        return
    makes = "the next run" if history["create"] else f"'zvaultctl vault create {vault}'"
    say(f"vault {vault} begins anew: {makes} makes its pool")


def _shown(history: PoolHistoryDocument) -> Iterator[str]:
    """The pools that it had, a line each."""
    if not history["pools"]:
        yield f"nothing is known of a pool that vault {history['vault']} had: it is new"
    for pool in history["pools"]:
        yield f"pool {pool['guid'] or 'of a GUID that is not known'}: {pool['told_by']}"
