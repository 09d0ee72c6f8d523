"""zvaultctl verify: prove that what a vault has is what the source had."""

from __future__ import annotations

from typing import Annotated

import typer

from zvault.api import routes
from zvault.cli.client import Client, act
from zvault.cli.follow import Follower, follow
from zvault.cli.options import AsJson, NoWait, Quiet
from zvault.cli.output import document, say


def verify(
    backup: Annotated[str, typer.Argument(hidden=True)],
    level: Annotated[
        str, typer.Option("--level", metavar="guids|sample|full|drill", help="How thoroughly.")
    ] = "sample",
    no_wait: NoWait = False,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Compare BACKUP's vault with its source, and follow that to its end.

    Compared is the newest snapshot that both have. guids: GUIDs and properties. sample: a part of the files and
    volumes by hash, another one each time. full: everything. drill: restore a dataset for real, compare it in full
    and destroy it again.

    It gives way to backups. Ctrl-C stops following; it goes on in the daemon. Exit status: 0 all that was compared
    is the same; 1 something differs, or could not be compared.
    """
    request = {"level": level}
    if no_wait:
        started = act(routes.VERIFY, request, backup=backup)["run"]
        if json:
            document("verify", {"run": {"id": started, "backup": backup}})
        elif not quiet:
            say(f"run {started} verifies {backup}; follow it with 'zvaultctl follow {started}'")
        return

    def start(daemon: Client) -> str:
        return daemon.post(routes.VERIFY, request, backup=backup)["run"]

    raise typer.Exit(follow(start, Follower("verify", quiet, json), lambda run: f"zvaultctl follow {run}"))
