"""zvaultctl verify: prove that a vault has the same data as the source."""

from __future__ import annotations

from typing import Annotated

import typer

from zvault.api import routes
from zvault.cli.choose_vault import OfVault, ask_of_best, name_of_vault
from zvault.cli.daemon_client import DaemonClient, request_action
from zvault.cli.follow_run import RunFollower, follow_run
from zvault.cli.options import AsJson, BackupName, NoWait, Quiet
from zvault.cli.output import print_document, print_line


def verify(
    backup: BackupName,
    level: Annotated[
        str, typer.Option("--level", metavar="guids|sample|full|drill", help="How thoroughly.")
    ] = "sample",
    vault: OfVault = None,
    no_wait: NoWait = False,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Compare BACKUP's vault with its source, and follow the verification to its end.

    zvault compares the newest snapshot that both have. guids: GUIDs and properties. sample: the hashes of a part of the
    files and volumes, a different part each time. full: everything. drill: restore a dataset, compare all of it and
    destroy it again.

    Verification pauses for backups. Ctrl-C stops following; it continues in the daemon. Exit status: 0 everything
    compared is the same; 1 something differs, or could not be compared.
    """
    request, backup = {"level": level}, name_of_vault(backup, vault)
    if no_wait:
        started = ask_of_best(backup, lambda name: request_action(routes.VERIFY, request, backup=name)["run"])
        if json:
            print_document("verify", {"run": {"id": started, "backup": backup}})
        elif not quiet:
            print_line(f"run {started} verifies {backup}; follow it with 'zvaultctl follow {started}'")
        return

    def start(daemon: DaemonClient) -> str:
        return ask_of_best(backup, lambda name: daemon.post(routes.VERIFY, request, backup=name)["run"])

    raise typer.Exit(
        follow_run(start, RunFollower("verify", quiet, json), lambda run: f"zvaultctl follow {run}")
    )
