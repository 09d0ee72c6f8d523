"""zvaultctl vault take: take a vault over from another host."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from zvault.api import routes
from zvault.api.vaults import TakeBody, TakeoverDocument
from zvault.cli.client import act, connect
from zvault.cli.health_text import storage_well
from zvault.cli.options import AsJson, VaultName, Yes
from zvault.cli.output import OK, TROUBLE, USAGE, complain, document, say, say_all, tell


def take(
    vault: VaultName,
    dry_run: Annotated[bool, typer.Option("-n", "--dry-run", help="Only show who has it.")] = False,
    yes: Yes = False,
    by_hand: Annotated[
        bool,
        typer.Option(
            "--fenced-by-hand",
            help="You have fenced its last host off the storage yourself, because zvault cannot.",
        ),
    ] = False,
    json: AsJson = False,
) -> None:
    """Take VAULT over from another host.

    Shows which host has it and the commands that will run, and asks for confirmation. First zvault fences that host
    off the storage; then it imports the pool here and keeps it up. Data that the other host has not written by then is
    lost.

    Exit status: 0 taken over, or shown with -n; 1 it is up with trouble; 2 refused or failed, or --yes is missing.
    """
    plan = connect().get(routes.TAKEOVER, {"vault": vault})["takeover"]
    if dry_run and json:
        document("vault take", {"takeover": plan})
    elif not json:
        say_all(_shown(plan))
    if dry_run:
        return
    if not yes and not (sys.stdin.isatty() and typer.confirm("Do this?", err=True)):
        tell(f"nothing was done: 'zvaultctl vault take {vault} --yes' does it")
        raise typer.Exit(USAGE)
    order: TakeBody = {"holders": plan["holders"], "fenced_by_hand": by_hand}
    taken = act(routes.TAKE, order, vault=vault)["vault"]
    if json:
        document("vault take", {"takeover": plan, "vault": taken})
    else:
        say(f"vault {vault} is taken over and up; 'zpool scrub {taken['pool']}' checks all of its data")
    if taken["error"]:
        complain(taken["error"])
    raise typer.Exit(OK if storage_well(taken) else TROUBLE)


def _shown(plan: TakeoverDocument) -> Iterator[str]:
    """The holder of each device, and below it the commands that fence it."""
    for device in plan["devices"]:
        yield f"device {device['device']}: {device['spec']}" if device["device"] else device["spec"]
        who = f"held by {device['holder']}: {device['state']}" if device["holder"] else device["state"]
        yield f"    {who}"
        if device["by_hand"]:
            yield f"    {device['by_hand']}"
        for step in device["steps"]:
            yield f"    # {step['what']}"
            yield f"    {step['command']}"
    yield f"pool {plan['pool']}"
    yield "    # import it, though its last host did not export it"
    yield f"    {plan['command']}"
