"""zvaultctl restore: a snapshot from a vault into a new dataset."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from zvault.cli.client import Client, act
from zvault.cli.documents import RunId
from zvault.cli.follow import Follower, follow
from zvault.cli.options import AsJson, NoWait, Quiet
from zvault.cli.output import document, say


def restore(
    backup: Annotated[str, typer.Argument(hidden=True)],
    dataset: Annotated[
        str,
        typer.Argument(metavar="DATASET[@SNAPSHOT]", hidden=True),
    ],
    to: Annotated[str, typer.Argument(hidden=True)],
    no_wait: NoWait = False,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Restore a dataset of BACKUP into a new one, TO.

    DATASET is named as on the source or as in the vault; without @SNAPSHOT the newest one is taken.
    Nothing that exists is touched: TO must not exist yet. On another host it is ssh://root@filer1/tank/back.

    Ctrl-C stops following; the restore goes on in the daemon. Exit status: 0 ok; 1 failed.
    """
    name, _, snapshot = dataset.partition("@")
    wish = {"backup": backup, "dataset": name, "snapshot": snapshot or None, "to": to}

    if no_wait:
        started = act("/v1/restore", wish)["run"]
        if json:
            document("restore", {"run": {"id": started, "backup": backup}})
        elif not quiet:
            say(f"run {started} restores {dataset} to {to}; follow it with 'zvaultctl follow {started}'")
        return

    def start(daemon: Client) -> RunId:
        return cast(RunId, daemon.post("/v1/restore", wish)["run"])

    raise typer.Exit(follow(start, Follower("restore", quiet, json), lambda run: f"zvaultctl follow {run}"))
