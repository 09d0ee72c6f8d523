"""zvaultctl scrub and heal: have a vault read whole and checked, and repaired."""

from __future__ import annotations

from typing import Annotated, Literal, cast

import typer

from zvault.api import routes
from zvault.api.answers import StartedAnswer
from zvault.api.vaults import ScrubAnswer, ScrubBody
from zvault.cli.client import Client, act, socket_path
from zvault.cli.follow import Follower, Start, follow
from zvault.cli.options import AsJson, NoWait, Quiet
from zvault.cli.output import document, say

OneVault = Annotated[str, typer.Argument(hidden=True)]


def scrub(
    vault: OneVault,
    pause: Annotated[bool, typer.Option("--pause", help="Pause it until it is wanted again.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Give up what it has done so far.")] = False,
    no_wait: NoWait = False,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Scrub VAULT now, or go on with a scrub that was paused, and follow it to its end.

    It gives way to backups and to whatever else uses the vault, and goes on afterwards. After --pause and --stop no
    scrub of the vault begins, not even one that is due, before this is run again without them.

    Ctrl-C stops following; the scrub goes on in the daemon. Exit status: 0 no errors; 1 errors were found, or it
    did not end.
    """
    if pause and stop:
        raise typer.BadParameter("--pause and --stop are two things: one at a time")
    if pause or stop:
        _hold(vault, "stop" if stop else "pause", quiet, json)
        return

    def start(daemon: Client) -> str:
        return cast(StartedAnswer, daemon.post(routes.SCRUB, vault=vault))["run"]

    _follow(vault, "scrub", start, no_wait, quiet, json)


def _hold(vault: str, what: Literal["pause", "stop"], quiet: bool, json: bool) -> None:
    body: ScrubBody = {"act": what}
    found = cast(ScrubAnswer, act(routes.SCRUB, body, vault=vault))["scrub"]
    if json:
        document("scrub", {"vault": vault, "scrub": found})
    elif not quiet:
        done = f" at {found['share']:.0%}" if found["share"] is not None and what == "pause" else ""
        went = {"pause": "paused", "stop": "stopped"}[what]
        say(f"scrubs of {vault} are {went}{done} until 'zvaultctl scrub {vault}'")


def heal(vault: OneVault, no_wait: NoWait = False, quiet: Quiet = False, json: AsJson = False) -> None:
    """Repair what is known to be damaged in VAULT, and follow that to its end.

    What a damaged snapshot has is sent again by its source, or by another vault that has it, and written over the
    damage. What cannot be repaired is told, file by file, with the reason.

    Exit status: 0 all is healed, or there was nothing to heal; 1 damage stays.
    """

    def start(daemon: Client) -> str:
        return daemon.post(routes.HEAL, vault=vault)["run"]

    _follow(vault, "heal", start, no_wait, quiet, json)


def _follow(vault: str, verb: str, start: Start, no_wait: bool, quiet: bool, json: bool) -> None:
    if no_wait:
        started = start(Client(socket_path()))
        if json:
            document(verb, {"run": {"id": started, "vault": vault}})
        elif not quiet:
            say(f"run {started} has started; follow it with 'zvaultctl follow {started}'")
        return
    status = follow(start, Follower(verb, quiet, json), lambda run: f"zvaultctl follow {run}")
    raise typer.Exit(status)
