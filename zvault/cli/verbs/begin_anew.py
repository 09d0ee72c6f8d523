"""zvaultctl vault begin-anew: a vault whose pool is lost for good may get a new one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from zvault.api import routes
from zvault.api.vaults import BeginAnewBody, PoolHistoryDocument
from zvault.cli.daemon_client import connect_daemon, request_action
from zvault.cli.options import AsJson, VaultName, Yes
from zvault.cli.output import USAGE_STATUS, print_document, print_line, print_lines, print_trouble


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
    history = connect_daemon().get(routes.POOL_HISTORY, {"vault": vault})["history"]
    if not json:
        print_lines(_shown(history))
    if dry_run or not history["pools"]:
        if json:
            print_document("vault begin-anew", {"history": history, "forgotten": False})
        return
    if not yes and not (sys.stdin.isatty() and typer.confirm("Forget this?", err=True)):
        print_trouble(f"nothing was forgotten: 'zvaultctl vault begin-anew {vault} --yes' does it")
        raise typer.Exit(USAGE_STATUS)
    order: BeginAnewBody = {"pools": history["pools"]}
    history = request_action(routes.BEGIN_ANEW, order, vault=vault)["history"]
    if json:
        print_document("vault begin-anew", {"history": history, "forgotten": True})
        return
    makes = "the next run" if history["create"] else f"'zvaultctl vault create {vault}'"
    print_line(f"vault {vault} begins anew: {makes} makes its pool")


def _shown(history: PoolHistoryDocument) -> Iterator[str]:
    """The pools that it had, a line each, and what may tell of others."""
    if not history["pools"] and not history["unknown"]:
        yield f"nothing is known of a pool that vault {history['vault']} had: it is new"
    for pool in history["pools"]:
        yield f"pool {pool['guid'] or 'of a GUID that is not known'}: {pool['told_by']}"
    for why in history["unknown"]:
        yield f"not known whether there is another: {why}"
