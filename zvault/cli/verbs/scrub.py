"""zvaultctl scrub and heal: check a vault's pool with a scrub, and repair damage."""

from __future__ import annotations

from typing import Annotated, Literal, cast

import typer

from zvault.api import routes
from zvault.api.answers import StartedAnswer
from zvault.api.vaults import HealBody, ScrubAnswer, ScrubBody
from zvault.cli.daemon_client import DaemonClient, connect_daemon, request_action
from zvault.cli.follow_run import RunFollower, RunStart, follow_run
from zvault.cli.options import AsJson, NoWait, Quiet, VaultName
from zvault.cli.output import print_document, print_line


def scrub(
    vault: VaultName,
    pause: Annotated[
        bool, typer.Option("--pause", help="Pause scrubs until this is run again without --pause.")
    ] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Stop the scrub and discard its progress.")] = False,
    no_wait: NoWait = False,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Scrub VAULT now, or resume a paused scrub, and follow it to its end.

    The scrub pauses while backups or other work use the vault, and resumes afterwards. After --pause or --stop no
    scrub of the vault starts, not even a scheduled one, until this is run again without them.

    Ctrl-C stops following; the scrub continues in the daemon. Exit status: 0 no errors; 1 errors were found, or it
    did not end.
    """
    if pause and stop:
        raise typer.BadParameter("--pause and --stop cannot be used together")
    if pause or stop:
        _hold(vault, "stop" if stop else "pause", quiet, json)
        return

    def start(daemon: DaemonClient) -> str:
        return cast(StartedAnswer, daemon.post(routes.SCRUB, vault=vault))["run"]

    _follow(vault, "scrub", start, no_wait, quiet, json)


def _hold(vault: str, what: Literal["pause", "stop"], quiet: bool, json: bool) -> None:
    body: ScrubBody = {"act": what}
    found = cast(ScrubAnswer, request_action(routes.SCRUB, body, vault=vault))["scrub"]
    if json:
        print_document("scrub", {"vault": vault, "scrub": found})
    elif not quiet:
        done = f" at {found['share']:.0%}" if found["share"] is not None and what == "pause" else ""
        went = {"pause": "paused", "stop": "stopped"}[what]
        print_line(f"scrubs of {vault} are {went}{done} until 'zvaultctl scrub {vault}'")


def heal(
    vault: VaultName,
    trust_hosts: Annotated[
        bool,
        typer.Option(
            "--trust-hosts",
            help="Accept blocks that only one other host sends, though their checksum (fletcher) can be forged.",
        ),
    ] = False,
    no_wait: NoWait = False,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Repair known damage in VAULT, and follow the repair to its end.

    The source, or another vault that has the snapshot, sends the data of a damaged snapshot again, and zvault writes it
    over the damage. For each file that cannot be repaired it prints the reason.

    Exit status: 0 all is healed, or there was nothing to heal; 1 damage remains.
    """

    def start(daemon: DaemonClient) -> str:
        body: HealBody = {"trusts_hosts": trust_hosts}
        return daemon.post(routes.HEAL, body, vault=vault)["run"]

    _follow(vault, "heal", start, no_wait, quiet, json)


def _follow(vault: str, verb: str, start: RunStart, no_wait: bool, quiet: bool, json: bool) -> None:
    if no_wait:
        started = start(connect_daemon())
        if json:
            print_document(verb, {"run": {"id": started, "vault": vault}})
        elif not quiet:
            print_line(f"run {started} has started; follow it with 'zvaultctl follow {started}'")
        return
    status = follow_run(start, RunFollower(verb, quiet, json), lambda run: f"zvaultctl follow {run}")
    raise typer.Exit(status)
