"""zvaultctl vault accept-older: backups go on into a vault whose store was put back to an older state."""

from __future__ import annotations

import sys

import typer

from zvault.api import routes
from zvault.api.vaults import AcceptOlderBody
from zvault.cli.daemon_client import read_document, request_action
from zvault.cli.options import AsJson, VaultName, Yes
from zvault.cli.output import USAGE_STATUS, print_document, print_line, print_trouble
from zvault.core.health.vault_conditions import PUT_BACK


def accept_older(vault: VaultName, yes: Yes = False, json: AsJson = False) -> None:
    """Go on with what VAULT has, where its store was put back to an older state.

    zvault sees that a pool is older than when it was last seen. Until somebody decides, it prunes nothing, and sends
    nothing in full over what is there. Bring the store back as it was if you can: then there is nothing to accept.

    This shows how old the vault is, asks, and has the next run go on from there: as its 'on_conflict' says, where the
    source has no base any more.

    Exit status: 0 accepted, or there is nothing to accept; 2 refused or failed, or --yes is missing.
    """
    found = [one for one in read_document(routes.VAULTS)["vaults"] if one["name"] == vault]
    told = [
        it["why"] for one in found for it in one["verdict"]["findings"] if it["condition"] == PUT_BACK.key
    ]
    if found and not told:
        if json:
            print_document("vault accept-older", {"vault": vault, "older": "", "accepted": False})
        else:
            print_line(f"vault {vault} is as new as when it was last seen")
        return
    older = "".join(told)
    if told and not json:
        print_line(f"vault {vault}: {older}")
    if told and not yes and not (sys.stdin.isatty() and typer.confirm("Go on from that?", err=True)):
        print_trouble(f"nothing was accepted: 'zvaultctl vault accept-older {vault} --yes' does it")
        raise typer.Exit(USAGE_STATUS)
    order: AcceptOlderBody = {"older": older}
    older = request_action(routes.ACCEPT_OLDER, order, vault=vault)["older"]
    if json:
        print_document("vault accept-older", {"vault": vault, "older": older, "accepted": True})
    else:
        print_line(f"vault {vault}: the next run goes on from what it has")
