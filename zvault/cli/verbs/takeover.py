"""zvaultctl vault take: take a vault over from another host."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from zvault.api import routes
from zvault.api.vaults import TakeBody, TakeoverDocument
from zvault.cli.daemon_client import connect_daemon, request_action
from zvault.cli.health_text import is_storage_well
from zvault.cli.options import AsJson, VaultName, Yes
from zvault.cli.output import (
    OK_STATUS,
    TROUBLE_STATUS,
    USAGE_STATUS,
    print_document,
    print_error,
    print_line,
    print_lines,
    print_trouble,
)


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
    plan = connect_daemon().get(routes.TAKEOVER, {"vault": vault})["takeover"]
    if dry_run and json:
        print_document("vault take", {"takeover": plan})
    elif not json:
        print_lines(_shown(plan))
    if dry_run:
        return
    if not yes and not (sys.stdin.isatty() and typer.confirm("Do this?", err=True)):
        print_trouble(f"nothing was done: 'zvaultctl vault take {vault} --yes' does it")
        raise typer.Exit(USAGE_STATUS)
    order: TakeBody = {"holders": plan["holders"], "fenced_by_hand": by_hand}
    taken = request_action(routes.TAKE, order, vault=vault)["vault"]
    if json:
        print_document("vault take", {"takeover": plan, "vault": taken})
    else:
        print_line(
            f"vault {vault} is taken over and up; 'zpool scrub {taken['pool']}' checks all of its data"
        )
    if taken["error"]:
        print_error(taken["error"])
    raise typer.Exit(OK_STATUS if is_storage_well(taken) else TROUBLE_STATUS)


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
